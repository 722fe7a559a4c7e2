"""Build batches: record by record (``BatchBuilder``) or from a sequence (``encode_batch``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from triokafka.checksum import crc32c
from triokafka.errors import IllegalStateError, MessageSizeTooLargeError
from triokafka.records import batch
from triokafka.records.compression import CODEC_NAMES, check_codec, compress
from triokafka.records.kernel import RecordAppender
from triokafka.structs import Buffer

Headers = Sequence[tuple[str, Buffer | None]]
Record = tuple[int, Buffer | None, Buffer | None, Headers]
"""Timestamp in milliseconds, key, value, headers."""

_RATIO_SAFETY: Final = 1.05  # estimates are slightly low, and a batch above its limit costs a split
_FIRST_CAPACITY: Final = 16 * 1024


class BatchBuilder(RecordAppender):
    """Builds one batch: append records, then build once.

    ``batch_bytes`` is the size limit of the finished batch; only a first record that is larger may exceed it. With
    compression, the finished size is an estimate from ``expected_ratio``, the compression ratio of earlier batches;
    afterwards ``compression_ratio`` is the ratio of this one. ``buffer`` is a pooled ``bytearray`` to write into; a
    larger one replaces it if it is too small.

    ``append`` returns -1, and ``append_records`` a smaller count, if the batch is full or built.
    ``count`` is the number of records, ``size`` the number of uncompressed bytes.

    Raises:
        ConfigurationError: the codec or level does not exist.
        UnsupportedCodecError: the codec's package is missing.
    """

    __slots__ = ("_built", "_packed", "batch_bytes", "codec", "compression_ratio", "level")

    def __init__(
        self,
        batch_bytes: int,
        *,
        compression: int | str = "none",
        level: int | None = None,
        expected_ratio: float = 1.0,
        buffer: bytearray | None = None,
    ) -> None:
        self.codec = check_codec(compression, level)
        limit = batch_bytes
        if self.codec:
            limit = batch.HEADER_SIZE + int((batch_bytes - batch.HEADER_SIZE) / (expected_ratio * _RATIO_SAFETY))
        super().__init__(min(limit, batch.MAX_BATCH_SIZE), max(batch_bytes, 0), buffer)
        self.batch_bytes = batch_bytes
        self.level = level
        self.compression_ratio = 1.0
        self._packed: tuple[bytearray, int] | None = None
        self._built: memoryview | None = None

    @property
    def compression(self) -> str:
        """The codec's name."""
        return CODEC_NAMES[self.codec]

    @property
    def full(self) -> bool:
        """Whether no more records fit: the batch is built, or at its limit."""
        return self.closed or self.size >= self.limit

    @property
    def estimated_size(self) -> int:
        """The size of the built batch in bytes; exact without compression."""
        if self._built is not None:
            return len(self._built)
        if self._packed is not None:
            return self._packed[1]
        if not self.codec:
            return self.size
        scale = (self.batch_bytes - batch.HEADER_SIZE) / max(self.limit - batch.HEADER_SIZE, 1)
        return batch.HEADER_SIZE + int((self.size - batch.HEADER_SIZE) * scale)

    @property
    def compressed(self) -> bool:
        """Whether the records are compressed, or need no compression."""
        return not self.codec or self._packed is not None

    def compress(self) -> None:
        """Close the batch and compress it, the slow part of `build`. Without a codec, only close it.

        May run in a thread while no other code uses the batch or its buffer; it releases the interpreter lock if the
        codec's package does. After an exception of that package the batch is closed and otherwise unchanged.
        """
        self.close()
        if not self.compressed:
            self._packed = self._compressed()

    def take_packed(self, size: int) -> None:
        """Accept records that another function compressed in place to ``size`` bytes, as `compress` would."""
        self.close()
        self.compression_ratio = size / max(self.size - batch.HEADER_SIZE, 1)
        self._packed = self.buffer, batch.HEADER_SIZE + size

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        control: bool = False,
        timestamp_type: int = 0,
    ) -> memoryview:
        """Close the batch and return it. A second call ignores its arguments and returns the same bytes.

        The bytes lie in ``buffer`` (elsewhere only when compression enlarged them) and are writable, for
        ``set_producer_state`` before a retry.

        Raises:
            IllegalStateError: the batch has no records.
        """
        if self._built is not None:
            return self._built
        count = self.count
        if not count:
            raise IllegalStateError("a batch needs at least one record")
        if self.codec:
            self.compress()
        else:
            self.close()
        out, size = self._packed if self._packed is not None else (self.buffer, self.size)
        attributes = (
            self.codec
            | (batch.LOG_APPEND_TIME if timestamp_type == 1 else 0)
            | (batch.TRANSACTIONAL if transactional else 0)
            | (batch.CONTROL if control else 0)
        )
        batch.HEADER.pack_into(
            out,
            0,
            base_offset,
            size - batch.LOG_OVERHEAD,
            leader_epoch,
            2,
            0,
            attributes,
            count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        built = memoryview(out)[:size]
        out[17:21] = crc32c(built[batch.CRC_COVERS_FROM :]).to_bytes(4, "big")
        self._built = built
        return built

    def _compressed(self) -> tuple[bytearray, int]:
        with memoryview(self.buffer) as whole, whole[batch.HEADER_SIZE : self.size] as payload:
            packed = compress(self.codec, payload, self.level)
        self.compression_ratio = len(packed) / max(self.size - batch.HEADER_SIZE, 1)
        size = batch.HEADER_SIZE + len(packed)
        out = self.buffer if size <= len(self.buffer) else bytearray(size)
        out[batch.HEADER_SIZE : size] = packed
        return out, size


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: int | str = "none",
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    timestamp_type: int = 0,
) -> bytes:
    """Return one v2 batch of all ``records``, each (timestamp in ms, key, value, headers), with consecutive offsets.

    Raises:
        IllegalStateError: there are no records.
        MessageSizeTooLargeError: the batch would not fit a protocol message.
        ConfigurationError, UnsupportedCodecError: see ``compress``.
    """
    builder = BatchBuilder(
        batch.MAX_BATCH_SIZE, compression=compression, level=level, buffer=bytearray(_FIRST_CAPACITY)
    )
    builder.append_records(records)
    if builder.count != len(records):
        raise MessageSizeTooLargeError(f"{len(records)} records do not fit one batch")
    built = builder.build(
        producer_id,
        producer_epoch,
        base_sequence,
        transactional,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        control=control,
        timestamp_type=timestamp_type,
    )
    return bytes(built)
