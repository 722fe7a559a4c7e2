"""Record batches (format v2), declared: the readable reference that the record kernels are tested equal to.

Only tests and tools run this. The kernels are in ``triokafka.records``; tests compare them with this specification.

A batch is what producers send, brokers store and consumers fetch, unchanged but for the few header fields that the
leader assigns (``base_offset``, ``partition_leader_epoch``), which the checksum therefore leaves out. Timestamps and
offsets of records are differences to the header's, so that they take one or two bytes each.
"""

from __future__ import annotations

import io
from typing import Any, BinaryIO, Final

from construct import (
    Array,
    BitsInteger,
    BitStruct,
    ChecksumError,
    Const,
    Construct,
    Enum,
    Flag,
    FocusedSeq,
    GreedyBytes,
    IfThenElse,
    Padding,
    Prefixed,
    Rebuild,
    StreamError,
    Struct,
    Terminated,
    len_,
    stream_read,
    this,
)

from triokafka.checksum import crc32c
from triokafka.protocol.primitives import Int8, Int16, Int32, Int64, UInt32, VarInt, VarLong


class NullableBytes(Construct):  # type: ignore[misc]  # construct has no types
    """Bytes behind their length, a signed varint; -1 is null."""

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> bytes | None:
        length = VarInt._parse(stream, context, path)
        if length == -1:
            return None
        if length < 0:
            raise StreamError(f"length is {length}", path=path)
        data: bytes = stream_read(stream, length, path)
        return data

    def _build(self, obj: bytes | None, stream: BinaryIO, context: Any, path: str) -> bytes | None:
        VarInt._build(-1 if obj is None else len(obj), stream, context, path)
        stream.write(obj or b"")
        return obj


class Text(NullableBytes):
    """A string behind its length, never null. Bytes that are not UTF-8 become replacement characters, as in Java."""

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> str:  # type: ignore[override]
        data = super()._parse(stream, context, path)
        if data is None:
            raise StreamError("the name of a header is null", path=path)
        return data.decode("utf-8", "replace")

    def _build(self, obj: str, stream: BinaryIO, context: Any, path: str) -> str:  # type: ignore[override]
        super()._build(obj.encode(), stream, context, path)
        return obj


class Checked(Construct):  # type: ignore[misc]
    """A CRC-32C, and after it the bytes that it covers: everything to the end."""

    def __init__(self, covered: Construct) -> None:
        super().__init__()
        self.covered = covered

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> Any:
        expected = UInt32._parse(stream, context, path)
        data = stream.read()
        if crc32c(data) != expected:
            raise ChecksumError("the checksum does not match", path=path)
        return self.covered._parsereport(io.BytesIO(data), context, path)

    def _build(self, obj: Any, stream: BinaryIO, context: Any, path: str) -> Any:
        covered = io.BytesIO()
        self.covered._build(obj, covered, context, path)
        UInt32._build(crc32c(covered.getvalue()), stream, context, path)
        stream.write(covered.getvalue())
        return obj


HeaderField: Final = Struct(
    "key" / Text(),
    "value" / NullableBytes(),
)

Record: Final = Prefixed(
    VarInt,
    Struct(
        "attributes" / Int8,  # unused, 0
        "timestamp_delta" / VarLong,  # milliseconds since the batch's base_timestamp; may be negative
        "offset_delta" / VarInt,  # since base_offset; compaction leaves gaps
        "key" / NullableBytes(),
        "value" / NullableBytes(),
        "headers"
        / FocusedSeq(
            "items",
            "count" / Rebuild(VarInt, len_(this.items)),
            "items" / Array(this.count, HeaderField),
        ),
        Terminated,
    ),
)

Attributes: Final = BitStruct(
    Padding(9),
    "delete_horizon" / Flag,  # base_timestamp is when the tombstones in it may go (KIP-534)
    "control" / Flag,  # holds a transaction marker, not records for applications
    "transactional" / Flag,
    "timestamp_type" / Enum(BitsInteger(1), create=0, append=1),  # append: max_timestamp is the time of all records
    "codec" / Enum(BitsInteger(3), none=0, gzip=1, snappy=2, lz4=3, zstd=4),
)

RecordBatch: Final = Struct(
    "base_offset" / Int64,  # of the first record; producers send 0 and the leader assigns
    "content"
    / Prefixed(
        Int32,
        Struct(
            "partition_leader_epoch" / Int32,  # of the leader that appended it
            "magic" / Const(2, Int8),
            "covered"
            / Checked(
                Struct(
                    "attributes" / Attributes,
                    "last_offset_delta" / Int32,  # stays when compaction removes the last record
                    "base_timestamp" / Int64,
                    "max_timestamp" / Int64,
                    "producer_id" / Int64,  # -1 without idempotence, and so are epoch and sequence
                    "producer_epoch" / Int16,
                    "base_sequence" / Int32,
                    "record_count" / Int32,
                    # Compressed, the records are one block of the codec.
                    "records"
                    / IfThenElse(this.attributes.codec == "none", Array(this.record_count, Record), GreedyBytes),
                    Terminated,
                )
            ),
        ),
    ),
)
