"""Print the indexes of a segment, and verify them against the ``.log`` file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from triokafka.broker_stub.log.segment_names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from triokafka.cli.log_dump.report import Report
from triokafka.errors import CorruptRecordError
from triokafka.records.batch import LOG_OVERHEAD, BatchInfo, parse_batch
from triokafka.world import File, Storage

ON_THE_WAY: Final = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)
"""Suffixes of a segment's files while the broker adds or deletes it."""

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_MISMATCH: Final = "Entries that contradict the log"
_ORDER: Final = "Entries out of order"
_SIZE: Final = "Invalid index size"


def dump_offset_index(storage: Storage, path: str, report: Report, *, sanity_only: bool, verify_only: bool) -> None:
    """Print and verify a ``.index`` file. Raises `OSError` when it cannot be read."""
    base = _base_offset(path)
    data = _whole_entries(storage.read_file(path), _OFFSET_ENTRY.size, path, report)
    entries = list(_until_zeros(data, _OFFSET_ENTRY))
    if sanity_only:
        _check_sanity(path, entries[-1][0] if entries else 0, report)
        return
    previous = -1
    with _opened_log(storage, path, report) as log:
        for relative, position in entries:
            offset = base + relative
            if offset <= previous or relative < 0:
                report.problem(path, _ORDER, f"offset {offset} follows {previous}")
            previous = offset
            if not verify_only:
                report.line(f"offset: {offset} position: {position}")
            if log is None:
                continue
            found = _batch_at(log, position)
            if found is None:
                report.problem(path, _MISMATCH, f"offset {offset}: no batch at byte {position}")
            elif found.last_offset != offset:
                report.problem(
                    path, _MISMATCH, f"index offset: {offset}, log offset: {found.last_offset} (byte {position})"
                )


def dump_time_index(storage: Storage, path: str, report: Report, *, sanity_only: bool, verify_only: bool) -> None:
    """Print and verify a ``.timeindex`` file. Raises `OSError` when it cannot be read."""
    base = _base_offset(path)
    data = _whole_entries(storage.read_file(path), _TIME_ENTRY.size, path, report)
    entries = list(_until_zeros(data, _TIME_ENTRY))
    if sanity_only:
        _check_sanity(path, entries[-1][1] if entries else 0, report)
        return
    previous = (-1, -1)
    with _opened_log(storage, path, report) as log:
        batches = iter(()) if log is None else _walk(log)
        current = next(batches, None)
        for timestamp, relative in entries:
            offset = base + relative
            if not verify_only:
                report.line(f"timestamp: {timestamp} offset: {offset}")
            if timestamp <= previous[0] or offset <= previous[1]:
                report.problem(path, _ORDER, f"({timestamp}, {offset}) follows {previous}: both must increase")
            previous = (timestamp, offset)
            while current is not None and current.last_offset < offset:
                current = next(batches, None)
            if log is None:
                continue
            if current is None or (current.magic >= 2 and current.base_offset > offset):
                report.problem(path, _MISMATCH, f"index offset: {offset} is in no batch")
            elif current.max_timestamp != timestamp:
                report.problem(
                    path,
                    _MISMATCH,
                    f"index timestamp: {timestamp}, log timestamp: {current.max_timestamp} (offset {offset})",
                )


def dump_transaction_index(storage: Storage, path: str, report: Report) -> None:
    """Print a ``.txnindex`` file. Raises `OSError` when it cannot be read."""
    data = _whole_entries(storage.read_file(path), _TRANSACTION_ENTRY.size, path, report)
    previous = -1
    for version, producer_id, first, last, stable in _TRANSACTION_ENTRY.iter_unpack(data):
        report.line(
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )
        if last <= previous or first > last:
            report.problem(path, _ORDER, f"a transaction from {first} to {last} follows one that ends at {previous}")
        previous = last


def _check_sanity(path: str, last_relative_offset: int, report: Report) -> None:
    if last_relative_offset < 0:
        report.problem(path, _ORDER, "the last entry is below the first offset of the segment")
    elif not report.has_problem(path):
        report.line(f"{path} passed sanity check.")


def _base_offset(path: str) -> int:
    return int(path.rpartition("/")[2][:20])


def _whole_entries(data: bytes, entry: int, path: str, report: Report) -> bytes:
    extra = len(data) % entry
    if extra:
        report.problem(path, _SIZE, f"{len(data)} bytes are not a multiple of {entry}")
    return data[: len(data) - extra]


def _until_zeros(data: bytes, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    """Return the entries before the zeros of a preallocated file."""
    for number, values in enumerate(entry.iter_unpack(data)):
        if number and not any(values):
            return
        if not number and not any(data):
            return
        yield values[0], values[1]


@contextmanager
def _opened_log(storage: Storage, path: str, report: Report) -> Iterator[File | None]:
    """Yield the ``.log`` file of an index; None, and a problem in the report, if it cannot be opened."""
    suffix = next((suffix for suffix in ON_THE_WAY if path.endswith(suffix)), "")
    log_path = path.removesuffix(suffix).rpartition(".")[0] + LOG_SUFFIX + suffix
    log: File | None = None
    try:
        log = storage.open(log_path, read_only=True)
    except FileNotFoundError:
        report.problem(path, _MISMATCH, f"cannot compare: {log_path} is missing")
    except OSError as error:
        report.problem(path, _MISMATCH, f"cannot compare: {log_path}: {error.strerror or error}")
    try:
        yield log
    finally:
        if log is not None:
            log.close()


def _batch_at(log: File, position: int) -> BatchInfo | None:
    if position < 0:
        return None
    head = log.read_at(position, LOG_OVERHEAD)
    length = int.from_bytes(head[8:12], "big", signed=True)
    if len(head) < LOG_OVERHEAD or not 0 < length <= log.size() - position - LOG_OVERHEAD:
        return None
    try:
        info = parse_batch(memoryview(log.read_at(position, LOG_OVERHEAD + length)), 0)
    except CorruptRecordError:
        return None
    return None if info is None else info._replace(position=position)


def _walk(log: File) -> Iterator[BatchInfo]:
    position = 0
    while (info := _batch_at(log, position)) is not None:
        yield info
        position += info.size
