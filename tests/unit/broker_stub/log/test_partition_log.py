"""`PartitionLog`: appending, reading, cutting, keeping and closing."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from tests.unit.broker_stub.log.builders import (
    DIRECTORY,
    NOW,
    TP,
    append,
    batch,
    config,
    fill,
    from_producer,
    offsets,
    open_log,
)
from triokafka.broker_stub.log import PartitionLog
from triokafka.errors import (
    CorruptRecordError,
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
)
from triokafka.records import decode_records, encode_batch, iter_batches
from triokafka.structs import TopicPartition
from triokafka.world import FileSlice
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.power_cut import SyncFailure
from triokafka.world.system import RealWorld


def synced_storage() -> MemoryStorage:
    storage = MemoryStorage()
    storage.make_dirs("data")
    storage.sync_dir("")
    return storage


def test_new_log_is_created_without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may have thousands of logs, and their syncs would delay those of the metadata log."""
    storage = synced_storage()
    synced: list[str] = []
    monkeypatch.setattr(storage, "sync_dir", synced.append)
    monkeypatch.setattr(storage, "open", _Opener(storage.open, synced))
    log = open_log(storage, clean=False)
    assert (log.log_end_offset, log.recovery_point, synced) == (0, 0, [])


class _Opener:
    """Opens files that note their syncs."""

    def __init__(self, opener: Any, synced: list[str]) -> None:
        self._opener, self._synced = opener, synced

    def __call__(self, path: str, **options: Any) -> Any:
        file = self._opener(path, **options)
        file.sync = lambda: self._synced.append(path)
        return file


# Appending


def test_offsets_follow_each_other_and_are_patched_into_the_same_bytes() -> None:
    log = open_log(MemoryStorage())
    first = append(log, batch(b"a", b"b"), epoch=5)
    data = batch(b"c")
    second = append(log, data, epoch=5)
    assert (first.first_offset, first.last_offset, second.first_offset) == (0, 1, 2)
    assert log.log_end_offset == 3
    stored = log.read(2, 1000).records
    assert bytes(stored) == bytes(data)  # patched in place, not encoded anew
    (info,) = iter_batches(stored, check_crc=True)
    assert (info.base_offset, info.partition_leader_epoch) == (2, 5)


def test_a_read_only_buffer_is_left_as_it_was() -> None:
    log = open_log(MemoryStorage())
    append(log, batch(b"a"))
    data = bytes(batch(b"b"))
    append(log, data)
    assert next(iter_batches(data)).base_offset == 0
    assert offsets(log) == [0, 1]


def test_append_time_replaces_timestamps_when_the_topic_says_so() -> None:
    log = open_log(MemoryStorage(), config(message_timestamp_type="LogAppendTime"))
    info = append(log, batch(b"a", b"b", timestamp=5), now_ms=NOW + 77)
    assert info.log_append_time == NOW + 77
    records = decode_records(log.read(0, 1000).records, check_crc=True)
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(NOW + 77, 1), (NOW + 77, 1)]


def test_a_follower_takes_offsets_and_epochs_as_they_are_with_gaps() -> None:
    leader, follower = open_log(MemoryStorage()), open_log(MemoryStorage())
    fill(leader, 3)
    sent = bytes(leader.read(1, 10_000).records)
    follower.append_as_follower(sent + sent[:30])  # a fetch may end within a batch
    assert offsets(follower) == [1, 2]
    assert follower.leader_epochs.entries() == [(0, 1)]
    with pytest.raises(IllegalStateError):
        follower.append_as_follower(sent)


def test_a_full_segment_is_rolled_to_one_named_by_the_next_offset() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 40)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 1
    for base in bases:
        assert storage.exists(f"{DIRECTORY}/{base:020d}.log")
    assert all(segment.size <= 2_000 for segment in log.segments)
    assert offsets(log) == list(range(40))


def test_a_segment_is_rolled_when_its_records_span_segment_ms() -> None:
    """Record time counts, not the clock."""
    log = open_log(MemoryStorage(), config(segment_ms=60_000))
    append(log, batch(b"a", timestamp=NOW))
    append(log, batch(b"b", timestamp=NOW + 60_000), now_ms=NOW + 10**6)
    assert len(log.segments) == 1
    append(log, batch(b"c", timestamp=NOW + 60_001), now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_records_without_a_time_count_from_when_their_segment_was_begun() -> None:
    """By the clock; a segment without records is never too old."""
    log = open_log(MemoryStorage(), config(segment_ms=60_000))
    append(log, batch(b"a", timestamp=-1), now_ms=NOW + 60_000)
    append(log, batch(b"b", timestamp=-1), now_ms=NOW + 60_000)
    assert len(log.segments) == 1
    append(log, batch(b"c", timestamp=-1), now_ms=NOW + 60_001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    empty = open_log(MemoryStorage(), config(segment_ms=60_000))
    append(empty, batch(b"a", timestamp=-1), now_ms=NOW + 10**9)
    assert len(empty.segments) == 1


def test_segments_that_were_begun_together_are_not_rolled_together() -> None:
    """Each segment has its own random part of ``segment.jitter.ms``, also the first of a log."""

    def ages(log: PartitionLog, count: int) -> list[int]:
        found: list[int] = []
        for _ in range(count):
            begun, segments = NOW + 10**6 * len(found), len(log.segments)
            for age in range(0, 70_000, 1000):
                append(log, batch(b"x", timestamp=begun + age), now_ms=begun)
                if len(log.segments) > segments:
                    found.append(age)
                    break
            log.roll(now_ms=NOW)
        return found

    def new_log(partition: int, jitter: int) -> PartitionLog:
        tp = TopicPartition("orders", partition)
        jittery = config(segment_ms=60_000, segment_jitter_ms=jitter, segment_bytes=10**6, index_interval_bytes=10**6)
        return PartitionLog.open(MemoryStorage(), f"data/orders-{partition}", tp, jittery, now_ms=NOW)

    first = [ages(new_log(partition, 20_000), 1)[0] for partition in range(30)]
    assert all(40_000 < age <= 61_000 for age in first)
    assert len(set(first)) > 10
    assert len(set(ages(new_log(0, 20_000), 30))) > 10
    assert first == [ages(new_log(partition, 20_000), 1)[0] for partition in range(30)]  # after a restart as before
    assert ages(new_log(0, 0), 2) == [61_000, 61_000]


def test_offsets_that_an_index_cannot_hold_begin_a_segment() -> None:
    """Named by the first of them, which a follower is given."""
    log = open_log(MemoryStorage())
    gapped = [0, 2**31 - 1, 2**31, 2**33]
    for offset in gapped:
        log.append_as_follower(bytes(batch(b"v", base_offset=offset)))
    assert [segment.base_offset for segment in log.segments] == [0, 2**31, 2**33]
    assert offsets(log) == gapped


def test_a_full_index_rolls_the_segment() -> None:
    log = open_log(MemoryStorage(), config(segment_index_bytes=24, index_interval_bytes=0, segment_bytes=10**6))
    fill(log, 20)
    assert len(log.segments) > 1
    assert offsets(log) == list(range(20))


def test_an_index_names_the_last_offset_of_a_batch_every_so_many_bytes() -> None:
    """With where the batch begins, and the same after recovery."""
    storage = MemoryStorage()
    wide = config(segment_bytes=10**6, index_interval_bytes=200)
    log = open_log(storage, wide)
    starts: list[tuple[int, int]] = []
    for size in range(1, 40):
        starts.append((log.log_end_offset + 1, log.size))
        append(log, batch(b"a", bytes(size)))
    expected: list[tuple[int, int]] = []
    since = 0
    for (last_offset, start), (_, end) in zip(starts, [*starts[1:], (0, log.size)], strict=True):
        if since > 200:
            expected.append((last_offset, start))
            since = 0
        since += end - start
    assert log.active_segment.indexes.offsets.entries() == expected
    assert 10 < len(expected) < 20
    storage.kill()
    assert open_log(storage, wide).active_segment.indexes.offsets.entries() == expected


# Producers


def test_a_repeated_batch_gets_the_offsets_that_it_got_first() -> None:
    """Any of the last five, also after a restart without a clean stop."""
    storage = MemoryStorage()
    log = open_log(storage)
    for i in range(7):
        append(log, from_producer(b"x", b"y", sequence=2 * i))
    for i in (2, 6):
        again = append(log, from_producer(b"x", b"y", sequence=2 * i))
        assert (again.duplicate, again.first_offset, again.last_offset) == (True, 2 * i, 2 * i + 1)
    assert log.log_end_offset == 14
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, from_producer(b"x", b"y", sequence=2))  # six batches ago: the producer state no longer has it
    storage.kill()
    assert append(open_log(storage), from_producer(b"x", b"y", sequence=4)).duplicate


def test_a_gap_in_the_sequence_is_refused_and_changes_nothing() -> None:
    log = open_log(MemoryStorage())
    append(log, from_producer(b"a", sequence=0))
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, from_producer(b"b", sequence=2))
    append(log, from_producer(b"b", sequence=1))
    assert log.log_end_offset == 2


def test_an_old_epoch_is_fenced_and_a_new_one_begins_at_zero() -> None:
    log = open_log(MemoryStorage())
    append(log, from_producer(b"a", sequence=0, epoch=3))
    with pytest.raises(InvalidProducerEpochError):
        append(log, from_producer(b"b", sequence=1, epoch=2))
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, from_producer(b"b", sequence=1, epoch=4))
    append(log, from_producer(b"b", sequence=0, epoch=4))


def test_a_batch_is_the_same_only_from_its_first_sequence_to_its_last() -> None:
    log = open_log(MemoryStorage())
    append(log, from_producer(b"a", sequence=0))
    append(log, from_producer(b"b", b"c", sequence=1))
    for values, sequence in (((b"b",), 1), ((b"c",), 2), ((b"a", b"b", b"c"), 0)):
        with pytest.raises(OutOfOrderSequenceNumberError):
            append(log, from_producer(*values, sequence=sequence))
    assert append(log, from_producer(b"b", b"c", sequence=1)).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_the_first_batch_of_the_first_producer_counts_as_any_other(clean: bool) -> None:
    """Its id, epoch, sequence and offset are 0, after a restart as well."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, from_producer(b"a", sequence=0, producer_id=0))
    if clean:
        log.close()
    else:
        storage.kill()
    log = open_log(storage, clean=clean)
    again = append(log, from_producer(b"a", sequence=0, producer_id=0))
    assert (again.duplicate, again.first_offset, log.log_end_offset) == (True, 0, 1)
    for epoch, sequence in ((0, 2), (1, 1)):
        with pytest.raises(OutOfOrderSequenceNumberError):
            append(log, from_producer(b"b", sequence=sequence, producer_id=0, epoch=epoch))
    append(log, from_producer(b"b", sequence=0, producer_id=0, epoch=1))


def test_an_unknown_producer_may_continue_with_any_sequence() -> None:
    """Its records were deleted, or it was silent for long; modern Kafka accepts it (KIP-360)."""
    log = open_log(MemoryStorage())
    assert append(log, from_producer(b"a", sequence=500)).first_offset == 0


def test_sequences_wrap_to_zero() -> None:
    log = open_log(MemoryStorage())
    append(log, from_producer(b"a", b"b", sequence=2**31 - 2))
    append(log, from_producer(b"c", sequence=0))
    assert append(log, from_producer(b"a", b"b", sequence=2**31 - 2)).duplicate


def test_a_batch_whose_sequence_wraps_is_known_again_after_a_restart() -> None:
    """Its first sequence is above its last, in memory and in a snapshot."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, from_producer(b"a", b"b", b"c", sequence=2**31 - 2))
    log.close()
    log = open_log(storage, clean=True)
    assert append(log, from_producer(b"a", b"b", b"c", sequence=2**31 - 2)).duplicate
    append(log, from_producer(b"d", sequence=1))


@pytest.mark.parametrize("cleanly", [True, False])
def test_the_last_five_batches_are_known_again_after_a_restart(cleanly: bool) -> None:
    """All of them, of each producer: their answers may have been lost when the broker stopped."""
    storage = MemoryStorage()
    log = open_log(storage)
    for sequence in range(6):
        append(log, from_producer(b"a", sequence=sequence))
    append(log, from_producer(b"b", b"b", sequence=2**31 - 3, producer_id=10))
    append(log, from_producer(b"b", b"b", sequence=2**31 - 1, producer_id=10))
    append(log, from_producer(b"b", sequence=1, producer_id=10))
    append(log, from_producer(b"c", sequence=0, producer_id=11))
    if cleanly:
        log.close()
    else:
        log.roll(now_ms=NOW)  # with a snapshot, behind which there is nothing to read
        log.abandon()
    log = open_log(storage, clean=cleanly)
    for sequence in range(1, 6):
        again = append(log, from_producer(b"a", sequence=sequence))
        assert (again.duplicate, again.first_offset) == (True, sequence)
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, from_producer(b"a", sequence=0))
    again = append(log, from_producer(b"b", b"b", sequence=2**31 - 3, producer_id=10))
    assert (again.duplicate, again.first_offset) == (True, 6)
    again = append(log, from_producer(b"b", b"b", sequence=2**31 - 1, producer_id=10))
    assert (again.duplicate, again.first_offset) == (True, 8)
    append(log, from_producer(b"a", sequence=6))
    append(log, from_producer(b"b", sequence=2, producer_id=10))
    append(log, from_producer(b"c", sequence=1, producer_id=11))
    assert log.log_end_offset == 15


def test_only_the_last_five_batches_of_the_epoch_count() -> None:
    """A new epoch forgets those of the old one."""
    log = open_log(MemoryStorage())
    append(log, from_producer(b"a", sequence=0, epoch=0))
    append(log, from_producer(b"b", sequence=0, epoch=1))
    again = append(log, from_producer(b"b", sequence=0, epoch=1))
    assert (again.duplicate, again.first_offset) == (True, 1)
    with pytest.raises(InvalidProducerEpochError):
        append(log, from_producer(b"a", sequence=0, epoch=0))


def test_a_repeated_batch_has_the_append_time_of_the_first() -> None:
    """If the topic uses append times; otherwise there is none, as in the first answer."""
    for timestamp_type, stamped in (("LogAppendTime", NOW + 5), ("CreateTime", -1)):
        log = open_log(MemoryStorage(), config(message_timestamp_type=timestamp_type))
        first = append(log, from_producer(b"a", sequence=0), now_ms=NOW + 5)
        again = append(log, from_producer(b"a", sequence=0), now_ms=NOW + 99)
        assert (again.duplicate, again.log_append_time) == (True, first.log_append_time)
        assert again.log_append_time == stamped


def test_a_silent_producer_is_forgotten_after_its_expiration() -> None:
    """By the time of its newest record."""
    storage = MemoryStorage()
    log = open_log(storage, producer_expiration_ms=1000)
    append(log, from_producer(b"a", sequence=0))
    log.expire_producers(NOW + 999, 1000)
    assert len(log.producers) == 1
    log.expire_producers(NOW + 1000, 2000)
    assert len(log.producers) == 1
    log.expire_producers(NOW + 2000, 2000)
    assert len(log.producers) == 0
    assert append(log, from_producer(b"b", sequence=7)).first_offset == 1
    log.close()
    assert len(open_log(storage, clean=True, now_ms=NOW + 3000, producer_expiration_ms=1000).producers) == 0


# Reading


def test_a_read_returns_whole_batches_from_the_one_with_the_offset() -> None:
    log = open_log(MemoryStorage(), config(segment_bytes=10**6))
    sizes = []
    for _ in range(10):
        data = batch(b"a", b"b", b"c")
        sizes.append(len(data))
        append(log, data)
    result = log.read(4, sizes[0] * 2 + 5)
    assert [info.base_offset for info in iter_batches(result.records)] == [3, 6]
    assert len(result.records) == 2 * sizes[0]


@pytest.mark.parametrize("value_bytes", [20, 9_000])
def test_read_returns_all_batches_that_fit_its_limit(value_bytes: int) -> None:
    log_config = config(segment_bytes=100_000)
    storage = MemoryStorage()
    log = open_log(storage, log_config)
    fill(log, 5, size=value_bytes)
    log.close()
    size = storage.open(f"{DIRECTORY}/{0:020}.log", read_only=True).size() // 5
    for offset in range(5):
        for count in range(1, 6 - offset):
            for more in (0, 1, size - 1):
                log = open_log(storage, log_config)  # a new one does not know positions from earlier reads
                found = log.read(offset, count * size + more)
                assert (len(found.records), found.end_offset) == (count * size, offset + count), (offset, count, more)
                log.close()


def test_the_first_batch_is_whole_whatever_the_limit_says() -> None:
    """(KIP-74)"""
    log = open_log(MemoryStorage())
    fill(log, 2, size=300)
    assert len(list(iter_batches(log.read(0, 1).records))) == 1
    assert not len(log.read(0, 1, min_one_batch=False).records)


def test_a_read_stops_before_the_bound() -> None:
    """The log does not know the high watermark; its caller passes the bound."""
    log = open_log(MemoryStorage(), config(segment_bytes=10**6))
    fill(log, 10)
    assert [info.base_offset for info in iter_batches(log.read(2, 10**6, up_to_offset=5).records)] == [2, 3, 4]
    assert not len(log.read(5, 10**6, up_to_offset=5).records)
    assert not len(log.read(10, 10**6).records)


def test_a_record_is_found_without_reading_those_before_it() -> None:
    """The index leads to the batch; at most one index interval of headers is read."""
    storage = MemoryStorage()
    log = open_log(storage, config(segment_bytes=10**7, index_interval_bytes=4096))
    fill(log, 3_000, size=500)
    read: list[int] = []
    storage.before_operation = lambda operation, path, size: read.append(size) if operation == "read" else None
    for offset in (0, 7, 1_500, 2_990):
        read.clear()
        (info,) = iter_batches(log.read(offset, 1).records)
        assert info.base_offset == offset
        assert sum(read) < 20_000


def test_nothing_is_read_that_is_not_appended_yet() -> None:
    """This holds at every moment of an append, also when the append rolls the segment."""
    storage = MemoryStorage()
    log = open_log(storage, config(segment_bytes=400))
    looked, rolling = 0, 0

    def look(operation: str, path: str, size: int) -> None:
        nonlocal looked, rolling
        storage.before_operation = None
        end = log.log_end_offset
        assert offsets(log) == list(range(end))
        assert not len(log.read(end, 10**6).records)
        looked += 1
        rolling += operation == "open"
        storage.before_operation = look

    storage.before_operation = look
    for number in range(12):
        append(log, batch(b"%020d" % number))
        assert log.log_end_offset == number + 1
    assert looked > 12
    assert rolling > 3


def test_slice_read_for_sending_does_not_change(tmp_path: Path) -> None:
    """A piece of one segment's file, whatever is appended meanwhile."""
    storage, folder = RealWorld().storage, str(tmp_path / "orders-3")
    log = PartitionLog.open(storage, folder, TP, config(segment_bytes=10**6), now_ms=NOW)
    large = [batch(bytes([65 + number]) * 40_000) for number in range(2)]
    for data in large:
        append(log, data)
    found = log.read_to_send(0, 10**6, up_to_offset=2).records
    assert isinstance(found, FileSlice)
    assert len(found) == sum(map(len, large))
    append(log, batch(b"later"))
    assert [info.base_offset for info in iter_batches(found.read())] == [0, 1]
    log.roll(now_ms=NOW)
    append(log, batch(b"even later"))
    assert len(log.read_to_send(0, 10**6, up_to_offset=4).records) == log.segments[0].size
    log.close()


def test_a_read_continues_in_the_next_segment_where_its_own_has_nothing_left() -> None:
    """Offsets may be missing anywhere."""
    log = open_log(MemoryStorage(), config(cleanup_policy=("compact",)))
    for offset in (0, 7, 20):
        log.append_as_follower(bytes(batch(b"v", base_offset=offset)))
        if offset != 20:
            log.roll(now_ms=NOW)
    for asked, found in ((0, 0), (1, 7), (7, 7), (8, 20), (20, 20)):
        (info,) = iter_batches(log.read(asked, 10**6).records)
        assert info.base_offset == found
    assert not len(log.read(8, 10**6, up_to_offset=20).records)
    assert not len(log.read(21, 10**6).records)


def test_offsets_that_are_not_there_are_out_of_range() -> None:
    log = open_log(MemoryStorage())
    fill(log, 3)
    log.advance_log_start_offset(1)
    for offset in (0, 4):
        with pytest.raises(OffsetOutOfRangeError, match="orders-3 has offsets 1 to 3"):
            log.read(offset, 100)


def test_the_place_of_the_tail_is_remembered() -> None:
    """A consumer at the end causes one read for each fetch and no search."""
    storage = MemoryStorage()
    log = open_log(storage, config(segment_bytes=10**6))
    fill(log, 50)
    calls: list[str] = []
    storage.before_operation = lambda operation, path, size: calls.append(operation)
    log.read(49, 1000)
    assert calls == ["read"]


def test_bytes_between_equals_the_size_of_a_read() -> None:
    log = open_log(MemoryStorage())
    fill(log, 40)
    everything = log.size
    assert log.bytes_between(0, 40, 10**9) == everything
    assert log.bytes_between(0, 40, 100) == 100
    first = len(batch(b"%020d" % 0))
    assert log.bytes_between(3, 5, 10**9) == 2 * first
    assert log.bytes_between(40, 40, 10**9) == 0


# Time


def test_look_ups_by_time_find_the_record_inside_its_batch() -> None:
    log = open_log(MemoryStorage(), config(segment_bytes=400))
    for i in range(12):
        append(log, batch(b"a", b"b", timestamp=NOW + 10 * i), epoch=2)
    assert log.offset_for_timestamp(NOW + 31) == (7, NOW + 31, 2)
    assert log.offset_for_timestamp(NOW + 32) == (8, NOW + 40, 2)
    assert log.offset_for_timestamp(0) == (0, NOW, 2)
    assert log.offset_for_timestamp(NOW + 112) is None
    assert log.offset_for_timestamp(NOW + 31, up_to_offset=7) is None
    assert log.offset_of_max_timestamp() == (23, NOW + 111, 2)
    assert log.offset_of_max_timestamp(4) == (3, NOW + 11, 2)


def test_look_ups_by_time_agree_with_a_scan_when_time_goes_back() -> None:
    log = open_log(MemoryStorage(), config(segment_bytes=500))
    times = [(i * 7919) % 101 for i in range(60)]
    for time in times:
        append(log, batch(b"a", timestamp=NOW + time))
    for wanted in range(-1, 103):
        expected = next((i for i, time in enumerate(times) if time >= wanted), None)
        found = log.offset_for_timestamp(NOW + wanted)
        assert (found[0] if found else None) == expected


# Cutting


def test_truncation_gives_up_everything_from_the_offset_on() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 40)
    log.flush()
    log.truncate_to(17, now_ms=NOW)
    assert (log.log_end_offset, log.recovery_point) == (17, 17)
    assert offsets(log) == list(range(17))
    append(log, batch(b"new"), epoch=4)
    assert log.leader_epochs.entries() == [(0, 0), (4, 17)]
    storage.kill()
    assert offsets(open_log(storage, recovery_point=17)) == list(range(18))


def test_a_segment_that_was_cut_to_nothing_starts_over() -> None:
    """Records without a time count from the cut on."""
    log = open_log(MemoryStorage(), config(segment_ms=60_000))
    append(log, batch(b"a", timestamp=-1), now_ms=NOW)
    log.truncate_to(0, now_ms=NOW + 50_000)
    for age in (1, 60_000):
        append(log, batch(b"b", timestamp=-1), now_ms=NOW + 50_000 + age)
    assert len(log.segments) == 1
    append(log, batch(b"c", timestamp=-1), now_ms=NOW + 110_001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_after_a_truncation_no_old_place_is_believed() -> None:
    log = open_log(MemoryStorage(), config(segment_bytes=10**6))
    fill(log, 20)
    log.truncate_to(5, now_ms=NOW)
    append(log, batch(*[b"%d" % i for i in range(20)]))
    for offset in range(25):
        assert offsets(log, offset) == list(range(offset, 25))


def test_the_largest_time_is_forgotten_with_its_record() -> None:
    log = open_log(MemoryStorage(), config(retention_ms=1000))
    append(log, batch(b"a", timestamp=NOW))
    append(log, batch(b"b", timestamp=NOW + 3_000_000))
    log.truncate_to(1, now_ms=NOW)
    assert log.offset_of_max_timestamp() == (0, NOW, 0)
    assert log.apply_retention(NOW + 1001) == 1


def test_an_epoch_that_began_at_the_cut_is_gone() -> None:
    log = open_log(MemoryStorage())
    append(log, batch(b"a"), epoch=1)
    append(log, batch(b"b"), epoch=2)
    log.truncate_to(1, now_ms=NOW)
    assert log.leader_epochs.entries() == [(1, 0)]
    assert log.leader_epochs.end_offset_for(1, log.log_end_offset) == (1, 1)


def test_truncation_restores_the_producer_state() -> None:
    log = open_log(MemoryStorage())
    append(log, from_producer(b"a", sequence=0))
    append(log, from_producer(b"b", sequence=1))
    log.truncate_to(1, now_ms=NOW)
    assert not append(log, from_producer(b"c", sequence=1)).duplicate


def test_starting_afresh_leaves_an_empty_log_at_the_offset() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 40)
    log.truncate_fully_and_start_at(1000, now_ms=NOW)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (1000, 1000, 0)
    assert append(log, batch(b"a")).first_offset == 1000
    assert [name for name in storage.list_dir(DIRECTORY) if name.endswith(".log")] == ["00000000000000001000.log"]


def test_records_before_the_log_start_offset_are_gone_and_their_segments_follow() -> None:
    storage = MemoryStorage()
    log = open_log(storage, config(retention_ms=-1, file_delete_delay_ms=60_000))
    fill(log, 60)
    second = log.segments[1].base_offset
    log.advance_log_start_offset(second + 1)
    assert log.apply_retention(NOW + 60_000) == 1
    assert log.segments[0].base_offset == second
    assert offsets(log) == list(range(second + 1, 60))
    assert f"{0:020d}.log.deleted" in storage.list_dir(DIRECTORY)
    log.apply_retention(NOW + 120_000)
    assert not [name for name in storage.list_dir(DIRECTORY) if name.endswith(".deleted")]
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_log_start_offset(61)


@pytest.mark.parametrize("in_thread", [True, False])
def test_files_of_deleted_segments_are_removed_although_the_clock_moved_back(in_thread: bool) -> None:
    """Each is removed after its delay at the latest, and only once: a later file may have the same name."""
    storage = MemoryStorage()
    log = open_log(storage, config(retention_ms=-1, file_delete_delay_ms=60_000))
    fill(log, 120)
    for now_ms in (NOW + 3_600_000, NOW, NOW + 30_000):
        log.advance_log_start_offset(log.segments[1].base_offset)
        assert log.apply_retention(now_ms, remove_files=False) == 1
    assert len([name for name in storage.list_dir(DIRECTORY) if name.endswith(".log.deleted")]) == 3
    removed: list[str] = []
    for now_ms in (NOW + 60_000, NOW + 90_000):
        if in_thread:
            removed += log.take_files_to_delete(now_ms)
        else:
            log.apply_retention(now_ms)
    left = [name for name in storage.list_dir(DIRECTORY) if name.endswith(".log.deleted")]
    if in_thread:
        assert sorted(path for path in removed if path.endswith(".log.deleted")) == [f"{DIRECTORY}/{n}" for n in left]
    else:
        assert not left


def test_a_segment_goes_with_its_last_record_but_never_the_one_that_is_written_to() -> None:
    """Deleting all records leaves an empty log that continues at its end offset."""
    log = open_log(MemoryStorage(), config(retention_ms=-1))
    fill(log, 60)
    log.advance_log_start_offset(log.segments[1].base_offset)
    assert log.apply_retention(NOW) == 1
    active = log.active_segment
    log.advance_log_start_offset(60)
    log.apply_retention(NOW)
    assert log.segments == (active,)
    assert (log.log_start_offset, log.log_end_offset) == (60, 60)
    assert append(log, batch(b"a")).first_offset == 60


def test_retention_by_time_goes_by_the_newest_record_of_a_segment() -> None:
    log = open_log(MemoryStorage(), config(retention_ms=10_000))
    fill(log, 60)
    last = log.segments[0].indexes.max_timestamp
    assert log.apply_retention(last + 10_000) == 0
    assert log.apply_retention(last + 10_001) == 1
    dropped = log.apply_retention(NOW + 10**7)
    assert dropped >= 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (60, 60, 0)
    assert log.apply_retention(NOW + 10**9) == 0
    assert append(log, batch(b"a")).first_offset == 60


def test_records_without_a_timestamp_are_as_old_as_their_file() -> None:
    """This holds for all segments, also the active one, and after a restart."""
    storage, written = MemoryStorage(), {}
    log = open_log(storage, config(retention_ms=10_000))
    for number in range(60):
        at_ms = NOW + 1000 * number
        storage.wall_ms = lambda at_ms=at_ms: at_ms  # type: ignore[misc]
        append(log, batch(b"%020d" % number, timestamp=-1), now_ms=at_ms)
        written[log.active_segment.base_offset] = at_ms
    first, *_, active = log.segments
    assert first is not active
    assert (first.indexes.max_timestamp, log.offset_of_max_timestamp()) == (-1, None)
    assert log.apply_retention(written[first.base_offset] + 10_000) == 0
    log.close()
    log = open_log(storage, config(retention_ms=10_000), clean=True)
    assert log.apply_retention(written[first.base_offset] + 10_000) == 0
    assert log.apply_retention(written[first.base_offset] + 10_001) == 1
    log.apply_retention(written[active.base_offset] + 10_000)
    assert log.segments[0].base_offset == active.base_offset
    assert log.apply_retention(written[active.base_offset] + 10_001) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (60, 60, 0)


def test_age_of_a_segment_uses_its_only_timestamp() -> None:
    storage = MemoryStorage()
    storage.wall_ms = lambda: NOW
    log = open_log(storage, config(retention_ms=10_000))
    append(log, batch(b"a", timestamp=-1))
    append(log, batch(b"b", timestamp=NOW + 5_000))
    append(log, batch(b"c", timestamp=-1))
    assert log.apply_retention(NOW + 15_000) == 0
    assert log.apply_retention(NOW + 15_001) == 1


def test_a_file_whose_age_cannot_be_read_is_an_error_of_the_disk() -> None:
    storage = MemoryStorage()
    log = open_log(storage, config(retention_ms=10_000))
    append(log, batch(b"a", timestamp=-1))
    storage.inject(DiskFault("size", "*.log"))
    with pytest.raises(KafkaStorageError, match="retention"):
        log.apply_retention(NOW)


def test_retention_by_size_leaves_at_least_the_size() -> None:
    log = open_log(MemoryStorage(), config(retention_bytes=3_000, retention_ms=-1))
    fill(log, 100)
    smallest = min(segment.size for segment in log.segments[:-1])
    log.apply_retention(NOW)
    assert 3_000 <= log.size < 3_000 + 2_000
    assert log.size - smallest < 3_000 or log.size - log.segments[0].size < 3_000


def test_retention_by_size_drops_the_oldest_when_just_as_much_stays() -> None:
    """With a limit of 0 nothing stays."""
    for missing, dropped in ((1, 0), (0, 1)):
        log = open_log(MemoryStorage())
        fill(log, 60)
        rest = log.size - log.segments[0].size
        log.update_config(config(retention_bytes=rest + missing, retention_ms=-1))
        assert log.apply_retention(NOW) == dropped
    log.update_config(config(retention_bytes=0, retention_ms=-1))
    log.apply_retention(NOW)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (60, 60, 0)


def test_a_segment_that_compaction_has_emptied_does_not_keep_those_behind_it() -> None:
    """Under ``compact,delete``."""
    storage = MemoryStorage()
    storage.wall_ms = lambda: NOW + 10**6
    log = open_log(storage, config(retention_ms=10_000, cleanup_policy=("compact", "delete")))
    fill(log, 10)
    log.roll(now_ms=NOW)
    log.skip_to(100, now_ms=NOW)
    append(log, batch(b"a", timestamp=NOW + 10_000))
    log.roll(now_ms=NOW)
    append(log, batch(b"b", timestamp=NOW + 10**6))
    assert [segment.size > 0 for segment in log.segments] == [True, False, True, True]
    assert log.apply_retention(NOW + 20_001) == 3
    assert offsets(log) == [101]


def test_retention_keeps_uncommitted_records() -> None:
    log = open_log(MemoryStorage(), config(retention_ms=0))
    fill(log, 60)
    middle = log.segments[1].base_offset
    log.apply_retention(NOW + 10**7, up_to_offset=middle + 1)
    assert log.log_start_offset == middle


def test_a_compacted_topic_keeps_old_segments() -> None:
    log = open_log(MemoryStorage(), config(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0))
    fill(log, 60)
    assert log.apply_retention(NOW + 10**7) == 0


# The disk


def test_a_full_disk_refuses_the_append_and_nothing_else() -> None:
    """No acknowledged record is lost, and the log takes records again when the disk has room."""
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 5)
    size = log.size
    storage.capacity = 0
    storage.capacity = size + 30  # the batch is cut in the middle
    with pytest.raises(KafkaStorageError, match="no space left"):
        append(log, from_producer(b"x" * 50, sequence=0))
    assert (log.log_end_offset, log.size) == (5, size)
    assert storage.open(f"{DIRECTORY}/{0:020d}.log").size() == size
    assert offsets(log) == list(range(5))
    storage.capacity = None
    assert not append(log, from_producer(b"x" * 50, sequence=0)).duplicate
    storage.kill()
    assert offsets(open_log(storage)) == list(range(6))


def test_a_failed_removal_of_half_a_write_is_repeated() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 2)
    storage.inject(DiskFault("write", "*.log", errno.EIO, times=1, partial=200))
    storage.inject(DiskFault("truncate", "*.log", errno.EIO, times=1))
    with pytest.raises(KafkaStorageError):
        append(log, batch(b"x" * 300))
    append(log, batch(b"y"))
    assert storage.open(f"{DIRECTORY}/{0:020d}.log").size() == log.size
    storage.kill()
    assert offsets(open_log(storage)) == [0, 1, 2]


@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_is_not_left_with_half_a_write_at_its_end(clean: bool) -> None:
    """That segment is not written again, nor checked by a start after a clean stop: readers would get the half."""
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 2)
    lost = batch(b"never", b"there") + batch(b"x" * 300)
    storage.inject(DiskFault("write", "*.log", errno.ENOSPC, times=1, partial=200))
    heal = storage.inject(DiskFault("truncate", "*.log", errno.EIO))
    with pytest.raises(KafkaStorageError):
        append(log, lost, from_client=False)
    with pytest.raises(KafkaStorageError):
        log.roll(now_ms=NOW)
    heal()
    log.roll(now_ms=NOW)
    fill(log, 2)
    if clean:
        log.close()
    else:
        storage.kill()
    again = open_log(storage, clean=clean, recovery_point=4 if clean else 0)
    assert offsets(again) == [0, 1, 2, 3]
    assert [r.value for r in decode_records(again.read(0, 10_000).records)] == [b"%020d" % i for i in range(2)]


def test_a_failed_roll_leaves_the_log_in_its_old_segment() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 3)
    storage.inject(DiskFault("open", f"*{3:020d}.log", errno.ENOSPC, times=1))
    with pytest.raises(KafkaStorageError):
        log.roll(now_ms=NOW)
    fill(log, 1)
    log.roll(now_ms=NOW)
    assert offsets(log) == [0, 1, 2, 3]
    assert [segment.base_offset for segment in log.segments] == [0, 4]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_marker_is_not_appended_without_the_transaction_that_it_aborts(damaged: bool) -> None:
    """Its index is read before the marker is written, and rebuilt if necessary."""
    storage = MemoryStorage()
    log = open_log(storage)
    marker = (b"\0\0\0\0", b"\0\0\0\0\0\5")
    options: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}

    def abort() -> None:
        data = bytearray(encode_batch([(NOW, *marker, ())], control=True, **options))
        append(log, data, from_client=False)

    append(log, batch(b"a", base_sequence=0, **options))
    abort()
    append(log, batch(b"b", base_sequence=1, **options))
    log.close()
    path = log.active_segment.file.path(".txnindex")
    log = open_log(storage, clean=True)
    if damaged:
        file = storage.open(path)
        file.truncate(10)
        file.close()
    else:
        storage.inject(DiskFault("open", "*.txnindex", errno.EMFILE, times=1))
        with pytest.raises(KafkaStorageError):
            abort()
        assert log.log_end_offset == 3
    abort()
    assert [entry.first_offset for entry in log.aborted_transactions(0, 4)] == [0, 2]


def test_a_failed_sync_is_not_tried_again() -> None:
    """The next sync would succeed, although the failed one may have lost data."""
    storage = synced_storage()
    log = open_log(storage)
    fill(log, 3)
    storage.inject(DiskFault("sync", "*.log", times=1))
    with pytest.raises(KafkaStorageError):
        log.flush()
    assert log.recovery_point == 0
    for action in (log.flush, log.close, lambda: fill(log, 1), lambda: log.read(0, 100)):
        with pytest.raises(KafkaStorageError, match="is offline"):
            action()
    assert log.recovery_point == 0
    assert offsets(open_log(storage)) == [0, 1, 2]


@pytest.mark.parametrize("offset", [2, 7])
def test_a_cut_whose_sync_has_lost_records_takes_the_log_offline(offset: int) -> None:
    """Reads may return anything then, which must not hide the error of the disk."""
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 5)
    storage.inject(DiskFault("sync", "*.log", errno.EIO, times=1, pages=SyncFailure.DROPPED))
    with pytest.raises(KafkaStorageError, match="truncation"):
        if offset < 5:
            log.truncate_to(offset)
        else:
            log.truncate_fully_and_start_at(offset)
    with pytest.raises(KafkaStorageError, match="offline"):
        append(log, batch(b"x"))


def test_a_flush_that_was_given_up_is_done_by_the_next_one() -> None:
    """A cancelled task never executes its prepared operation."""
    storage = synced_storage()
    log = open_log(storage)
    fill(log, 60)
    assert log.begin_flush() is not None
    fill(log, 1)
    log.flush()
    storage.crash(random.Random(0), tear=False)
    assert offsets(open_log(storage, recovery_point=61)) == list(range(61))


def test_a_flush_that_could_not_write_an_index_is_done_by_the_next_one() -> None:
    """It flushes everything, also the segments before the one whose index did not fit on the disk."""
    storage = synced_storage()
    log = open_log(storage)
    fill(log, 60)
    storage.inject(DiskFault("open", f"*{log.active_segment.base_offset:020d}.index", errno.ENOSPC, times=1))
    with pytest.raises(KafkaStorageError):
        log.flush()
    log.flush()
    assert log.recovery_point == 60
    storage.crash(random.Random(0), tear=False)
    assert offsets(open_log(storage, recovery_point=60)) == list(range(60))


def test_every_flush_makes_the_names_of_new_segments_durable() -> None:
    storage = synced_storage()
    log = open_log(storage)
    fill(log, 3)
    log.flush()
    log.roll(now_ms=NOW)
    fill(log, 3)
    log.flush()
    storage.crash(random.Random(0), tear=False)
    assert offsets(open_log(storage, recovery_point=6)) == list(range(6))


def test_a_cut_that_comes_upon_damage_takes_the_log_offline() -> None:
    """The end of the log is unknown then: the next records would get offsets after a gap."""
    storage = MemoryStorage()
    log = open_log(storage, config(segment_bytes=10**6, index_interval_bytes=200))
    fill(log, 20)
    (before, _), (last, _) = log.active_segment.indexes.offsets.entries()[1:3]
    between = next(info for info in log.active_segment.file.headers() if info.base_offset > before)
    assert between.last_offset < last
    log.active_segment.file.handle.write_at(between.position + 8, b"\0\0\0\1")  # its size
    with pytest.raises(CorruptRecordError):
        log.truncate_to(last)
    with pytest.raises(KafkaStorageError, match="offline"):
        append(log, batch(b"x"))
    storage.kill()
    assert offsets(open_log(storage)) == list(range(between.base_offset))


def test_a_flush_syncs_the_log_and_its_indexes_and_nothing_twice() -> None:
    storage = synced_storage()
    log = open_log(storage, config(segment_bytes=10**6))
    fill(log, 20)
    synced: list[str] = []
    storage.before_operation = lambda operation, path, size: synced.append(path) if operation == "sync" else None
    log.flush()
    assert {path.rpartition(".")[2] for path in synced if f"{0:020d}" in path} == {"log", "index", "timeindex"}
    synced.clear()
    log.flush()
    assert synced == []


def test_flush_messages_syncs_by_count() -> None:
    log = open_log(MemoryStorage(), config(flush_messages=3))
    fill(log, 2)
    assert log.recovery_point == 0
    fill(log, 1)
    assert log.recovery_point == 3


def test_flush_ms_is_due_from_the_oldest_unsynced_record_on() -> None:
    log = open_log(MemoryStorage(), config(flush_ms=500))
    assert not log.flush_due(NOW + 10**6)
    append(log, batch(b"a"), now_ms=NOW)
    append(log, batch(b"b"), now_ms=NOW + 400)
    assert not log.flush_due(NOW + 499)
    assert log.flush_due(NOW + 500)
    log.flush()
    assert not log.flush_due(NOW + 10**6)


def test_a_clock_that_is_put_back_puts_off_no_flush() -> None:
    log = open_log(MemoryStorage(), config(flush_ms=500))
    append(log, batch(b"a"), now_ms=NOW)
    assert log.flush_due(NOW - 3_600_000)


def test_a_flush_that_is_overtaken_by_a_truncation_promises_nothing() -> None:
    log = open_log(MemoryStorage())
    fill(log, 5)
    job = log.begin_flush()
    assert job is not None
    log.truncate_to(2, now_ms=NOW)
    fill(log, 3)
    job.run()
    log.flushed(job)
    assert log.recovery_point <= 2


def test_sealed_segments_can_be_flushed_alone() -> None:
    log = open_log(MemoryStorage())
    fill(log, 60)
    job = log.begin_flush(sealed_only=True)
    assert job is not None
    job.run()
    log.flushed(job)
    assert log.recovery_point == log.active_segment.base_offset
    assert log.begin_flush(sealed_only=True) is None


def test_a_clean_stop_needs_no_reading_at_the_next_start() -> None:
    """Also the state of producers is there."""
    storage = synced_storage()
    log = open_log(storage)
    fill(log, 60)
    append(log, from_producer(b"a", sequence=0, timestamp=NOW))
    log.close()
    log.close()
    with pytest.raises(KafkaStorageError, match="is closed"):
        append(log, batch(b"a"))
    sizes: list[int] = []
    storage.before_operation = lambda operation, path, size: sizes.append(size) if path.endswith(".log") else None
    log = open_log(storage, clean=True)
    assert sum(sizes) < 1_000  # the end of the active segment
    assert (log.log_end_offset, log.recovery_point) == (61, 61)
    assert append(log, from_producer(b"a", sequence=0)).duplicate


def test_a_log_that_was_changed_behind_the_broker_is_recovered_though_it_was_closed() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 5)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    file = storage.open(path)
    file.write_at(file.size(), b"\0" * 30)
    assert offsets(open_log(storage, clean=True)) == list(range(5))


def test_deleting_removes_the_folder() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 60)
    log.delete()
    assert not storage.exists(DIRECTORY)


def test_a_directory_that_cannot_be_written_says_which() -> None:
    storage = MemoryStorage()
    storage.inject(DiskFault("open", "*/orders-3/*", errno.EACCES))
    with pytest.raises(KafkaStorageError, match="orders-3 in data/orders-3 cannot be opened"):
        PartitionLog.open(storage, DIRECTORY, TP, config(), now_ms=NOW)
