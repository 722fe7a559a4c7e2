"""Compacted logs for the tests of the cleaner."""

from __future__ import annotations

import struct
from typing import Any

from tests.unit.broker_stub.log.builders import NOW, append, config, open_log
from triokafka.broker_stub.log import LogConfig, PartitionLog
from triokafka.broker_stub.log.cleaner.cleaner_pass import CleanerLimits, CleanerPass, CleaningStats, Replacement
from triokafka.records import decode_records, encode_batch, iter_batches
from triokafka.records.batch import BatchInfo
from triokafka.world import Storage

RETENTION = 60_000


def compacted(**values: Any) -> LogConfig:
    """A configuration with small segments, in which a tombstone stays for a minute."""
    return config(**{"cleanup_policy": ("compact",), "segment_bytes": 600, "delete_retention_ms": RETENTION, **values})


def compacted_log(storage: Storage, **values: Any) -> PartitionLog:
    """An empty log."""
    return open_log(storage, compacted(**values))


def put(log: PartitionLog, *items: tuple[bytes | None, bytes | None], now_ms: int = NOW, **options: Any) -> int:
    """Append a batch of keys and values; returns its first offset."""
    data = encode_batch([(now_ms, key, value, ()) for key, value in items], **options)
    return append(log, bytearray(data), now_ms=now_ms, from_client=False).first_offset


def end_transaction(log: PartitionLog, producer_id: int, *, commit: bool, now_ms: int = NOW) -> int:
    """Append a marker; returns its offset."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 5)
    return put(
        log, (key, value), now_ms=now_ms, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )


def clean(
    log: PartitionLog,
    storage: Storage,
    *,
    first_dirty: int = 0,
    now_ms: int = NOW,
    end: int | None = None,
    **limits: Any,
) -> CleaningStats:
    """Roll the log, and clean all before the new segment."""
    log.roll(now_ms=now_ms)
    cleaning = CleanerPass(
        storage,
        log,
        first_dirty=first_dirty,
        end=log.active_segment.base_offset if end is None else end,
        now_ms=now_ms,
        limits=CleanerLimits(**limits),
    )
    for step in cleaning.steps():
        if isinstance(step, Replacement):
            log.replace_segments(step.old, [step.new], now_ms=now_ms)
    return cleaning.stats


def batches(log: PartitionLog) -> list[BatchInfo]:
    """The headers of all batches."""
    return [info for segment in log.segments for info, _ in segment.file.batches(check_crc=True)]


def records(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of all records but markers, as a reader from the beginning gets them."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 10_000).records
        if not data:
            break
        found += [(r.offset, r.key, r.value) for r in decode_records(data, from_offset=offset)]
        offset = list(iter_batches(data))[-1].next_offset
    return found
