"""Which part of a log is cleaned, and when."""

from __future__ import annotations

from typing import Any

from tests.unit.broker_stub.log.builders import NOW
from tests.unit.broker_stub.log.cleaner.logs import compacted, compacted_log, put
from triokafka.broker_stub.log import PartitionLog
from triokafka.broker_stub.log.cleaner.cleanable_range import CleanableRange, cleanable_range
from triokafka.world.memory import MemoryStorage

MINUTE = 60_000


def filled(**config: Any) -> PartitionLog:
    """Three sealed segments of four records, a minute apart, and an active one with a single record."""
    log = compacted_log(MemoryStorage(), **config)
    for segment in range(3):
        for _ in range(4):
            put(log, (b"a", b"x"), now_ms=NOW + segment * MINUTE)
        log.roll(now_ms=NOW + segment * MINUTE)
    put(log, (b"a", b"x"), now_ms=NOW + 3 * MINUTE)
    return log


def found(log: PartitionLog, cleaned: int | None = None, **options: int) -> CleanableRange:
    return cleanable_range(log, cleaned, **{"committed": log.log_end_offset, "now_ms": NOW + 3 * MINUTE, **options})


def test_all_but_the_active_segment_is_dirty_at_first() -> None:
    result = found(filled())
    assert (result.first_dirty, result.end_offset, result.clean_bytes, result.dirty_ratio) == (0, 12, 0, 1.0)
    assert not result.checkpoint_was_wrong


def test_dirty_ratio_is_that_of_bytes_without_the_active_segment() -> None:
    log = filled()
    result = found(log, 8)
    sizes = [segment.size for segment in log.segments]
    assert (result.clean_bytes, result.cleanable_bytes) == (sizes[0] + sizes[1], sizes[2])
    assert result.is_due(0.3)
    assert not result.is_due(result.dirty_ratio)  # strictly above
    assert not found(log, 12).is_due(0.0)


def test_checkpoint_that_is_not_in_the_log_counts_for_nothing() -> None:
    log = filled()
    beyond = found(log, 99)
    assert (beyond.first_dirty, beyond.checkpoint_was_wrong) == (0, True)
    log.advance_log_start_offset(5)
    before = found(log, 2)
    assert (before.first_dirty, before.checkpoint_was_wrong) == (5, True)
    assert found(log, 5).checkpoint_was_wrong is False


def test_uncommitted_records_and_open_transactions_are_not_cleaned() -> None:
    """The range ends with the last segment before them."""
    log = filled()
    assert found(log, committed=12).end_offset == 12
    assert found(log, committed=11).end_offset == 8
    assert found(log, committed=4).end_offset == 4
    assert found(log, committed=0).cleanable_bytes == 0


def test_young_records_are_not_cleaned() -> None:
    """``min.compaction.lag.ms``."""
    log = filled(min_compaction_lag_ms=MINUTE)
    assert found(log).end_offset == 12
    assert found(log, now_ms=NOW + 3 * MINUTE - 1).end_offset == 8
    assert found(log, now_ms=NOW).end_offset == 0


def test_old_records_are_cleaned_regardless_of_the_dirty_ratio() -> None:
    """``max.compaction.lag.ms``."""
    log = filled(max_compaction_lag_ms=90_000)
    result = found(log, 8, now_ms=NOW + 2 * MINUTE + 90_001)
    assert result.overdue_ms == 1
    assert result.is_due(1.0)
    assert not found(log, 8, now_ms=NOW + 2 * MINUTE + 90_000).is_due(1.0)
    assert not found(log, 12, now_ms=NOW + 10**9).is_due(1.0)


def test_compacted_log_is_rolled_in_time_for_its_oldest_record() -> None:
    """The active segment is never compacted, so no record may stay in it for longer than ``max.compaction.lag.ms``."""
    log = compacted_log(MemoryStorage(), max_compaction_lag_ms=MINUTE)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), now_ms=NOW + MINUTE)
    assert len(log.segments) == 1
    put(log, (b"a", b"3"), now_ms=NOW + MINUTE + 1)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.update_config(compacted(max_compaction_lag_ms=MINUTE, cleanup_policy=("delete",)))
    put(log, (b"a", b"4"), now_ms=NOW + 9 * MINUTE)
    assert len(log.segments) == 2
