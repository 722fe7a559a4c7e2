"""The ``.log`` file of a segment, and ``.checkpoint`` snapshots of the metadata: batches and their records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from triokafka.broker_stub.log.damage import find_valid_batches
from triokafka.cli.log_dump.decoders import Shown, control_record
from triokafka.cli.log_dump.report import Report
from triokafka.errors import CorruptRecordError, UnsupportedCodecError
from triokafka.records.batch import LOG_OVERHEAD, BatchInfo, check_batch_crc, parse_batch
from triokafka.records.kernel import ConsumerRecord
from triokafka.records.rewritable_batch import RewritableBatch
from triokafka.world import File, Storage

METADATA_SNAPSHOT: Final = re.compile(r"([0-9]+)-([0-9]+)\.checkpoint")
"""What a snapshot of the metadata is called: where it ends, and the epoch."""

_GAPS: Final = "Offsets that do not follow each other"
_BACK: Final = "Offsets that go back"
_DAMAGE: Final = "Damage"
_TAIL: Final = "Bytes behind the last whole batch"

_HEAD: Final = 17  # up to the format's number, which all formats have at its end
_MAGIC_AT: Final = 16
_NEWEST_MAGIC: Final = 2
_SPAN: Final = 2**31  # a segment has no more offsets
_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class DataOptions:
    """What to print of records: nothing, their metadata (``records``), or with ``content`` key and value as well."""

    records: bool
    content: bool
    metadata: bool
    decode: Callable[[bytes | None, bytes | None], Shown]
    max_message_size: int
    max_bytes: int


def dump_data_file(storage: Storage, path: str, options: DataOptions, report: Report) -> None:
    """Print a file of batches, and check their checksums and that offsets follow each other.

    Raises:
        OSError: the file cannot be read.
    """
    name = path.rpartition("/")[2]
    snapshot = METADATA_SNAPSHOT.match(name)
    if snapshot:
        report.line(f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}")
    else:
        report.line(f"Log starting offset: {int(name[:20])}")
    file = storage.open(path, read_only=True)
    try:
        size = min(file.size(), options.max_bytes)
        whole = size == file.size()
        end, previous = 0, -1
        first = 0 if snapshot else int(name[:20])
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
        report.problem(path, _DAMAGE, f"{stopped.why}; what is behind it was not looked at")


class Stopped(NamedTuple):
    """Why reading ends before the end of the file. ``normal``: a broker that runs may leave it so, with a batch that is
    not all there yet, or with the zeros of a file that was made larger in advance."""

    why: str
    normal: bool


def read_batches(
    file: File, size: int, first: int, max_message_size: int, stopped: Callable[[Stopped], None]
) -> Iterator[tuple[BatchInfo, memoryview]]:
    """The batches of a file up to ``size``, each by itself; its header says where in the file it is.

    ``first`` is the offset with which the file begins. ``stopped`` is told why reading ends before ``size``.
    """
    position, expected = 0, first
    while position < size:
        head = file.read_at(position, _HEAD)
        length = int.from_bytes(head[8:12], "big", signed=True)
        if len(head) < LOG_OVERHEAD or length <= 0 or position + LOG_OVERHEAD + length > size:
            begun = _could_be_a_beginning(head, range(expected, first + _SPAN), max_message_size)
            why = f"at byte {position}: {size - position} bytes, which are no whole batch"
            behind = find_valid_batches(file, position + 1, size, expected)
            if behind.batches:  # a destroyed length, then
                why += f"; behind it are {behind.batches} valid batches up to offset {behind.end_offset - 1}"
            stopped(Stopped(why, not behind.batches and (begun or _is_zero(file, position, size))))
            return
        if LOG_OVERHEAD + length > max_message_size:
            why = f"a batch of {LOG_OVERHEAD + length} bytes is above --max-message-size"
            stopped(Stopped(f"at byte {position}: {why}", False))
            return
        data = memoryview(file.read_at(position, LOG_OVERHEAD + length))
        try:
            info = parse_batch(data, 0)
        except CorruptRecordError as error:
            stopped(Stopped(f"at byte {position}: {error}", False))
            return
        if info is None:  # the file has become shorter meanwhile
            stopped(Stopped(f"at byte {position}: {size - position} bytes, which are no whole batch", True))
            return
        yield info._replace(position=position), data
        position += info.size
        expected = max(expected, info.last_offset + 1)


def _could_be_a_beginning(head: bytes, offsets: range, max_message_size: int) -> bool:
    """Whether a batch of this log may begin so: with an offset that may come next, a length, and a known format."""
    offset, length = head[:8], head[8:LOG_OVERHEAD]
    return (
        _number(offset, 8, b"\0") < offsets.stop
        and _number(offset, 8, b"\xff") >= offsets.start
        and _number(length, 4, b"\0") <= max_message_size - LOG_OVERHEAD
        and _number(length, 4, b"\xff") != 0
        and all(magic <= _NEWEST_MAGIC for magic in head[_MAGIC_AT:])
    )


def _number(cut: bytes, size: int, rest: bytes) -> int:
    """The number that these bytes begin, if the rest of them are such."""
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
    """Print one batch; returns its last offset."""
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
        return last  # where a compressed message begins is not known from outside
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
