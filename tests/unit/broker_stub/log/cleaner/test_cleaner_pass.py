"""One pass over a log: which records stay, which go, and how segments are grouped."""

from __future__ import annotations

import random

import pytest

from tests.unit.broker_stub.log.builders import DIRECTORY, NOW, TP, append, batch
from tests.unit.broker_stub.log.cleaner.logs import (
    RETENTION,
    batches,
    clean,
    compacted,
    compacted_log,
    end_transaction,
    put,
    records,
)
from triokafka.broker_stub.log import PartitionLog
from triokafka.broker_stub.log.cleaner.cleaner_pass import CleanerPass, group_segments
from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.records.batch import DELETE_HORIZON
from triokafka.world.memory import DiskFault, MemoryStorage


def records_of(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(offset, key) for offset, key, _ in records(log)]


# What stays


def test_only_the_last_record_of_a_key_stays_at_its_offset() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    for number in range(30):
        put(log, (b"k%d" % (number % 4), b"%d" % number))
    stats = clean(log, storage)
    assert records(log) == [(26 + i, b"k%d" % (26 % 4 + i if i < 2 else i - 2), b"%d" % (26 + i)) for i in range(4)]
    assert (stats.counts.records_read, stats.counts.records_kept, stats.end_offset) == (30, 4, 30)
    assert stats.bytes_read > stats.bytes_written > 0


def test_rewritten_segment_is_as_old_as_the_last_that_it_replaces() -> None:
    """Otherwise each cleaning would make records without a timestamp new again."""
    storage, clock = MemoryStorage(), [NOW]
    storage.wall_ms = lambda: clock[0]
    log = compacted_log(storage, cleanup_policy=("compact", "delete"), retention_ms=10_000)
    for number in range(30):
        clock[0] = NOW + number
        append(log, batch(b"v", key=b"k%d" % (number % 4), timestamp=-1))
    clock[0] = NOW + 9_000
    clean(log, storage, now_ms=clock[0])
    assert log.segments[-2].indexes.age_counts_from_ms == NOW + 29
    log.apply_retention(NOW + 10_029)
    assert [offset for offset, *_ in records(log)] == [26, 27, 28, 29]
    log.apply_retention(NOW + 10_030)
    assert records(log) == []


def test_batch_of_which_everything_stays_is_not_touched() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"), (b"b", b"2"), compression="gzip")
    put(log, (b"c", b"3"))
    put(log, (b"c", b"4"))
    before = bytes(log.read(0, 1).records)
    clean(log, storage)
    assert bytes(log.read(0, 1).records) == before


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_batch_larger_than_a_read_step_is_cleaned(codec: str) -> None:
    storage = MemoryStorage()
    log = compacted_log(storage, segment_bytes=4_000_000, max_message_bytes=4_000_000)
    noise = random.Random(1).randbytes(700_000)
    put(log, (b"a", noise), (b"b", noise), compression=codec)
    put(log, (b"a", b"new"))
    clean(log, storage, step_bytes=1)
    assert records_of(log) == [(1, b"b"), (2, b"a")]
    assert records(log)[0][2] == noise


def test_record_in_the_middle_of_a_compressed_batch_goes_alone() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), compression="zstd")
    put(log, (b"b", b"4"))
    clean(log, storage)
    assert records(log) == [(0, b"a", b"1"), (2, b"c", b"3"), (3, b"b", b"4")]
    first = batches(log)[0]
    assert (first.base_offset, first.last_offset, first.compression, first.record_count) == (0, 2, "zstd", 2)


def test_rewritten_batch_gets_the_codec_of_the_topic() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage, compression_type="lz4")
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"b", b"3"))
    clean(log, storage)
    assert batches(log)[0].compression == "lz4"


def test_record_without_key_goes_and_is_counted() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage, cleanup_policy=("delete",))
    put(log, (None, b"1"), (b"a", b"2"))
    log.update_config(compacted())
    stats = clean(log, storage)
    assert records(log) == [(1, b"a", b"2")]
    assert stats.counts.keyless == 1


def test_last_batch_of_a_pass_stays_without_its_records() -> None:
    """Or a crash could forget the offsets."""
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"))
    aborted = put(log, (b"b", b"2"), producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(now_ms=NOW)
    end_transaction(log, 3, commit=False)
    log.producers.clear()
    clean(log, storage, end=aborted + 1)
    assert [(info.base_offset, info.record_count) for info in batches(log)][:2] == [(0, 1), (1, 0)]


def test_active_segment_is_not_cleaned() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"))
    log.roll(now_ms=NOW)
    put(log, (b"a", b"2"))
    cleaning = CleanerPass(storage, log, first_dirty=0, end=log.active_segment.base_offset, now_ms=NOW)
    assert all(type(step).__name__ == "CleanerProgress" for step in cleaning.steps())
    assert records_of(log) == [(0, b"a"), (1, b"a")]
    assert not [name for name in storage.list_dir(DIRECTORY) if name.endswith(".cleaned")]


# Memory


def test_pass_ends_when_the_keys_do_not_fit_and_the_next_one_continues_there() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    for number in range(40):
        put(log, *((b"k%d" % (number % 20), b"%d" % number) for _ in range(1)))
    ends, first_dirty = [], 0
    while first_dirty < 40:
        first_dirty = clean(log, storage, first_dirty=first_dirty, map_bytes=7 * 24, load_factor=1.0).end_offset
        ends.append(first_dirty)
        found = [key for offset, key in records_of(log) if offset < first_dirty]
        assert len(found) == len(set(found))
    assert ends[:2] == [6, 12]
    assert records_of(log) == [(20 + i, b"k%d" % i) for i in range(20)]


def test_smallest_memory_still_comes_forward_within_a_batch() -> None:
    """A batch with more keys than fit into memory does not stop the cleaner for ever."""
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, *((b"k%d" % number, b"x") for number in range(8)))
    put(log, *((b"k%d" % number, b"y") for number in range(8)))
    first_dirty, passes = 0, 0
    while first_dirty < 16:
        first_dirty = clean(log, storage, first_dirty=first_dirty, map_bytes=0).end_offset
        passes += 1
    assert passes < 16
    assert records(log) == [(8 + number, b"k%d" % number, b"y") for number in range(8)]


# Tombstones


def test_tombstone_stays_for_delete_retention_after_its_first_cleaning() -> None:
    """(KIP-534)"""
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None), (b"c", b"3"))
    assert clean(log, storage, now_ms=NOW + 5).end_offset == 4
    assert records(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]
    horizon = batches(log)[1]
    assert horizon.attributes & DELETE_HORIZON
    assert horizon.base_timestamp == NOW + 5 + RETENTION

    def clean_again(now_ms: int) -> list[tuple[int, bytes | None]]:
        start = put(log, (b"z", b"x"), now_ms=now_ms)
        clean(log, storage, first_dirty=start, now_ms=now_ms)
        return records_of(log)[:-1]

    assert clean_again(NOW + 4 + RETENTION) == [(1, b"b"), (2, b"a"), (3, b"c")]
    assert batches(log)[1].base_timestamp == NOW + 5 + RETENTION, "the horizon is set once"
    assert clean_again(NOW + 5 + RETENTION) == [(1, b"b"), (3, b"c")]


def test_tombstone_that_a_pass_did_not_come_to_gets_no_horizon() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"c", None))
    assert clean(log, storage, map_bytes=0).end_offset == 2
    assert not batches(log)[1].attributes & DELETE_HORIZON


# Producers and transactions


def test_last_batch_of_a_known_producer_stays_empty_and_recovery_finds_its_sequence() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=1, base_sequence=0)
    put(log, (b"a", b"3"), producer_id=7, producer_epoch=1, base_sequence=2)
    put(log, (b"a", b"4"))
    clean(log, storage)
    assert [(info.base_offset, info.record_count, info.producer_id) for info in batches(log)] == [(2, 0, 7), (3, 1, -1)]
    log.abandon()
    for name in storage.list_dir(DIRECTORY):
        if name.endswith(".snapshot"):
            storage.remove(f"{DIRECTORY}/{name}")
    recovered = PartitionLog.open(storage, DIRECTORY, TP, compacted(), now_ms=NOW)
    state = recovered.producers.get(7)
    assert state is not None
    assert (state.epoch, state.last_sequence) == (1, 2)


def test_batch_of_a_producer_that_is_not_known_any_more_goes() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=1, base_sequence=0)
    put(log, (b"a", b"2"))
    log.producers.clear()
    clean(log, storage)
    assert [info.base_offset for info in batches(log)] == [1]


def test_records_of_aborted_transactions_go_at_once_and_do_not_hide_older_ones() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    put(log, (b"a", b"old"))
    put(log, (b"a", b"aborted"), producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 3, commit=False)
    clean(log, storage)
    assert records(log) == [(0, b"a", b"old")]


def test_abort_marker_and_its_index_entry_stay_while_a_batch_of_the_transaction_does() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    first = put(log, (b"a", b"x"), producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    marker = end_transaction(log, 3, commit=False)
    now = NOW
    for _ in range(3):
        now += RETENTION
        put(log, (b"z", b"z"), now_ms=now)
        clean(log, storage, now_ms=now)
        aborted = log.aborted_transactions(0, log.log_end_offset)
        assert [(entry.first_offset, entry.last_offset) for entry in aborted] == [(first, marker)]
        assert [info.base_offset for info in batches(log)][:2] == [first, marker]
    log.producers.clear()  # the producer state is no longer needed
    left = []
    for _ in range(3):
        now += RETENTION
        put(log, (b"z", b"z"), now_ms=now)
        clean(log, storage, now_ms=now)
        left.append([info.base_offset for info in batches(log)][:-1])
    # The data; then, a retention after the marker was seen to be of no use, the marker.
    assert left == [[marker], [marker], []]
    assert log.aborted_transactions(0, log.log_end_offset) == []


def test_commit_marker_goes_after_the_last_record_of_its_transaction() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    first = put(log, (b"a", b"x"), producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    marker = end_transaction(log, 3, commit=True)
    log.producers.clear()
    now, left = NOW, []
    for number in range(4):
        put(log, (b"a" if number else b"b", b"z"), now_ms=now)
        clean(log, storage, now_ms=now)
        left.append([offset for offset in (info.base_offset for info in batches(log)) if offset <= marker])
        now += RETENTION
    assert left == [[first, marker], [marker], [marker], []]


# Segments


def test_small_segments_are_put_together_within_the_limits() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    for number in range(60):
        put(log, (b"k%d" % (number % 6), b"x" * 40))
    before = len(log.segments)
    clean(log, storage)
    put(log, (b"z", b"z"))
    stats = clean(log, storage, first_dirty=60)
    assert len(log.segments) <= before // 3
    assert stats.segments_before > stats.segments_after
    assert all(segment.size <= 600 for segment in log.segments)
    assert records_of(log) == [(54 + i, b"k%d" % i) for i in range(6)] + [(60, b"z")]


def test_groups_keep_to_bytes_index_entries_and_offset_range() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    for number in range(40):
        put(log, (b"%d" % number, b"x" * 40))
    sealed = list(log.segments[:-1])
    sizes = [segment.size for segment in sealed]
    ends = {a.base_offset: b.base_offset for a, b in zip(log.segments, log.segments[1:], strict=False)}
    everything = compacted(segment_bytes=10**9)
    assert [len(group) for group in group_segments(sealed, ends, everything)] == [len(sealed)]
    two = compacted(segment_bytes=sizes[0] + sizes[1])
    assert {len(group) for group in group_segments(sealed, ends, two)} == {2, len(sealed) % 2 or 2}
    narrow = compacted(segment_bytes=10**9, segment_index_bytes=100)
    assert all(len(group) == 1 for group in group_segments(sealed, ends, narrow))
    far = {**ends, sealed[2].base_offset: sealed[0].base_offset + 2**31 + 1}
    assert len(group_segments(sealed, far, everything)[0]) == 2


# Trouble


def test_damaged_batch_ends_the_pass_and_nothing_is_lost() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    for number in range(20):
        put(log, (b"k%d" % (number % 3), b"x" * 40))
    second = log.segments[1]
    file = storage.open(second.file.path(".log"))
    file.write_at(second.size - 3, b"?")
    with pytest.raises(CorruptRecordError):
        clean(log, storage)
    assert second in log.segments
    assert not [name for name in storage.list_dir(DIRECTORY) if name.endswith(".cleaned")]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_failing_disk_ends_the_pass_and_the_log_continues(operation: str) -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    for number in range(20):
        put(log, (b"k%d" % (number % 3), b"x" * 40))
    take_back = storage.inject(DiskFault(operation, "*.cleaned"))
    with pytest.raises(OSError, match="injected"):
        clean(log, storage)
    take_back()
    assert {offset for offset, _ in records_of(log)} >= {17, 18, 19}
    put(log, (b"z", b"z"))
    clean(log, storage)
    assert [offset for offset, _ in records_of(log)] == [17, 18, 19, 20]


def test_log_that_is_closed_meanwhile_ends_the_pass() -> None:
    storage = MemoryStorage()
    log = compacted_log(storage)
    for number in range(20):
        put(log, (b"k%d" % (number % 3), b"x" * 40))
    cleaning = CleanerPass(storage, log, first_dirty=0, end=log.active_segment.base_offset, now_ms=NOW)
    steps = cleaning.steps()
    next(steps)
    log.abandon()
    with pytest.raises(KafkaStorageError):
        list(steps)


class PowerCutError(BaseException):
    pass


def test_power_cut_at_every_operation_of_a_pass_leaves_the_old_records_or_the_new_ones() -> None:

    def prepared() -> tuple[MemoryStorage, PartitionLog]:
        storage = MemoryStorage()
        storage.make_dirs("data")
        storage.sync_dir("")
        log = compacted_log(storage)
        for number in range(36):
            key = b"k%d" % (number % 5)
            value = None if number % 5 == 1 else b"%d" % number
            producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number // 3} if number % 3 == 0 else {}
            put(log, (key, value), **producer)
        log.roll(now_ms=NOW)
        log.flush()
        return storage, log

    storage, log = prepared()
    operations = 0

    def count(operation: str, path: str, size: int) -> None:
        nonlocal operations
        operations += 1

    everything = records(log)
    storage.before_operation = count
    clean(log, storage)
    storage.before_operation = None
    survivors = records(log)
    last_sequence = log.producers.get(7).last_sequence  # type: ignore[union-attr]
    assert operations > 100

    for cut_at in range(operations):
        storage, log = prepared()
        left = cut_at

        def cut(operation: str, path: str, size: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCutError

        storage.before_operation = cut
        with pytest.raises(PowerCutError):
            clean(log, storage)
        storage.before_operation = None
        storage.crash(random.Random(cut_at))
        recovered = PartitionLog.open(
            storage, DIRECTORY, TP, compacted(), now_ms=NOW, recovery_point=log.recovery_point
        )
        found = records(recovered)
        assert set(found) <= set(everything), cut_at
        assert set(survivors) <= set(found), cut_at
        assert [offset for offset, _, _ in found] == sorted(offset for offset, _, _ in found)
        assert recovered.log_end_offset == 36
        state = recovered.producers.get(7)
        assert state is not None
        assert state.last_sequence == last_sequence
        clean(recovered, storage)
        assert records(recovered) == survivors, cut_at
        recovered.abandon()


def test_tombstones_may_stay_for_ever() -> None:
    """With the largest possible ``delete.retention.ms``."""
    storage = MemoryStorage()
    log = compacted_log(storage, delete_retention_ms=2**63 - 1)
    put(log, (b"k", b"v"))
    put(log, (b"k", None))
    clean(log, storage)
    clean(log, storage, now_ms=NOW + 10**12)
    assert records(log) == [(1, b"k", None)]
