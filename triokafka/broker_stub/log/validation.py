"""What a leader checks before it appends, and the bytes that it then appends.

A batch that is right already is never encoded anew: `prepare` returns it as it came, writable, for offsets to be
patched in. Only a topic with a codec of its own (``compression.type``) has batches of other codecs converted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from triokafka.broker_stub.log.config import LogConfig
from triokafka.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnsupportedCodecError,
    UnsupportedCompressionTypeError,
)
from triokafka.records import decode_records, encode_batch, iter_batches, patch_batch
from triokafka.records.batch import HEADER_SIZE, MAX_INT64, BatchInfo
from triokafka.records.compression import DEFAULT_MAX_DECOMPRESSED, decompress
from triokafka.records.kernel import ConsumerRecord, RecordOrigin, decode_payload, open_payload
from triokafka.structs import Buffer, TopicPartition

_LOG_APPEND_TIME: Final = 1
_MAX_RECORD_ERRORS: Final = 100  # in one answer; the rest would say the same


class RejectedRecordsError(InvalidRecordError):
    """Single records that may not be appended; the whole batch is refused.

    ``record_errors`` has the index in the batch and what is wrong, as the answer to Produce carries them (KIP-467).
    """

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RejectedTimestampsError(InvalidTimestampError):
    """Records whose timestamps are out of the topic's bounds; ``record_errors`` as in `RejectedRecordsError`."""

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class Prepared(NamedTuple):
    """Batches that may be appended, in a buffer that may be written to."""

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
    """Check batches for an append by the leader (C23–C29, F07, Z01, Z31).

    Args:
        data: whole v2 batches; exactly one from a client. Changed in place later when writable.
        from_client: apply the rules for applications: no control batches, base offset 0, timestamps in bounds.

    Raises:
        CorruptRecordError: a checksum or a length does not fit.
        InvalidRecordError: well-formed, but not to be appended; see also `RejectedRecordsError`.
        InvalidTimestampError: a timestamp out of bounds.
        MessageSizeTooLargeError: a batch above ``max.message.bytes``.
        RecordListTooLargeError: more than a segment holds.
    """
    batches = list(iter_batches(data, check_crc=True))
    end = batches[-1].end if batches else 0
    if end != len(data):
        raise CorruptRecordError(f"{topic_partition}: {len(data) - end} bytes follow that are not a whole batch")
    if from_client and len(batches) != 1:
        raise InvalidRecordError(
            f"{topic_partition}: a produce request carries exactly one batch per partition, not {len(batches)}"
        )
    for batch in batches:
        _check_batch(batch, topic_partition, config, now_ms=now_ms, from_client=from_client)
        if from_client:
            _check_records(data, batch, topic_partition, config, now_ms, max_decompressed)
    buffer: bytearray | memoryview
    if any(_needs_conversion(batch, config) for batch in batches):
        buffer = bytearray().join([_converted(data, batch, config, max_decompressed) for batch in batches])
        batches = list(iter_batches(buffer))
        for batch in batches:
            _check_size(batch, topic_partition, config)
    elif isinstance(data, bytearray) or (isinstance(data, memoryview) and not data.readonly):
        buffer = data
    else:
        buffer = bytearray(data)
    if len(buffer) > config.segment_bytes:
        raise RecordListTooLargeError(
            f"{topic_partition}: {len(buffer)} bytes do not fit into a segment of segment.bytes={config.segment_bytes}"
        )
    return Prepared(buffer, batches)


def assign_offsets(
    buffer: bytearray | memoryview,
    batches: list[BatchInfo],
    next_offset: int,
    *,
    leader_epoch: int,
    append_time: int,
) -> list[BatchInfo]:
    """Patch offsets, epoch and, unless ``append_time`` is -1, timestamps into the headers; returns these (C23, C25)."""
    assigned = []
    for batch in batches:
        stamps = append_time >= 0 and not batch.is_control
        patch_batch(
            buffer,
            batch.position,
            base_offset=next_offset,
            leader_epoch=leader_epoch,
            max_timestamp=append_time if stamps else None,
            timestamp_type=_LOG_APPEND_TIME if stamps else None,
        )
        batch = batch._replace(
            base_offset=next_offset,
            partition_leader_epoch=leader_epoch,
            max_timestamp=append_time if stamps else batch.max_timestamp,
        )
        assigned.append(batch)
        next_offset = batch.next_offset
    return assigned


def _check_batch(
    batch: BatchInfo, topic_partition: TopicPartition, config: LogConfig, *, now_ms: int, from_client: bool
) -> None:
    if batch.magic != 2:
        raise InvalidRecordError(
            f"{topic_partition}: a batch has message format v{batch.magic}; only v2 is accepted for writing"
        )
    _check_size(batch, topic_partition, config)
    if batch.record_count <= 0 or batch.record_count != batch.last_offset_delta + 1:
        raise InvalidRecordError(
            f"{topic_partition}: a batch says that it has {batch.record_count} records, "
            f"and that its last one has offset {batch.last_offset_delta}"
        )
    if not from_client:
        return
    if batch.base_offset != 0:
        raise InvalidRecordError(
            f"{topic_partition}: a batch to append must have base offset 0, not {batch.base_offset}"
        )
    if batch.is_control:
        raise InvalidRecordError(f"{topic_partition}: clients are not allowed to write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise InvalidRecordError(
            f"{topic_partition}: a batch of producer {batch.producer_id} has sequence {batch.base_sequence}"
        )
    if config.stamps_on_append:
        return
    if batch.timestamp_type == 1:
        raise InvalidTimestampError(
            f"{topic_partition}: a batch says LogAppendTime, but timestamps of this topic are the producer's "
            "(message.timestamp.type=CreateTime)"
        )
    latest = now_ms + config.message_timestamp_after_max_ms
    if batch.max_timestamp > latest:
        reason = (
            f"timestamp {batch.max_timestamp} is more than message.timestamp.after.max.ms="
            f"{config.message_timestamp_after_max_ms} after the broker's {now_ms}"
        )
        raise RejectedTimestampsError(f"{topic_partition}: {reason}", [(0, reason)])


def _check_size(batch: BatchInfo, topic_partition: TopicPartition, config: LogConfig) -> None:
    if batch.size > config.max_message_bytes:
        raise MessageSizeTooLargeError(
            f"{topic_partition}: a batch of {batch.size} bytes is above max.message.bytes={config.max_message_bytes}"
        )


def _check_records(
    data: Buffer,
    batch: BatchInfo,
    topic_partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
    max_decompressed: int,
) -> None:
    """Look into a client's batch: every record must be readable, and each may be refused for itself."""
    earliest = -1 if config.stamps_on_append else now_ms - config.message_timestamp_before_max_ms
    wanted = config.compacts or earliest > 0  # else records are only walked, not made
    view = memoryview(data)
    if batch.codec:
        compressed = view[batch.position + HEADER_SIZE : batch.end]
        try:
            payload: Buffer = decompress(batch.codec, compressed, max_size=max_decompressed)
        except UnsupportedCodecError as error:
            if not wanted:
                return  # kept as it came, for readers who have the codec
            raise UnsupportedCompressionTypeError(f"{topic_partition}: {error}") from error
        start, end = 0, len(payload)
    else:
        payload, start, end = open_payload(view, batch.position + HEADER_SIZE, batch.end)
    records: list[ConsumerRecord] = []
    decode_payload(
        records,
        batch.record_count + 1,
        payload,
        start,
        end,
        0,
        batch.record_count,
        -1,
        0,
        batch.last_offset_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        RecordOrigin(topic_partition.topic, topic_partition.partition),
        0 if wanted else MAX_INT64,
    )
    if config.compacts:
        keyless = [(i, "a compacted topic needs a key") for i, record in enumerate(records) if record.key is None]
        if keyless:
            raise RejectedRecordsError(
                f"{topic_partition}: {len(keyless)} records have no key, which a compacted topic needs",
                keyless[:_MAX_RECORD_ERRORS],
            )
    old = [
        (i, f"timestamp {record.timestamp} is before {earliest}, the earliest allowed")
        for i, record in enumerate(records)
        if 0 <= record.timestamp < earliest
    ]
    if old:
        raise RejectedTimestampsError(
            f"{topic_partition}: {len(old)} records are older than message.timestamp.before.max.ms="
            f"{config.message_timestamp_before_max_ms}",
            old[:_MAX_RECORD_ERRORS],
        )


def _target_codec(config: LogConfig) -> str | None:
    if config.compression_type == "producer":
        return None
    return "none" if config.compression_type == "uncompressed" else config.compression_type


def _needs_conversion(batch: BatchInfo, config: LogConfig) -> bool:
    target = _target_codec(config)
    return target is not None and batch.compression != target and not batch.is_control


def _converted(data: Buffer, batch: BatchInfo, config: LogConfig, max_decompressed: int) -> Buffer:
    """The batch in the topic's codec; everything else stays (C24, C29)."""
    raw = memoryview(data)[batch.position : batch.end]
    if not _needs_conversion(batch, config):
        return raw
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    target = _target_codec(config) or "none"
    level = levels.get(target)
    records = decode_records(raw, check_crc=False, max_decompressed=max_decompressed)
    return encode_batch(
        [(record.timestamp, record.key, record.value, record.headers) for record in records],
        compression=target,
        level=None if level == -1 else level,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        timestamp_type=batch.timestamp_type,
    )
