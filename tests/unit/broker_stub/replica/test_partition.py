"""One hosted partition."""

from __future__ import annotations

import random

import pytest

from tests.unit.broker_stub.replica.logs import NODE, NOW_MS, append, batch, leader, open_log
from triokafka import errors
from triokafka.broker_stub.log.appender import AppendInfo
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.replica.delete_records import delete_records_before
from triokafka.broker_stub.replica.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    look_up_offset,
)
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.partition_rest import idle_follower_fetched
from triokafka.broker_stub.replica.read_result import EpochEnd
from triokafka.network.fetch_sessions.fetch_session import WantedPartition
from triokafka.records import encode_batch


def test_append_raises_the_high_watermark_when_the_leader_is_alone() -> None:
    partition = leader()
    assert append(partition, b"a", b"b")
    assert partition.high_watermark == 2
    assert not partition.advance_high_watermark()


def test_high_watermark_is_the_least_end_of_the_in_sync_replicas() -> None:
    """It waits for a replica that has not fetched, and never falls."""
    partition = leader(replicas=(NODE, 2, 3), isr=(NODE, 2))
    assert not append(partition, b"a", b"b", b"c")
    assert partition.follower_fetched(2, 1, now=0)
    assert partition.high_watermark == 1
    assert not partition.follower_fetched(2, 0, now=0)
    assert partition.high_watermark == 1
    assert not partition.follower_fetched(3, 3, now=0)
    assert partition.follower_fetched(2, 3, now=0)
    assert partition.high_watermark == 3


def test_fetch_of_a_broker_that_is_no_replica_changes_nothing() -> None:
    """That broker asks again when its own metadata or the leader's are newer."""
    partition = leader(replicas=(NODE, 2), epoch=3)
    append(partition, b"a")
    for replica in (9, NODE):
        with pytest.raises(errors.NotLeaderForPartitionError):
            partition.follower_fetched(replica, 1, now=0)
        with pytest.raises(errors.UnknownLeaderEpochError):
            partition.require_follower(replica, 3)
        with pytest.raises(errors.FencedLeaderEpochError):
            partition.require_follower(replica, 2)
    assert partition.high_watermark == 0


def test_same_epoch_again_is_no_new_leadership() -> None:
    """Followers' end offsets are retained then, and dropped in a new epoch."""
    partition = leader(replicas=(NODE, 2))
    append(partition, b"a")
    partition.follower_fetched(2, 1, now=0)
    again = {"partition_epoch": 1, "replicas": (NODE, 2), "in_sync_replicas": (NODE, 2)}
    assert not partition.make_leader(leader_epoch=3, **again)  # type: ignore[arg-type]
    append(partition, b"b")
    assert partition.follower_fetched(2, 2, now=0)
    assert partition.make_leader(leader_epoch=4, **again)  # type: ignore[arg-type]
    append(partition, b"c")
    assert partition.high_watermark == 2


def test_checkpointed_high_watermark_is_clamped_to_the_log() -> None:
    partition = leader()
    append(partition, b"a", b"b")
    for checkpointed, expected in ((0, 0), (1, 1), (99, 2)):
        restored = Partition(
            partition.topic_partition, partition.topic_id, node_id=NODE, log=partition.log, high_watermark=checkpointed
        )
        assert restored.high_watermark == expected


def test_follower_refuses_to_be_written_to_and_read_from() -> None:
    partition = leader(replicas=(NODE, 2))
    assert partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(NODE, 2))
    assert not partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=2, replicas=(NODE, 2))
    with pytest.raises(errors.NotLeaderForPartitionError):
        partition.append(batch(b"a"), required_acks=1, now_ms=NOW_MS)
    with pytest.raises(errors.NotLeaderForPartitionError):
        partition.read(0, 100, min_one_batch=True)
    with pytest.raises(errors.NotLeaderForPartitionError):
        delete_records_before(partition, 0)
    assert partition.leader_hint == (2, 4)


def test_other_leader_epoch_is_fenced_or_unknown() -> None:
    partition = leader(epoch=3)
    with pytest.raises(errors.FencedLeaderEpochError):
        partition.read(0, 100, min_one_batch=True, current_leader_epoch=2)
    with pytest.raises(errors.UnknownLeaderEpochError):
        partition.read(0, 100, min_one_batch=True, current_leader_epoch=4)
    assert partition.read(0, 100, min_one_batch=True, current_leader_epoch=3).error_code == 0


def test_too_few_in_sync_replicas_refuse_acks_all_before_anything_is_written() -> None:
    """Other acks are accepted. A topic with one replica never requires two."""
    partition = leader(replicas=(NODE, 2), isr=(NODE,), min_isr=2)
    with pytest.raises(errors.NotEnoughReplicasError):
        append(partition, b"a", acks=-1)
    assert partition.log.log_end_offset == 0
    append(partition, b"a", acks=1)
    assert append(leader(min_isr=2), b"a", acks=-1)


def produced(sequence: int, *, epoch: int = 0) -> bytearray:
    """A batch of one record of an idempotent producer."""
    return bytearray(
        encode_batch([(NOW_MS, None, b"a", ())], producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    )


def send(partition: Partition, sequence: int, *, epoch: int = 0) -> AppendInfo:
    return partition.append(produced(sequence, epoch=epoch), required_acks=-1, now_ms=NOW_MS)


def with_in_sync(partition: Partition, *replicas: int) -> None:
    """Let the controller commit another in-sync set."""
    partition.make_leader(
        leader_epoch=3, partition_epoch=partition.partition_epoch + 1, replicas=(NODE, 2), in_sync_replicas=replicas
    )


def test_batch_that_is_in_the_log_is_not_refused_for_too_few_in_sync_replicas() -> None:
    """A refusal says that nothing was written; librdkafka then repeats the records with a new epoch."""
    partition = leader(replicas=(NODE, 2), min_isr=2)
    send(partition, 0)
    with_in_sync(partition, NODE)
    again = send(partition, 0)
    assert (again.duplicate, again.first_offset) == (True, 0)
    with pytest.raises(errors.NotEnoughReplicasError):
        send(partition, 1)
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize("known", [False, True])
def test_batches_behind_a_refused_one_are_refused_for_the_same_reason_until_it_comes_again(known: bool) -> None:
    """They were already sent when enough replicas were in sync again."""
    partition = leader(replicas=(NODE, 2), min_isr=2)
    first = 0
    if known:
        send(partition, 0)
        first = 1
    with_in_sync(partition, NODE)
    with pytest.raises(errors.NotEnoughReplicasError):
        send(partition, first)
    with_in_sync(partition, NODE, 2)
    for sequence in range(first + 1, first + 5):
        with pytest.raises(errors.NotEnoughReplicasError, match=f"sequence {first} was refused"):
            send(partition, sequence)
    assert [send(partition, sequence).first_offset for sequence in range(first, first + 3)] == [
        first, first + 1, first + 2,
    ]  # fmt: skip


def test_producer_that_gives_a_refused_batch_up_is_not_refused_for_ever() -> None:
    partition = leader(replicas=(NODE, 2), isr=(NODE,), min_isr=2)
    with pytest.raises(errors.NotEnoughReplicasError):
        send(partition, 0)
    with_in_sync(partition, NODE, 2)
    assert send(partition, 0, epoch=1).first_offset == 0
    with_in_sync(partition, NODE)
    with pytest.raises(errors.NotEnoughReplicasError):
        send(partition, 1, epoch=1)
    with_in_sync(partition, NODE, 2)
    for _ in range(4):
        with pytest.raises(errors.NotEnoughReplicasError):
            send(partition, 2, epoch=1)
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        send(partition, 2, epoch=1)


def new_leader(partition: Partition, *, leader_epoch: int) -> None:
    partition.make_leader(leader_epoch=leader_epoch, partition_epoch=9, replicas=(NODE,), in_sync_replicas=(NODE,))


@pytest.mark.parametrize("producer_epoch", [0, 1])
def test_batches_may_arrive_at_a_new_leader_before_one_that_it_refused_as_a_follower(producer_epoch: int) -> None:
    """The error for "out of order" would make librdkafka repeat records of other partitions with a new epoch."""
    partition = leader(epoch=3)
    send(partition, 0)
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(NODE, 2))
    first = 0 if producer_epoch else 1
    with pytest.raises(errors.NotLeaderForPartitionError):
        send(partition, first, epoch=producer_epoch)
    new_leader(partition, leader_epoch=5)
    for sequence in range(first + 1, first + 5):
        with pytest.raises(errors.NotEnoughReplicasError, match=f"sequence {first} was refused"):
            send(partition, sequence, epoch=producer_epoch)
    assert [send(partition, sequence, epoch=producer_epoch).first_offset for sequence in range(first, first + 5)] == [
        1, 2, 3, 4, 5,
    ]  # fmt: skip
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        send(partition, first + 6, epoch=producer_epoch)


def test_batches_may_arrive_at_a_leader_again_before_one_that_it_lost_as_a_follower() -> None:
    partition = leader(epoch=3)
    for sequence in range(3):
        send(partition, sequence)
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(NODE, 2))
    partition.truncate_as_follower(1, leader_epoch=4, now_ms=NOW_MS)
    new_leader(partition, leader_epoch=5)
    with pytest.raises(errors.NotEnoughReplicasError):
        send(partition, 3)
    assert [send(partition, sequence).first_offset for sequence in range(1, 4)] == [1, 2, 3]


def test_gap_that_stays_is_out_of_order_after_five_batches_in_each_leader_epoch() -> None:
    partition = leader(epoch=3)
    send(partition, 0)
    for leader_epoch in (5, 7):
        new_leader(partition, leader_epoch=leader_epoch)
        for _ in range(5):
            with pytest.raises(errors.NotEnoughReplicasError):
                send(partition, 4)
        for _ in range(3):
            with pytest.raises(errors.OutOfOrderSequenceNumberError):
                send(partition, 4)
    assert send(partition, 1).first_offset == 1


def test_step_back_is_out_of_order_at_a_new_leader() -> None:
    """No repeated request can make it fit."""
    partition = leader(epoch=3)
    for sequence in range(8):
        send(partition, sequence)
    new_leader(partition, leader_epoch=5)
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        send(partition, 1)


def test_consumer_reads_below_the_high_watermark_and_a_follower_to_the_end() -> None:
    partition = leader(replicas=(NODE, 2))
    append(partition, b"a")
    append(partition, b"b")
    partition.follower_fetched(2, 1, now=0)
    consumer = partition.read(0, 10_000, min_one_batch=True)
    follower = partition.read(0, 10_000, min_one_batch=True, follower=True)
    assert (consumer.high_watermark, consumer.last_stable_offset, consumer.log_start_offset) == (1, 1, 0)
    assert len(follower.records) == 2 * len(consumer.records) > 0
    assert not len(partition.read(1, 10_000, min_one_batch=True).records)


def test_read_before_the_start_or_after_the_end_is_out_of_range() -> None:
    """A read at the end is empty instead."""
    partition = leader()
    for value in (b"a", b"b", b"c"):
        append(partition, value)
    delete_records_before(partition, 2)
    for offset in (-1, 0, 1, 4):
        with pytest.raises(errors.OffsetOutOfRangeError):
            partition.read(offset, 100, min_one_batch=True)
    assert not len(partition.read(3, 100, min_one_batch=True).records)


def test_first_batch_may_exceed_the_limit_only_where_progress_needs_it() -> None:
    partition = leader()
    append(partition, b"x" * 1000)
    assert len(partition.read(0, 10, min_one_batch=True).records) > 1000
    assert not len(partition.read(0, 10, min_one_batch=False).records)
    assert not len(partition.read(0, 0, min_one_batch=False).records)
    assert len(partition.read(0, 0, min_one_batch=True).records) > 1000


def test_records_are_deleted_up_to_the_high_watermark_at_most() -> None:
    partition = leader(replicas=(NODE, 2))
    for value in (b"a", b"b", b"c"):
        append(partition, value)
    partition.follower_fetched(2, 2, now=0)
    with pytest.raises(errors.OffsetOutOfRangeError):
        delete_records_before(partition, 3)
    assert delete_records_before(partition, 1) == 1
    assert delete_records_before(partition, 0) == 0
    assert partition.log.log_start_offset == 1
    assert delete_records_before(partition, -1) == 2


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted() -> None:
    partition = leader()
    append(partition, b"a")
    partition.log.update_config(LogConfig(cleanup_policy=("compact",)))
    with pytest.raises(errors.PolicyViolationError):
        delete_records_before(partition, 1)
    partition.log.update_config(LogConfig(cleanup_policy=("compact", "delete")))
    assert delete_records_before(partition, 1) == 1


def test_offsets_by_time_and_by_name() -> None:
    partition = leader()
    partition.append(batch(b"a", b"b", timestamp=1000), required_acks=1, now_ms=NOW_MS)
    partition.append(batch(b"c", timestamp=5000), required_acks=1, now_ms=NOW_MS)
    partition.append(batch(b"d", timestamp=3000), required_acks=1, now_ms=NOW_MS)
    partition.advance_high_watermark()

    def at(timestamp: int) -> tuple[int, int] | None:
        found = look_up_offset(partition, timestamp, read_committed=False)
        return None if found is None else (found.offset, found.timestamp)

    assert at(EARLIEST) == at(EARLIEST_LOCAL) == (0, -1)
    assert at(LATEST) == (4, -1)
    assert at(MAX_TIMESTAMP) == (2, 5000)
    assert at(LATEST_TIERED) is None
    assert at(0) == (0, 1000)
    assert at(1001) == (1, 1001)
    assert at(1002) == (2, 5000)
    assert at(5001) is None


def of_two_epochs(first: int, second: int) -> Partition:
    """Two records of the first, one of the second."""
    partition = leader(epoch=first)
    append(partition, b"a", b"b")
    partition.make_leader(leader_epoch=second, partition_epoch=1, replicas=(NODE,), in_sync_replicas=(NODE,))
    append(partition, b"c")
    return partition


def test_end_of_an_epoch_is_where_the_next_one_starts() -> None:
    partition = of_two_epochs(3, 7)
    assert partition.end_offset_for_epoch(7) == (7, 3)
    assert partition.end_offset_for_epoch(3) == (3, 2)
    assert partition.end_offset_for_epoch(5) == (3, 2)
    assert partition.end_offset_for_epoch(8) == (-1, -1)


def test_diverged_reader_receives_the_offset_to_truncate_to() -> None:
    """(KIP-595)."""
    partition = of_two_epochs(3, 7)
    same = partition.read(2, 1000, min_one_batch=True, last_fetched_epoch=3)
    assert same.diverging_epoch is None and len(same.records)
    beyond = partition.read(3, 1000, min_one_batch=True, last_fetched_epoch=3)
    assert beyond.diverging_epoch == EpochEnd(3, 2) and not len(beyond.records)
    unknown = partition.read(3, 1000, min_one_batch=True, last_fetched_epoch=5)
    assert unknown.diverging_epoch == EpochEnd(3, 2)


def test_records_that_diverge_below_the_log_start_are_found() -> None:
    """They would come back with other contents than the leader's if both died before they store their log starts."""
    partition = of_two_epochs(3, 7)
    append(partition, b"d")
    delete_records_before(partition, 3)
    assert partition.read(3, 1000, min_one_batch=True, last_fetched_epoch=3).diverging_epoch == EpochEnd(3, 2)
    assert partition.end_offset_for_epoch(3) == (3, 3), "where the log starts, as OffsetForLeaderEpoch of Kafka says"
    assert partition.end_offset_for_epoch(7) == (7, 4)


def test_the_first_epoch_may_diverge_too() -> None:
    """0 is an ordinary epoch; -1 is none."""
    partition = of_two_epochs(0, 1)
    beyond = partition.read(3, 1000, min_one_batch=True, last_fetched_epoch=0)
    assert beyond.diverging_epoch == EpochEnd(0, 2)
    assert partition.read(3, 1000, min_one_batch=True, last_fetched_epoch=-1).diverging_epoch is None
    for known, wrong in ((0, errors.FencedLeaderEpochError), (2, errors.UnknownLeaderEpochError)):
        with pytest.raises(wrong):
            partition.read(0, 1000, min_one_batch=True, current_leader_epoch=known)


def test_offsets_of_a_new_leader_are_not_available_before_its_followers_caught_up() -> None:
    log = open_log()
    partition = Partition(log.topic_partition, leader().topic_id, node_id=NODE, log=log)
    log.append_as_leader(batch(b"a", b"b"), leader_epoch=1, now_ms=NOW_MS)
    partition.make_leader(leader_epoch=2, partition_epoch=0, replicas=(NODE, 2), in_sync_replicas=(NODE, 2))
    with pytest.raises(errors.OffsetNotAvailableError):
        look_up_offset(partition, LATEST, read_committed=False)
    partition.follower_fetched(2, 2, now=0)
    found = look_up_offset(partition, LATEST, read_committed=False)
    assert found is not None and found.offset == 2


def test_open_transaction_from_before_the_epoch_keeps_no_offsets_from_readers_of_committed_records() -> None:
    """A leader changes while a transaction is open; the high watermark does not lag, only the last stable offset."""
    log = open_log()
    partition = Partition(log.topic_partition, leader().topic_id, node_id=NODE, log=log)
    log.append_as_leader(batch(b"a"), leader_epoch=1, now_ms=NOW_MS)
    record = (NOW_MS, None, b"b", ())
    sent = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(sent, leader_epoch=1, now_ms=NOW_MS)
    partition.make_leader(leader_epoch=2, partition_epoch=0, replicas=(NODE, 2), in_sync_replicas=(NODE, 2))
    with pytest.raises(errors.OffsetNotAvailableError):
        look_up_offset(partition, LATEST, read_committed=True)
    partition.follower_fetched(2, 2, now=0)
    for read_committed, end in ((True, 1), (False, 2)):
        found = look_up_offset(partition, LATEST, read_committed=read_committed)
        assert found is not None and found.offset == end
    assert look_up_offset(partition, NOW_MS + 1000, read_committed=True) is None


def test_shortcut_for_an_idle_follower_has_the_result_of_the_full_fetch() -> None:
    """Two leaders with the same history: one tries the short cut before every fetch, and both stay the same."""
    chance = random.Random(1)
    taken = 0
    for _ in range(60):
        usual, quick = (leader(replicas=(NODE, 2, 3), isr=(NODE, 2), epoch=3) for _ in range(2))
        now, offsets = 0.0, {2: 0, 3: 0}
        for _ in range(40):
            now += chance.random() * 5
            if chance.random() < 0.2:
                for partition in (usual, quick):
                    append(partition, b"a")
            if chance.random() < 0.05:
                for partition in (usual, quick):
                    with_in_sync(partition, NODE, 2, 3)
            replica = chance.choice((2, 3))
            if chance.random() < 0.4:
                offsets[replica] = usual.log.log_end_offset
            wanted = offsets[replica], chance.choice((3, 3, 3, 2)), chance.choice((-1, 3, 3, 2))
            start, broker_epoch = chance.choice((0, 0, 0, -1)), chance.choice((5, 5, 5, 6))
            steps = [_usual_steps, _short_cut_first]
            results = [
                step(partition, replica, wanted, now, start, broker_epoch)
                for step, partition in zip(steps, (usual, quick), strict=True)
            ]
            taken += results[1][1]
            assert results[0][0] == results[1][0]
            assert usual.followers == quick.followers
            assert usual.high_watermark == quick.high_watermark
    assert taken > 50


def _usual_steps(
    partition: Partition, replica: int, wanted: tuple[int, int, int], now: float, start: int, broker_epoch: int
) -> tuple[object, bool]:
    offset, leader_epoch, last_epoch = wanted
    try:
        partition.require_follower(replica, leader_epoch)
        outcome = partition.read(
            offset,
            1000,
            min_one_batch=True,
            follower=True,
            current_leader_epoch=leader_epoch,
            last_fetched_epoch=last_epoch,
        )
        if outcome.diverging_epoch is None:
            partition.follower_fetched(replica, offset, now, log_start_offset=start, broker_epoch=broker_epoch)
    except errors.BrokerResponseError as error:
        return str(error), False
    return outcome, False


def _short_cut_first(
    partition: Partition, replica: int, wanted: tuple[int, int, int], now: float, start: int, broker_epoch: int
) -> tuple[object, bool]:
    asked = WantedPartition("t", 0, wanted[0], 1000, wanted[1], wanted[2], start)
    outcome = idle_follower_fetched(partition, replica, asked, broker_epoch, now)
    if outcome is not None:
        return outcome, True
    return _usual_steps(partition, replica, wanted, now, start, broker_epoch)
