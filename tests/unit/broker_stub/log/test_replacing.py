"""Putting compacted segments in the place of others, with a crash at every step."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.unit.broker_stub.log.builders import DIRECTORY, NOW, batch, config, fill, offsets, open_log
from triokafka.broker_stub.log import PartitionLog
from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.errors import IllegalStateError, KafkaStorageError
from triokafka.records import iter_batches
from triokafka.world.memory import DiskFault, MemoryStorage

COUNT = 80  # records: four segments
COMPACTED = config(cleanup_policy=("compact",))


class _PowerCutError(Exception):
    pass


def stored() -> tuple[MemoryStorage, PartitionLog]:
    storage = MemoryStorage()
    storage.make_dirs("data")
    storage.sync_dir("")
    log = open_log(storage, COMPACTED)
    fill(log, COUNT)
    log.flush()
    return storage, log


def cleaned(log: PartitionLog, base_offset: int, kept: Sequence[int], storage: MemoryStorage) -> LogSegment:
    """Return a segment with one batch for each of the offsets ``kept``."""
    segment = log.new_cleaned_segment(base_offset, OpenFiles(storage), now_ms=NOW)
    for offset in kept:
        data = batch(b"kept", base_offset=offset)
        segment.append(list(iter_batches(data)), data)
    return segment


def replace(storage: MemoryStorage, log: PartitionLog, *, split: bool) -> list[int]:
    """Replace the first three segments by one, or by two; returns the offsets that are there then."""
    old = log.segments[:3]
    middle, end = old[1].base_offset, log.segments[3].base_offset
    kept = [[3, middle - 1], [middle + 2, end - 1]] if split else [[3, end - 1]]
    new = [cleaned(log, base, offsets, storage) for base, offsets in zip((0, middle), kept, strict=False)]
    log.replace_segments(old, new, now_ms=NOW)
    return [*(offset for part in kept for offset in part), *range(end, COUNT)]


def test_disk_error_during_segment_creation_is_not_reported_from_the_cleaner_thread() -> None:
    """It is done in the thread of the cleaner, where nothing of the broker may be touched."""
    storage = MemoryStorage()
    errors_seen: list[OSError] = []
    log = open_log(storage, COMPACTED, disk_failed=errors_seen.append)
    storage.inject(DiskFault("open", "*.cleaned"))
    with pytest.raises(OSError, match="injected fault"):
        log.new_cleaned_segment(0, OpenFiles(storage), now_ms=NOW)
    assert not errors_seen
    fill(log, 1)


@pytest.mark.parametrize("split", [False, True])
def test_new_segments_take_the_place_of_old_ones(split: bool) -> None:
    """Offsets of what stays do not change, and old files go after the delay."""
    storage, log = stored()
    bases = [segment.base_offset for segment in log.segments]
    expected = replace(storage, log, split=split)
    assert offsets(log) == expected
    assert [segment.base_offset for segment in log.segments] == [0, *(bases[1:2] if split else []), bases[3]]
    assert (log.log_start_offset, log.log_end_offset) == (0, COUNT)
    names = storage.list_dir(DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert len([name for name in names if name.endswith(".log.deleted")]) == 3
    assert len([name for name in names if name.endswith(".snapshot")]) == 1 + split
    log.apply_retention(NOW + log.config.file_delete_delay_ms)
    assert not [name for name in storage.list_dir(DIRECTORY) if name.endswith(".deleted")]
    log.close()
    assert offsets(open_log(storage, COMPACTED, clean=True)) == expected


@pytest.mark.parametrize("split", [False, True])
def test_a_crash_at_any_step_leaves_the_old_segments_or_the_new_ones(split: bool) -> None:
    """Also when the machine crashes again while it repairs the first crash."""
    seen: set[tuple[int, ...]] = set()
    old = list(range(COUNT))
    finished, step = False, 0
    while not finished:
        for seed, again in enumerate((None, None, None, None, None, None, step % 3, step % 11 + 3)):
            storage, log = stored()
            finished = _cut_at(storage, step, lambda storage=storage, log=log: replace(storage, log, split=split))
            storage.crash(random.Random(step * 8 + seed))
            if again is not None:
                _cut_at(storage, again, lambda storage=storage: open_log(storage, COMPACTED))
                storage.crash(random.Random(again))
            _check_after_crash(storage, seen, old)
        step += 1
    assert len(seen) == 2


def _cut_at(storage: MemoryStorage, step: int, action: object) -> bool:
    """Do ``action`` until the disk is asked for its ``step``-th change; whether it came to its end."""
    left = step

    def count(operation: str, path: str, size: int) -> None:
        nonlocal left
        if operation in ("read", "size", "list"):
            return
        left -= 1
        if left < 0:
            raise _PowerCutError

    storage.before_operation = count
    try:
        action()  # type: ignore[operator]
    except _PowerCutError:
        return False
    finally:
        storage.before_operation = None
    return True


def _check_after_crash(storage: MemoryStorage, seen: set[tuple[int, ...]], old: list[int]) -> None:
    log = open_log(storage, COMPACTED)
    found = offsets(log)
    assert found == old or found[0] == 3
    assert found[-1] == COUNT - 1
    names = storage.list_dir(DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    seen.add(tuple(found))
    log.close()


def test_segments_that_are_gone_meanwhile_are_not_replaced() -> None:
    """Retention or a truncation came first: compaction starts over."""
    storage, log = stored()
    old = log.segments[:2]
    new = [cleaned(log, 0, [3], storage)]
    log.advance_log_start_offset(log.segments[1].base_offset)
    log.apply_retention(NOW)
    with pytest.raises(IllegalStateError):
        log.replace_segments(old, new, now_ms=NOW)
    with pytest.raises(IllegalStateError):
        log.replace_segments(log.segments, new, now_ms=NOW)
    assert log.log_end_offset == COUNT


def test_remains_of_a_failed_replacement_do_not_join_a_later_one() -> None:
    """Its `.cleaned` files would make a later, complete replacement look unfinished."""
    storage, log = stored()
    cleaned(log, 0, [1], storage).sync()
    old = log.segments[1:2]
    base = old[0].base_offset
    log.replace_segments(old, [cleaned(log, base, [base + 1], storage)], now_ms=NOW)
    assert not [name for name in storage.list_dir(DIRECTORY) if name.endswith(".cleaned")]


def test_a_disk_that_fails_in_between_takes_the_log_offline_until_it_is_opened_again() -> None:
    storage, log = stored()
    storage.inject(DiskFault("rename", "*.log", times=1))
    with pytest.raises(KafkaStorageError):
        replace(storage, log, split=False)
    with pytest.raises(KafkaStorageError):
        log.read(0, 100)
    assert offsets(open_log(storage, COMPACTED))[-1] == COUNT - 1


def test_a_segment_that_is_compacted_twice_within_the_delay_is_removed_once() -> None:
    storage, log = stored()
    for kept in (1, 2):
        log.replace_segments(log.segments[:1], [cleaned(log, 0, [kept], storage)], now_ms=NOW)
    log.apply_retention(NOW + log.config.file_delete_delay_ms)
    assert offsets(log)[0] == 2
