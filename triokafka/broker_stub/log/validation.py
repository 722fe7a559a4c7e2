"""Validation of batches by the leader before an append, and conversion to the topic's codec.

`prepare` returns a valid batch unchanged, in a writable buffer, so that offsets can be patched in. Only topics with
their own codec (``compression.type``) convert batches: the records are recompressed but not re-encoded. A kernel walks
the records of a client's batch once without creating objects, and decompresses them in windows. So validation takes the
memory of one window (and the codec's history), whatever the decompressed size.
"""

from __future__ import annotations

import struct
from typing import Final

from triokafka import errors
from triokafka.broker_stub.log.config import LogConfig
from triokafka.named_tuple import NamedTuple
from triokafka.records import iter_batches, patch_batch
from triokafka.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_INT64,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchInfo,
    check_batch_crc,
)
from triokafka.records.compression import CODEC_IDS, DEFAULT_MAX_DECOMPRESSED, compress_chunks
from triokafka.records.kernel import SurveyedRecords, survey_compressed, survey_records
from triokafka.records.stream import decompressed_chunks
from triokafka.structs import Buffer, TopicPartition

_LAST_CODEC: Final = 4
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21


class RejectedRecordsError(errors.InvalidRecordError):
    """Single records are invalid; the whole batch is rejected.

    ``record_errors`` has the index in the batch and the reason, for the Produce response (KIP-467).
    """

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RejectedTimestampsError(errors.InvalidTimestampError):
    """Timestamps of records are out of the topic's bounds; ``record_errors`` as in `RejectedRecordsError`."""

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class Prepared(NamedTuple):
    """Validated batches in a writable buffer."""

    buffer: bytearray | memoryview
    batches: list[BatchInfo]


def prepare(
    data: Buffer,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    from_client: bool,
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED,
) -> Prepared:
    """Validate batches for an append by the leader.

    Args:
        data: v2 batches; exactly one from a client, whose incomplete successor is ignored. A writable buffer is later
            changed in place.
        from_client: apply the rules for applications: no control batches, base offset 0, timestamps in bounds.

    Raises:
        CorruptRecordError: a checksum or a length does not fit.
        InvalidRecordError: a well-formed batch may not be appended; see also `RejectedRecordsError`.
        InvalidTimestampError: a timestamp out of bounds.
        MessageSizeTooLargeError: a batch above ``max.message.bytes``.
        RecordListTooLargeError: the batches exceed ``segment.bytes``.
        UnsupportedCompressionTypeError: an unknown codec, or a required codec whose package is not installed.
    """
    newest = None
    if from_client:
        view = memoryview(data)
        batch = _only_batch(view, topic_partition)
        end = batch.end
        if end < len(view):
            data = view = view[:end]
        _check_client_batch(view, batch, topic_partition, config)
        newest = _check_records(view, batch, topic_partition, config, now_ms, max_decompressed)
        batches = [batch]
    else:
        batches = _own_batches(data, topic_partition, config)
    buffer: bytearray | memoryview
    if config.compression_type != "producer" and any(_needs_conversion(batch, config) for batch in batches):
        try:
            converted = [_converted(data, batch, topic_partition, config, max_decompressed) for batch in batches]
            buffer = bytearray().join(converted)
        except errors.UnsupportedCodecError as error:
            raise errors.UnsupportedCompressionTypeError(f"{topic_partition}: {error}") from error
        batches = list(iter_batches(buffer))
        for batch in batches:
            _check_size(batch, topic_partition, config)
    elif isinstance(data, bytearray) or (isinstance(data, memoryview) and not data.readonly):
        buffer = data
    else:
        buffer = bytearray(data)
    if newest is not None and newest != batches[0].max_timestamp and not config.stamps_on_append:
        # Look-ups use the header's timestamp, so it must match the records.
        patch_batch(buffer, 0, base_offset=0, leader_epoch=-1, max_timestamp=newest)
        batches = list(iter_batches(buffer))
    if len(buffer) > config.segment_bytes:
        raise errors.RecordListTooLargeError(
            f"{topic_partition}: {len(buffer)} bytes do not fit into a segment of segment.bytes={config.segment_bytes}"
        )
    return Prepared(buffer, batches)


def _only_batch(view: memoryview, topic_partition: TopicPartition) -> BatchInfo:
    """Return the only complete v2 batch that a request may have for a partition; its checksum is not verified yet."""
    size = len(view)
    if size >= HEADER_SIZE and view[16] == 2:
        batch = BatchInfo(0, *HEADER.unpack_from(view))
        if batch.length < HEADER_SIZE - LOG_OVERHEAD:
            raise errors.CorruptRecordError(
                f"{topic_partition}: a batch of {batch.length} bytes is shorter than its header"
            )
        end = batch.end
        if end == size:
            return batch
        if end < size:
            if next(iter_batches(view[end:]), None) is None:
                return batch
            raise errors.InvalidRecordError(
                f"{topic_partition}: a produce request must have exactly one batch per partition, got more"
            )
    else:
        other = next(iter_batches(view), None)
        if other is not None:
            raise errors.InvalidRecordError(
                f"{topic_partition}: a batch has message format v{other.magic}; only v2 is accepted for writing"
            )
    raise errors.InvalidRecordError(
        f"{topic_partition}: a produce request must have exactly one batch per partition, got no complete batch"
    )


def _own_batches(data: Buffer, topic_partition: TopicPartition, config: LogConfig) -> list[BatchInfo]:
    """Parse batches that the broker itself encoded."""
    batches = list(iter_batches(data, check_crc=True))
    end = batches[-1].end if batches else 0
    if end != len(data):
        raise errors.CorruptRecordError(
            f"{topic_partition}: {len(data) - end} bytes after the last batch are not a complete batch"
        )
    for batch in batches:
        _check_size(batch, topic_partition, config)
        _check_count(batch, topic_partition)
    return batches


def _check_client_batch(view: memoryview, batch: BatchInfo, topic_partition: TopicPartition, config: LogConfig) -> None:
    """Validate the header, in the order of Kafka's checks."""
    if batch.base_offset != 0:
        raise errors.InvalidRecordError(
            f"{topic_partition}: a batch to append must have base offset 0, not {batch.base_offset}"
        )
    _check_size(batch, topic_partition, config)
    check_batch_crc(view, batch)
    _check_count(batch, topic_partition)
    attributes = batch.attributes
    if attributes & CONTROL:
        raise errors.InvalidRecordError(f"{topic_partition}: clients are not allowed to write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise errors.InvalidRecordError(
            f"{topic_partition}: a batch of producer {batch.producer_id} has a negative sequence, {batch.base_sequence}"
        )
    if attributes & LOG_APPEND_TIME:
        reason = "producers must not set the timestamp type LogAppendTime"
        raise RejectedTimestampsError(f"{topic_partition}: {reason}", [(0, reason)])


def _check_count(batch: BatchInfo, topic_partition: TopicPartition) -> None:
    if batch.record_count <= 0 or batch.record_count != batch.last_offset_delta + 1:
        raise errors.InvalidRecordError(
            f"{topic_partition}: a batch has {batch.record_count} records, "
            f"but the last offset delta is {batch.last_offset_delta}"
        )


def _check_size(batch: BatchInfo, topic_partition: TopicPartition, config: LogConfig) -> None:
    if batch.size > config.max_message_bytes:
        raise errors.MessageSizeTooLargeError(
            f"{topic_partition}: a batch of {batch.size} bytes is above max.message.bytes={config.max_message_bytes}"
        )


def _check_records(
    view: memoryview,
    batch: BatchInfo,
    topic_partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
    max_decompressed: int,
) -> int | None:
    """Check that every record of a client's batch, which fills ``view``, is well-formed and may be appended.

    Returns the newest timestamp; None when the package of the codec is missing and the records need not be read.
    """
    codec = batch.attributes & CODEC_MASK
    try:
        if codec:
            if codec > _LAST_CODEC:
                raise errors.UnsupportedCompressionTypeError(f"{topic_partition}: unknown codec {codec}")
        else:
            topic, partition = topic_partition
            oldest, newest, keyless = survey_records(
                view, HEADER_SIZE, len(view), batch.record_count, batch.base_timestamp, topic, partition
            )
            untimely = (
                newest > now_ms + config.message_timestamp_after_max_ms
                or (oldest != NO_TIMESTAMP and oldest < now_ms - config.message_timestamp_before_max_ms)
            ) and not config.stamps_on_append
            if not untimely and not (keyless and config.compacts):
                return newest
        found = survey_compressed(
            view,
            HEADER_SIZE,
            len(view),
            codec,
            batch.record_count,
            batch.base_timestamp,
            *topic_partition,
            max_decompressed if codec else len(view),
            *_bounds(config, now_ms),
            config.compacts,
        )
    except errors.CorruptRecordError as error:
        # The checksum matches, so the producer encoded these bytes: a retry, as after CORRUPT_MESSAGE, would not help.
        raise errors.InvalidRecordError(str(error)) from error
    except errors.UnsupportedCodecError as error:
        bounded = config.message_timestamp_before_max_ms < now_ms and not config.stamps_on_append
        if config.compacts or bounded:
            raise errors.UnsupportedCompressionTypeError(f"{topic_partition}: {error}") from error
        return None  # stored unchanged, for consumers that have the codec
    if found.refused:
        raise _refusal(found, topic_partition, config, now_ms)
    return found.newest


def _bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Return the earliest and the latest valid timestamp, as numbers of 64 bits."""
    if config.stamps_on_append:
        return -MAX_INT64, MAX_INT64
    return (
        max(now_ms - config.message_timestamp_before_max_ms, -MAX_INT64),
        min(now_ms + config.message_timestamp_after_max_ms, MAX_INT64),
    )


def _refusal(
    found: SurveyedRecords, topic_partition: TopicPartition, config: LogConfig, now_ms: int
) -> RejectedRecordsError | RejectedTimestampsError:
    """Return the error that lists the rejected records with the reasons."""
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    shown = [
        (
            index,
            "a record of a compacted topic needs a key"
            if lacks_key
            else f"timestamp {timestamp} is not within [{earliest}, {latest}]",
        )
        for index, timestamp, lacks_key in found.blamed
    ]
    if found.untimely:
        return RejectedTimestampsError(
            f"{topic_partition}: {found.refused} records were rejected, some for timestamps out of bounds "
            f"(message.timestamp.before.max.ms={config.message_timestamp_before_max_ms}, "
            f"message.timestamp.after.max.ms={config.message_timestamp_after_max_ms}); the first: {shown[0][1]}",
            shown,
        )
    return RejectedRecordsError(
        f"{topic_partition}: {found.refused} records have no key, which a compacted topic needs", shown
    )


def needs_conversion(codec: int, config: LogConfig) -> bool:
    """Whether records with this codec must be converted to the topic's codec."""
    target = config.codec
    return target is not None and codec != CODEC_IDS[target]


def _needs_conversion(batch: BatchInfo, config: LogConfig) -> bool:
    return needs_conversion(batch.codec, config) and not batch.is_control


def _converted(
    data: Buffer, batch: BatchInfo, topic_partition: TopicPartition, config: LogConfig, max_decompressed: int
) -> Buffer:
    """Return the batch in the topic's codec, otherwise unchanged.

    Raises:
        MessageSizeTooLargeError: the batch exceeds ``max.message.bytes`` in that codec; compression stops there.
    """
    raw = memoryview(data)[batch.position : batch.end]
    if not _needs_conversion(batch, config):
        return raw
    target = config.codec or "none"
    limit = max_decompressed if batch.codec else len(raw)
    records = decompressed_chunks(batch.codec, raw[HEADER_SIZE:], max_size=limit)
    most = config.max_message_bytes - HEADER_SIZE
    packed = compress_chunks(target, records, config.compression_level, most=most)
    if packed is None:
        raise errors.MessageSizeTooLargeError(
            f"{topic_partition}: a batch of {batch.size} bytes is above max.message.bytes={config.max_message_bytes}"
            f" with compression.type={config.compression_type}"
        )
    converted = bytearray(HEADER_SIZE + len(packed))
    converted[:HEADER_SIZE] = raw[:HEADER_SIZE]
    converted[HEADER_SIZE:] = packed
    attributes = batch.attributes & (TRANSACTIONAL | LOG_APPEND_TIME) | CODEC_IDS[target]
    _LENGTH.pack_into(converted, _LENGTH_AT, len(converted) - LOG_OVERHEAD)
    _ATTRIBUTES.pack_into(converted, _ATTRIBUTES_AT, attributes)
    # This also sets the checksum. Base offset and epoch are those of a client's batch.
    patch_batch(converted, 0, base_offset=0, leader_epoch=-1, max_timestamp=batch.max_timestamp)
    return converted
