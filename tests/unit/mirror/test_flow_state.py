"""Progress that is compared with the source's leader epochs (KIP-320)."""

from __future__ import annotations

from uuid import UUID

import pytest

from triokafka.client.consumer.read_epochs import ReadEpochs
from triokafka.mirror.flow_state import FlowState
from triokafka.mirror.offset_translation import OffsetTranslation
from triokafka.mirror.stored_positions import StoredPosition, decode_positions, encode_changes
from triokafka.mirror.topic_replication import MirroredPartition
from triokafka.structs import OffsetAndMetadata, TopicPartition

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)
WHERE = MirroredPartition("west.orders", TOPIC_ID)


def restored(epochs: ReadEpochs, next_offset: int = 30) -> FlowState:
    """Progress of records that are next to each other in both logs."""
    offsets = OffsetTranslation(0)
    offsets.add(0, 100, next_offset)
    stored = dict(encode_changes(PARTITION, TOPIC_ID, offsets, epochs=epochs))
    state = FlowState(100)
    state.restore(decode_positions({key: value for key, value in stored.items() if value is not None}))
    state.assign({PARTITION: WHERE})
    return state


def test_stored_progress_has_its_epochs() -> None:
    state = restored(ReadEpochs(3, 20, 2))
    assert state.epochs_to_compare({PARTITION: WHERE}) == {PARTITION: 3}
    assert state.begin(PARTITION, WHERE, 0, 30, "earliest") == OffsetAndMetadata(30, "", 3)
    assert state.flows[PARTITION].epochs == ReadEpochs(3, 20, 2)


def test_log_that_has_everything_changes_nothing() -> None:
    state = restored(ReadEpochs(3, 20, 2))
    assert not state.compare(PARTITION, OffsetAndMetadata(30, "", 3))
    assert not state.compare(PARTITION, OffsetAndMetadata(44, "", 3))
    assert state.begin(PARTITION, WHERE, 0, 44, "earliest").offset == 30
    assert not state.has_changes() and state.counts.truncated == 0


def test_log_without_the_last_epoch_is_compared_epoch_by_epoch() -> None:
    """Records of the epoch before reach beyond the position: they replaced those of the last epoch."""
    state = restored(ReadEpochs(3, 20, 2))
    assert state.compare(PARTITION, OffsetAndMetadata(50, "", 2))
    assert state.epochs_to_compare({PARTITION: WHERE}) == {PARTITION: 2}
    assert state.compare(PARTITION, OffsetAndMetadata(12, "", 1))
    assert not state.compare(PARTITION, OffsetAndMetadata(12, "", 1))
    assert state.begin(PARTITION, WHERE, 0, 50, "earliest") == OffsetAndMetadata(12, "", 1)
    assert state.counts.truncated == 18
    assert [flow.offsets.next_offset for flow in state.take_changed()] == [12], "to be stored"
    assert state.flows[PARTITION].offsets.translate(12) == 112
    assert state.flows[PARTITION].offsets.translate(13) is None


def test_position_behind_the_stable_end_is_kept_where_the_log_has_its_records() -> None:
    """The end of a transaction that is mirrored was lost with its last replica: its records are not copied again."""
    state = restored(ReadEpochs(3))
    assert state.begin(PARTITION, WHERE, 0, 10, "earliest").offset == 30


def test_truncation_that_is_met_again_is_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    stored = {PARTITION: StoredPosition(TOPIC_ID, None, 0, 30, epochs=ReadEpochs(3))}
    state = FlowState(100)
    for _ in range(3):
        state.restore(stored)
        assert state.compare(PARTITION, OffsetAndMetadata(25, "", 3))
        assert state.begin(PARTITION, WHERE, 0, 40, "earliest").offset == 25
    assert state.counts.truncated == 5
    assert caplog.text.count("lost offsets 25 to 29") == 1


def test_unknown_epoch_is_logged_and_mirroring_continues(caplog: pytest.LogCaptureFixture) -> None:
    state = restored(ReadEpochs(9))
    assert not state.compare(PARTITION, None)
    assert "does not know leader epoch 9" in caplog.text
    assert state.begin(PARTITION, WHERE, 0, 44, "earliest") == OffsetAndMetadata(30)


def test_records_that_expired_leave_no_epoch_behind() -> None:
    state = restored(ReadEpochs(3))
    assert state.begin(PARTITION, WHERE, 90, 99, "earliest") == OffsetAndMetadata(90)
    assert state.counts.lost == 60


def test_flow_to_an_end_that_is_lost_ends_before_it() -> None:
    state = restored(ReadEpochs(3))
    state.finish_at({PARTITION: 60})
    assert state.compare(PARTITION, OffsetAndMetadata(25, "", 3))
    assert state.begin(PARTITION, WHERE, 0, 27, "earliest").offset == 25
    state.flows[PARTITION].offsets.advance(27)
    assert not state.is_finished(), "not stored yet"
    assert [flow.source for flow in state.take_changed()] == [PARTITION]
    assert state.is_finished()


def test_progress_of_another_topic_of_that_name_is_not_compared() -> None:
    state = restored(ReadEpochs(3))
    assert state.epochs_to_compare({PARTITION: MirroredPartition("west.orders", UUID(int=8))}) == {}
