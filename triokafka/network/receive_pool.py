"""A pool of buffers for large responses. A buffer is reused when no view of it exists.

The operating system takes back new buffers of megabytes after every fetch and faults them in again, which costs more
than decoding. The pool returns a buffer as a memoryview, whose slices may live for any time. CPython reveals remaining
views: a `bytearray` with exported views cannot change its length.
"""

from __future__ import annotations

_SMALLEST = 128 << 10


class ReceivePool:
    """At most ``max_bytes`` of kept buffers, in sizes of powers of two. Not thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.kept_bytes = 0
        """Total size of the pool's buffers in bytes, in use or not."""
        self._kept: dict[int, list[bytearray]] = {}

    def take(self, size: int) -> memoryview:
        """Return a writable view of ``size`` bytes with undefined content."""
        rounded = max(_SMALLEST, 1 << (size - 1).bit_length())
        kept = self._kept.setdefault(rounded, [])
        for position, buffer in enumerate(kept):
            if _has_no_views(buffer):
                # Move it to the end: the next search starts with the least recently used buffers.
                kept.append(kept.pop(position))
                return memoryview(buffer)[:size]
        if self.kept_bytes + rounded > self._max_bytes:
            self._drop_unused(rounded)
        if self.kept_bytes + rounded > self._max_bytes:
            return memoryview(bytearray(size))
        buffer = bytearray(rounded + 1)
        self.kept_bytes += rounded
        kept.append(buffer)
        return memoryview(buffer)[:size]

    def _drop_unused(self, wanted: int) -> None:
        for rounded, kept in self._kept.items():
            for buffer in list(kept):
                if self.kept_bytes + wanted <= self._max_bytes:
                    return
                if _has_no_views(buffer):
                    kept[:] = [other for other in kept if other is not buffer]
                    self.kept_bytes -= rounded


def _has_no_views(buffer: bytearray) -> bool:
    try:
        buffer.append(buffer.pop())  # stays within the allocation, which is one byte larger than any returned view
    except BufferError:
        return False
    return True
