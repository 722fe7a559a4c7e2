"""Print batches and records of ``.log`` files and of ``.checkpoint`` snapshots of the metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from triokafka.broker_stub.log.damage import find_valid_batches
from triokafka.broker_stub.storage_format import BOOTSTRAP_FILE
from triokafka.cli.log_dump.decoders import Shown, control_record
from triokafka.cli.log_dump.report import Report
from triokafka.errors import CorruptRecordError, UnsupportedCodecError
from triokafka.records.batch import LOG_OVERHEAD, BatchInfo, check_batch_crc, parse_batch
from triokafka.records.kernel import ConsumerRecord
from triokafka.records.rewritable_batch import RewritableBatch
from triokafka.world import File, Storage

METADATA_SNAPSHOT: Final = re.compile(r"([0-9]+)-([0-9]+)\.checkpoint")
"""File name of a metadata snapshot: end offset and epoch."""

_GAPS: Final = "Gaps between offsets"
_BACK: Final = "Offsets that decrease"
_DAMAGE: Final = "Damage"
_TAIL: Final = "Bytes after the last complete batch"

_HEAD: Final = 17  # up to the magic byte, which has the same position in all formats
_MAGIC_AT: Final = 16
_NEWEST_MAGIC: Final = 2
_SPAN: Final = 2**31  # the maximum of a segment
_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Printed parts of records: none, the metadata (``records``), or also key and value (``content``)."""

    records: bool
    content: bool
    metadata: bool
    decode: Callable[[bytes | None, bytes | None], Shown]
    max_message_size: int
    max_bytes: int


def dump_data_file(storage: Storage, path: str, options: DataOptions, report: Report) -> None:
    """Print a file of batches, and check checksums and the order of offsets.

    Raises:
        OSError: the file cannot be read.
    """
    name = path.rpartition("/")[2]
    first = 0
    if name == BOOTSTRAP_FILE:
        report.line("KRaft bootstrap snapshot")
    elif snapshot := METADATA_SNAPSHOT.match(name):
        report.line(f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}")
    else:
        first = int(name[:20])
        report.line(f"Log starting offset: {first}")
    file = storage.open(path, read_only=True)
    try:
        size = min(file.size(), options.max_bytes)
        whole = size == file.size()
        end, previous = 0, -1
        limit = options.max_message_size
        for info, data in read_batches(file, size, first, limit, lambda stopped: _tail(report, path, stopped, whole)):
            end = info.position + info.size
            report.advance(info.size)
            previous = _dump_batch(path, info, data, previous, options, report)
        if end < size:
            rest = f"Found {size - end} invalid bytes at the end of {name}"
            report.line(rest if whole else f"{rest}, or the limit of --max-bytes lies in a batch")
    finally:
        file.close()


def _tail(report: Report, path: str, stopped: Stopped, whole: bool) -> None:
    if stopped.normal:
        report.remark(path, _TAIL, stopped.why)
    else:
        report.problem(path, _DAMAGE, f"{stopped.why}; the rest of the file was not checked")


class Stopped(NamedTuple):
    """Why reading stops before the end of the file.

    ``normal`` is true for states of a running broker: an incomplete batch, or the zeros of a preallocated file.
    """

    why: str
    normal: bool


def read_batches(
    file: File, size: int, first: int, max_message_size: int, stopped: Callable[[Stopped], None]
) -> Iterator[tuple[BatchInfo, memoryview]]:
    """Yield the batches of a file up to ``size`` one by one, with their positions in the file.

    ``first`` is the file's base offset. ``stopped`` receives the reason why reading stops before ``size``.
    """
    position, expected = 0, first
    while position < size:
        head = file.read_at(position, _HEAD)
        length = int.from_bytes(head[8:12], "big", signed=True)
        if len(head) < LOG_OVERHEAD or length <= 0 or position + LOG_OVERHEAD + length > size:
            begun = _could_be_a_beginning(head, range(expected, first + _SPAN), max_message_size)
            why = f"at byte {position}: {size - position} bytes of an incomplete batch"
            behind = find_valid_batches(file, position + 1, size, expected)
            if behind.batches:  # the length field is damaged
                why += f"; {behind.batches} valid batches follow, up to offset {behind.end_offset - 1}"
            stopped(Stopped(why, not behind.batches and (begun or _is_zero(file, position, size))))
            return
        if LOG_OVERHEAD + length > max_message_size:
            why = f"a batch of {LOG_OVERHEAD + length} bytes exceeds --max-message-size"
            stopped(Stopped(f"at byte {position}: {why}", False))
            return
        data = memoryview(file.read_at(position, LOG_OVERHEAD + length))
        try:
            info = parse_batch(data, 0)
        except CorruptRecordError as error:
            stopped(Stopped(f"at byte {position}: {error}", False))
            return
        if info is None:  # the file was truncated meanwhile
            stopped(Stopped(f"at byte {position}: {size - position} bytes of an incomplete batch", True))
            return
        yield info._replace(position=position), data
        position += info.size
        expected = max(expected, info.last_offset + 1)


def _could_be_a_beginning(head: bytes, offsets: range, max_message_size: int) -> bool:
    """Whether these bytes may begin a batch of this log: a possible next offset, a plausible length, a known magic."""
    offset, length = head[:8], head[8:LOG_OVERHEAD]
    return (
        _number(offset, 8, b"\0") < offsets.stop
        and _number(offset, 8, b"\xff") >= offsets.start
        and _number(length, 4, b"\0") <= max_message_size - LOG_OVERHEAD
        and _number(length, 4, b"\xff") != 0
        and all(magic <= _NEWEST_MAGIC for magic in head[_MAGIC_AT:])
    )


def _number(cut: bytes, size: int, rest: bytes) -> int:
    """Return the big-endian number that begins with ``cut``, padded with ``rest`` to ``size`` bytes."""
    return int.from_bytes(cut.ljust(size, rest), "big")


def _is_zero(file: File, position: int, size: int) -> bool:
    while position < size:
        piece = file.read_at(position, min(_PIECE, size - position))
        if not piece or any(piece):
            return not piece
        position += len(piece)
    return True


def _dump_batch(
    path: str, info: BatchInfo, data: memoryview, previous: int, options: DataOptions, report: Report
) -> int:
    """Print one batch; return its last offset."""
    valid = True
    try:
        check_batch_crc(data, info._replace(position=0))
    except CorruptRecordError as error:
        valid = False
        report.problem(path, _DAMAGE, f"at byte {info.position}: {error}")
    report.line(_batch_line(info, valid))
    last = info.last_offset
    if options.records and valid:
        try:
            batch = RewritableBatch(data, info)
        except (CorruptRecordError, UnsupportedCodecError) as error:
            report.problem(path, _DAMAGE, f"at byte {info.position}: {error}")
            return last
        for record in batch.records:
            previous = _follow(path, previous, record.offset, record.offset, report)
            report.line(_record_line(info, record, options))
        return max(last, previous)
    if info.magic < 2 and info.codec:
        return last  # the base offset of a compressed message set is unknown without decompression
    return _follow(path, previous, info.base_offset, last, report)


def _follow(path: str, previous: int, first: int, last: int, report: Report) -> int:
    if first <= previous:
        report.problem(path, _BACK, f"{previous} is followed by {first}")
    elif previous >= 0 and first != previous + 1:
        report.remark(path, _GAPS, f"{previous} is followed by {first}")
    return last


def _batch_line(info: BatchInfo, valid: bool) -> str:
    time = "LogAppendTime" if info.timestamp_type == 1 else "CreateTime"
    end = (
        f"position: {info.position} {time}: {info.max_timestamp} size: {info.size} magic: {info.magic} "
        f"compresscodec: {info.compression} crc: {info.crc} isvalid: {_bool(valid)}"
    )
    if info.magic < 2:
        return f"offset: {info.base_offset} {end}"
    horizon = info.base_timestamp if info.attributes & 0x40 else "none"
    return (
        f"baseOffset: {info.base_offset} lastOffset: {info.last_offset} count: {info.record_count} "
        f"baseSequence: {info.base_sequence} lastSequence: {info.last_sequence} producerId: {info.producer_id} "
        f"producerEpoch: {info.producer_epoch} partitionLeaderEpoch: {info.partition_leader_epoch} "
        f"isTransactional: {_bool(info.is_transactional)} isControl: {_bool(info.is_control)} "
        f"deleteHorizonMs: {horizon} {end}"
    )


def _record_line(info: BatchInfo, record: ConsumerRecord, options: DataOptions) -> str:
    parts = []
    if options.metadata:
        time = "LogAppendTime" if info.timestamp_type == 1 else "CreateTime"
        parts.append(f"offset: {record.offset} {time}: {record.timestamp}")
        parts.append(f"keySize: {record.serialized_key_size} valueSize: {record.serialized_value_size}")
        if info.magic >= 2:
            sequence = -1
            if info.base_sequence >= 0:
                sequence = (info.base_sequence + record.offset - info.base_offset) % 2**31
            parts.append(f"sequence: {sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]")
    if info.is_control:
        parts.append(control_record(record.key, record.value))
    elif options.content:
        key, value = options.decode(record.key, record.value)
        if options.metadata or key is not None:
            parts.append(f"key: {'null' if key is None else key}")
        parts.append(f"payload: {'null' if value is None else value}")
    return "| " + " ".join(parts)


def _bool(value: bool) -> str:
    return "true" if value else "false"
