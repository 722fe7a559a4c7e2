"""Size-prefixed frames out of a byte stream.

A frame's size is checked before anything is allocated for it, and memory is allocated as its bytes come in: who
announces much and sends little costs little. What a peer sends ahead (pipelined requests) stays in the reader's small
buffer, or in the kernel's, until it is asked for. The large frames of producers are read into buffers that are used
again: touching fresh memory costs more than anything else that is done with their bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final

from triokafka.errors import ProtocolError
from triokafka.world import Stream
from triokafka.world.process_memory import untouched_memory

BUFFER_BYTES: Final = 4096
"""The buffer of a connection: smaller frames need no memory beside it."""
_LARGER_BUFFER_BYTES: Final = 16_384  # of a peer that has sent more than the small one holds
_PREFIX: Final = Struct(">i")
_PREFIX_BYTES: Final = _PREFIX.size
_PRODUCE: Final = b"\0\0"  # the API key, with which a frame begins
_AT_ONCE: Final = 512 << 10
"""Bytes of a frame that are waited for in one go: the kernel keeps them, and there may be many connections."""
_MAPPED_BYTES: Final = 1_048_576
"""Larger frames get memory of their own, and reserve this much of it at a time."""
_PIECE_BYTES: Final = 262_144
"""What is received of such a frame before other connections have their turn."""
_GROWTH: Final = 4
"""How many times its bytes a frame may occupy while it comes in: less would be copied more often."""


Reserve = Callable[[int], Awaitable[None]]


class FrameBuffers:
    """Buffers for large frames, kept for the next one.

    Args:
        limit: bytes kept in all; for larger frames, and those beyond, memory is allocated each time.
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

    @classmethod
    def room_for(cls, size: int) -> int:
        """The size of the buffer that a frame of ``size`` bytes is kept in."""
        return max(cls.SMALLEST, 1 << (size - 1).bit_length())

    def keeps(self, size: int) -> bool:
        """Whether the buffer of a frame of ``size`` bytes is worth keeping, and small enough."""
        return size >= self.SMALLEST and self.room_for(size) <= self._limit

    def take(self, size: int) -> bytearray | None:
        """A kept buffer of at least ``size`` bytes, with anything in it, or None; `give_back` it in the end."""
        room = self.room_for(size)
        free = self._free.get(room)
        if not free:
            return None
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
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
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
        size = await self.read_size()
        return None if size is None else await self.read_body(size)

    async def read_size(self) -> int | None:
        """The first half of `read`: the size of the next frame, for which nothing is allocated yet."""
        while self._end - self._start < _PREFIX_BYTES:
            if not await self._fill():
                if self._start == self._end:
                    return None
                raise ProtocolError("the peer closed within a frame's size", offset=self._end - self._start)
        start = self._start
        (size,) = _PREFIX.unpack_from(self._buffer, start)
        if not 0 <= size <= self._max_bytes:
            buffer = self._buffer
            first = bytes(buffer[start : min(start + 8, self._end)])
            raise ProtocolError(
                f"a frame of {size} bytes was announced (first bytes {first!r}{_looks_like(first)}); "
                f"0 to {self._max_bytes} are accepted (socket.request.max.bytes)"
            )
        self._start = start + _PREFIX_BYTES
        found: int = size
        return found

    async def read_body(self, size: int, reserve: Reserve | None = None) -> bytearray | memoryview:
        """The second half of `read`; does not wait when all of the frame is here already.

        ``reserve`` is called with the bytes of memory that the frame needs in all, before it takes more. It lets other
        connections have their turn: a peer that sends fast enough never lets the stream wait.
        """
        frame = self.take_body(size)
        return frame if frame is not None else await self._read_large(size, reserve)

    def take_body(self, size: int) -> bytearray | None:
        """As `read_body`, without waiting: None when not all of the frame is here."""
        start = self._start
        end = start + size
        if end > self._end:
            return None
        frame = bytearray(self._buffer[start:end])
        if end == self._end:
            self._start = self._end = 0
        else:
            self._start = end
        return frame

    async def _read_large(self, size: int, reserve: Reserve | None) -> bytearray | memoryview:
        """A frame that goes on beyond the buffer: into a buffer of its own, which grows with what comes in."""
        first = self._buffer[self._start : self._end]
        buffers = self._buffers if self._buffers is not None and self._buffers.keeps(size) else None
        pooled = buffers is not None and bytes(first[:2]) == _PRODUCE
        if size > _MAPPED_BYTES and not pooled:
            return await self._read_mapped(size, reserve)
        frame = buffers.take(size) if pooled and buffers is not None else None
        if frame is None:
            frame = bytearray(min(size, FrameBuffers.SMALLEST))
        have = len(first)
        frame[:have] = first
        self._start = self._end = 0
        self._stream.expect(size - have, at_once=_AT_ONCE)
        reserved = 0
        while have < size:
            if have >= reserved and reserve is not None:
                reserved = min(size, have + _MAPPED_BYTES)
                await reserve(reserved)
            if have == len(frame):
                final = FrameBuffers.room_for(size) if pooled else size
                frame.extend(bytes(min(final, have * _GROWTH) - have))
            room = memoryview(frame)[have : reserved or size]
            received = await self._stream.receive_into(room)
            room.release()  # a buffer that is looked at cannot grow
            if not received:
                raise ProtocolError(f"the peer closed after {have} of a frame's {size} bytes", offset=have)
            have += received
        if not pooled:
            return frame
        self._borrowed = frame
        return memoryview(frame)[:size]

    async def _read_mapped(self, size: int, reserve: Reserve | None) -> memoryview:
        """A frame into memory of its own, whose pages are taken as they are filled and returned with the frame."""
        stream, first = self._stream, self._buffer[self._start : self._end]
        have = len(first)
        frame = untouched_memory(size)
        frame[:have] = first
        self._start = self._end = 0
        stream.expect(size - have, at_once=_AT_ONCE)
        while have < size:
            reserved = min(size, have + _PIECE_BYTES)
            if reserve is not None:
                await reserve(reserved)
            while have < reserved:
                with frame[have:reserved] as room:
                    received = await stream.receive_into(room)
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
        if self._start or self._filled:
            self._make_room()
        buffer = self._buffer
        received = await self._stream.receive_into(buffer[self._end :] if self._end else buffer)
        self._end += received
        self._filled = self._end == len(buffer)
        return received > 0

    def _make_room(self) -> None:
        """Have the rest, a few bytes of the next size prefix, at the start of the buffer, or of a larger one."""
        buffer = self._buffer
        rest = bytes(buffer[self._start : self._end])
        if self._filled and len(buffer) < _LARGER_BUFFER_BYTES:
            buffer = self._buffer = memoryview(bytearray(_LARGER_BUFFER_BYTES))
        buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)


def _looks_like(first: bytes) -> str:
    """What most people who come with another protocol have got wrong."""
    if first[:2] == b"\x16\x03":
        return ": TLS, which this listener does not expect"
    if first[:4].isascii() and first[:4].decode().isprintable():
        return ": text, as of HTTP"
    return ""
