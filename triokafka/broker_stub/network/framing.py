"""Size-prefixed frames out of a byte stream.

A frame's size is checked before anything is allocated for it. What a peer sends ahead (pipelined requests) stays in the
reader's small buffer, or in the kernel's, until it is asked for. The large frames of producers are read into buffers
that are used again: touching fresh memory costs more than anything else that is done with their bytes.
"""

from __future__ import annotations

from typing import Final

from triokafka.errors import ProtocolError
from triokafka.world import Stream

_BUFFER_BYTES: Final = 4096
_LARGER_BUFFER_BYTES: Final = 16_384  # of a peer that has sent more than the small one holds
_PREFIX_BYTES: Final = 4
_PRODUCE: Final = b"\0\0"  # the API key, with which a frame begins


class FrameBuffers:
    """Buffers for large frames, kept for the next one.

    Args:
        limit: bytes kept in all; larger frames, and those beyond, are allocated each time.
    """

    SMALLEST = 16_384

    def __init__(self, limit: int = 8_388_608) -> None:
        self._limit = limit
        self._kept = 0
        self._free: dict[int, list[bytearray]] = {}  # by size, a power of two

    @property
    def kept(self) -> int:
        """Bytes that wait for a frame."""
        return self._kept

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes, with anything in it; `give_back` it when the frame is done with."""
        room = max(self.SMALLEST, 1 << (size - 1).bit_length())
        if room > self._limit:
            return bytearray(size)
        free = self._free.get(room)
        if not free:
            return bytearray(room)
        self._kept -= room
        return free.pop()

    def give_back(self, buffer: bytearray) -> None:
        """Keep a buffer for the next frame, unless somebody still has a view of it, or enough are kept."""
        room = len(buffer)
        if room & (room - 1) or not self.SMALLEST <= room <= self._limit - self._kept:
            return
        try:
            buffer.pop()  # refused while there are views
        except BufferError:
            return
        buffer.append(0)
        self._kept += room
        self._free.setdefault(room, []).append(buffer)


class FrameReader:
    """Reads one frame after the other from ``stream``.

    Args:
        max_bytes: largest frame accepted (``socket.request.max.bytes``).
        buffers: where buffers for large Produce frames come from; none are used again when left out.
    """

    __slots__ = ("_borrowed", "_buffer", "_buffers", "_end", "_filled", "_max_bytes", "_start", "_stream")

    def __init__(self, stream: Stream, *, max_bytes: int, buffers: FrameBuffers | None = None) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._buffers = buffers
        self._borrowed: bytearray | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = 0
        self._end = 0
        self._filled = False  # the last read filled the buffer

    async def read(self) -> bytearray | memoryview | None:
        """Wait for the next frame and return it without its size prefix; None when the peer closed between two frames.

        The frame may be changed, and kept until `done` is called. If cancelled within a frame, the reader is of no
        further use.

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
        frame: bytearray | memoryview
        if self._buffers is not None and size >= FrameBuffers.SMALLEST and bytes(buffer[start : start + 2]) == _PRODUCE:
            self._borrowed = self._buffers.take(size)
            frame = memoryview(self._borrowed)[:size]
        else:
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

    def done(self) -> None:
        """The last frame is not looked at any more; a view that somebody keeps stays as it is nevertheless."""
        if self._borrowed is not None and self._buffers is not None:
            self._buffers.give_back(self._borrowed)
        self._borrowed = None

    async def _fill(self) -> bool:
        buffer = self._buffer
        grows = self._filled and len(buffer) < _LARGER_BUFFER_BYTES
        if self._start or grows:
            rest = bytes(buffer[self._start : self._end])  # a few bytes of the next size prefix, if any
            if grows:
                buffer = self._buffer = memoryview(bytearray(_LARGER_BUFFER_BYTES))
            buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        room = buffer[self._end :]
        received = await self._stream.receive_into(room)
        self._filled = received == len(room)
        self._end += received
        return received > 0
