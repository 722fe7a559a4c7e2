"""Damage in a log's files: searching for valid batches behind a bad one, and keeping the bytes that recovery cuts off.

A crash leaves at most a *torn tail*: the last write is incomplete, and nothing valid follows. Everything else is
*damage*: valid batches follow the bad one, or the bad one lies below offsets that are known to be on disk or committed.
Recovery cuts a torn tail. It keeps the bytes that it cuts because of damage in files beside the segment whose names end
with `DAMAGED_SUFFIX`. Neither this broker nor Apache Kafka reads or removes these files.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from triokafka.broker_stub.log.batch_positions import ReadableFile
from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchInfo, parse_batch
from triokafka.world import Storage

DAMAGED_SUFFIX: Final = ".damaged"
MAX_JUMP: Final = 2**31
"""The maximum number of missing offsets at the end of a log; a checkpoint beyond that is damaged itself."""

_WINDOW: Final = 1 << 20  # bytes searched at once
_PIECE: Final = 1 << 20  # bytes copied at once
_CHECK_BUDGET: Final = 1 << 28
"""The maximum number of bytes of which one search computes checksums. If the search stops there, the rest counts as
damage, which loses nothing.
"""
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")


class DamagedLogError(KafkaStorageError):
    """A log is damaged, and may be truncated by an explicit repair only."""


class ValidBatches(NamedTuple):
    """The valid batches behind a bad one: their number, records and bytes, and the offset after the last one."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    end_offset: int = -1


def find_valid_batches(
    file: ReadableFile, start: int, end: int, expected: int, *, limit: int = 1 << 62
) -> ValidBatches:
    """Search the bytes from ``start`` to ``end`` for batches with a valid checksum and ascending offsets.

    The search skips batches of formats before v2, whose checksums are not reliable enough here.

    Args:
        expected: the lowest offset of the next batch. Batches below it are remains of earlier content of the file.
        limit: the maximum number of batches to find.
    """
    batches = records = size = 0
    position, next_offset, budget = start, expected, _CHECK_BUDGET
    while end - position >= HEADER_SIZE and batches < limit:
        window = file.read_at(position, min(_WINDOW, end - position))
        if len(window) < HEADER_SIZE:
            break
        step = len(window) - HEADER_SIZE + 1
        for match in _header_pattern(next_offset).finditer(window):
            at = match.start()
            if at >= step:
                break
            batch, cost = _batch_at(file, position + at, end, window, at, next_offset)
            budget -= cost
            if budget < 0:
                return ValidBatches(batches + 1, records, size, next_offset)
            if batch is not None:
                batches, records, size = batches + 1, records + batch.record_count, size + batch.size
                next_offset, step = batch.next_offset, at + batch.size
                break
        position += step
    return ValidBatches(batches, records, size, next_offset) if batches else ValidBatches()


def _header_pattern(expected: int) -> re.Pattern[bytes]:
    """Return a lookahead pattern for v2 headers with an offset close to ``expected``."""
    upper = expected >> 32
    highs = {value.to_bytes(4, "big") for value in (upper, upper + 1) if value < 2**31}
    offset = b"|".join(map(re.escape, highs))
    return re.compile(rb"(?=(?:" + offset + rb").{4}[\x00-\x7f].{3}.{4}\x02)", re.DOTALL)


def _batch_at(
    file: ReadableFile, position: int, end: int, window: bytes, at: int, expected: int
) -> tuple[BatchInfo | None, int]:
    """Return the valid batch at a position of the file, or None; and the number of bytes read for it."""
    offset, length = _OFFSET_AND_LENGTH.unpack_from(window, at)
    size = LOG_OVERHEAD + length
    if not expected <= offset < expected + MAX_JUMP or size < HEADER_SIZE or position + size > end:
        return None, 0
    data = window[at : at + size] if at + size <= len(window) else file.read_at(position, size)
    try:
        return parse_batch(memoryview(data), 0, check_crc=True), size
    except CorruptRecordError:
        return None, size


# Keeping aside


def keep_tail(storage: Storage, path: str, file: ReadableFile, position: int, end: int) -> str:
    """Copy the bytes of a file from ``position`` to ``end`` into a synced file beside it; return the new path.

    Raises:
        OSError: the disk failed or is full. The caller must not truncate the file then.
    """
    target = _free_name(storage, f"{path}.{position}{DAMAGED_SUFFIX}")
    copy = storage.open(target, create=True)
    try:
        copy.truncate(0)
        at = position
        while at < end:
            data = file.read_at(at, min(_PIECE, end - at))
            if not data:
                break
            copy.write_at(at - position, data)
            at += len(data)
        copy.sync()
    finally:
        copy.close()
    storage.sync_dir(path.rpartition("/")[0])
    return target


def keep_file(storage: Storage, path: str) -> str:
    """Rename a file so that it no longer belongs to the log; return the new path. Raises `OSError`."""
    target = _free_name(storage, path + DAMAGED_SUFFIX)
    sync_path(storage, path)
    storage.rename(path, target)
    return target


def _free_name(storage: Storage, wanted: str) -> str:
    name, number = wanted, 2
    while storage.exists(name):
        name, number = f"{wanted.removesuffix(DAMAGED_SUFFIX)}.{number}{DAMAGED_SUFFIX}", number + 1
    return name
