"""Size-prefixed frames out of a byte stream.

A frame's size is checked before anything is allocated for it. What a peer sends ahead (pipelined requests) stays in the
reader's small buffer, or in the kernel's, until it is asked for.
"""

from __future__ import annotations

from typing import Final

from triokafka.errors import ProtocolError
from triokafka.world import Stream

_BUFFER_BYTES: Final = 4096
_PREFIX_BYTES: Final = 4


class FrameReader:
    """Reads one frame after the other from ``stream``.

    Args:
        max_bytes: largest frame accepted (``socket.request.max.bytes``).
    """

    __slots__ = ("_buffer", "_end", "_max_bytes", "_start", "_stream")

    def __init__(self, stream: Stream, *, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = 0
        self._end = 0

    async def read(self) -> bytearray | None:
        """Wait for the next frame and return it without its size prefix; None when the peer closed between two frames.

        The frame is a buffer of its own that the caller may keep and change. If cancelled within a frame, the reader is
        of no further use.

        Raises:
            ProtocolError: the size is negative or too large, or the peer closed within a frame.
            OSError: the connection broke.
        """
        while self._end - self._start < _PREFIX_BYTES:
            if not await self._fill():
                if self._start == self._end:
                    return None
                raise ProtocolError("the peer closed within a frame's size", offset=self._end - self._start)
        buffer, start = self._buffer, self._start
        size = int.from_bytes(buffer[start : start + _PREFIX_BYTES], "big", signed=True)
        if not 0 <= size <= self._max_bytes:
            raise ProtocolError(
                f"a frame of {size} bytes was announced (first bytes {bytes(buffer[start : start + 8])!r}); "
                f"0 to {self._max_bytes} are accepted (socket.request.max.bytes)"
            )
        start += _PREFIX_BYTES
        frame = bytearray(size)
        have = min(size, self._end - start)
        frame[:have] = buffer[start : start + have]
        self._start = start + have
        if self._start == self._end:
            self._start = self._end = 0
        if have < size:
            rest = memoryview(frame)
            while have < size:
                received = await self._stream.receive_into(rest[have:])
                if not received:
                    raise ProtocolError(f"the peer closed after {have} of a frame's {size} bytes", offset=have)
                have += received
        return frame

    async def _fill(self) -> bool:
        buffer = self._buffer
        if self._start:  # a few bytes of the next size prefix
            rest = bytes(buffer[self._start : self._end])
            buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        received = await self._stream.receive_into(buffer[self._end :])
        self._end += received
        return received > 0
