"""Decompression of a batch's records, by the caller or in a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from triokafka.errors import DecompressedSizeError
from triokafka.records.batch import HEADER_SIZE, BatchInfo
from triokafka.records.compression import decompress
from triokafka.records.decompressor import Decompressor
from triokafka.structs import Buffer


class BatchUnpacker:
    """Decompresses batches of format v2.

    Args:
        max_decompressed: limit on the decompressed size of a batch in bytes.
        inline_bytes: the caller decompresses batches of at most this size, compressed and decompressed; a thread must
            decompress larger ones.
        decompressor: has the buffers for the caller's batches; None uses new memory.
    """

    __slots__ = ("_decompress", "_inline_bytes", "max_decompressed")

    def __init__(self, max_decompressed: int, inline_bytes: int, decompressor: Decompressor | None) -> None:
        self.max_decompressed = max_decompressed
        self._inline_bytes = inline_bytes
        self._decompress = decompress if decompressor is None else decompressor.decompress

    def unpack(self, view: memoryview, info: BatchInfo) -> Buffer | None:
        """Return the decompressed records of a batch; None if a thread must decompress it. Raises as `decompress`."""
        packed = view[info.position + HEADER_SIZE : info.end]
        if len(packed) > self._inline_bytes:
            return None
        try:
            return self._decompress(info.codec, packed, max_size=min(self.max_decompressed, self._inline_bytes))
        except DecompressedSizeError as error:
            if self._inline_bytes < self.max_decompressed:
                return None
            raise _too_large(error, info) from None

    def task(self, view: memoryview, info: BatchInfo) -> Callable[[], Buffer]:
        """Return a function for any thread that decompresses a batch. It raises as `decompress`."""
        return partial(self._run, info, view[info.position + HEADER_SIZE : info.end])

    def _run(self, info: BatchInfo, packed: memoryview) -> Buffer:
        try:
            return decompress(info.codec, packed, max_size=self.max_decompressed)
        except DecompressedSizeError as error:
            raise _too_large(error, info) from None


def _too_large(error: DecompressedSizeError, info: BatchInfo) -> DecompressedSizeError:
    """Return the same error with the batch and the remedy."""
    return DecompressedSizeError(
        f"the batch of offsets {info.base_offset} to {info.last_offset} ({info.record_count} records,"
        f" {info.size} bytes compressed) is too large: {error}; raise max_decompressed_batch_bytes to read it"
    )
