"""Reader of size-prefixed frames from a byte stream.

The reader checks a frame's size before it allocates memory, and allocates as bytes arrive: a peer that announces a
large frame and sends little costs little. Pipelined requests stay in the reader's small buffer or in the kernel until
the processor reads them. The reader reuses buffers for producers' large frames, since touching fresh memory costs more
than all other work on their bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Final

from triokafka.errors import ProtocolError
from triokafka.world import Stream
from triokafka.world.process_memory import untouched_memory

BUFFER_BYTES: Final = 4096
"""Size of a new connection's buffer. Frames that fit into it need no other memory while they arrive."""
_LARGER_BUFFER_BYTES: Final = 17_408
"""Its size once the peer has filled it with frames that this holds: a Produce request with one batch of the default
``batch.size`` fits in."""
_PREFIX: Final = Struct(">i")
_PREFIX_BYTES: Final = _PREFIX.size
_PRODUCE: Final = b"\0\0"  # API key at the start of a frame
_AT_ONCE: Final = 512 << 10
"""Maximum bytes of a frame that one receive waits for. The kernel buffers them for each of many connections."""
_MAPPED_BYTES: Final = 1_048_576
"""Larger frames get a separate memory mapping and reserve it in steps of this size."""
_PIECE_BYTES: Final = 262_144
"""Bytes of such a frame that the reader receives before it yields to other connections."""
_GROWTH: Final = 4
"""Growth factor of the buffer of an incoming frame. A smaller factor would copy more often."""


Reserve = Callable[[int], Awaitable[None]]


class FrameBuffers:
    """A pool of buffers for large frames.

    Args:
        limit: total bytes of free buffers in the pool. Frames that do not fit get new memory each time.
    """

    SMALLEST = 16_384

    def __init__(self, limit: int = 8_388_608) -> None:
        self._limit = limit
        self._largest = 1 << limit.bit_length() >> 1  # the largest power of two within the limit
        self.kept = 0
        """Bytes of free buffers in the pool."""
        self._free: dict[int, list[bytearray]] = {}  # by size, a power of two

    @classmethod
    def room_for(cls, size: int) -> int:
        """Return the size of the pooled buffer for a frame of ``size`` bytes."""
        return max(cls.SMALLEST, 1 << (size - 1).bit_length())

    def keeps(self, size: int) -> bool:
        """Whether the pool accepts the buffer of a frame of ``size`` bytes."""
        return self.SMALLEST <= size <= self._largest

    def take(self, size: int) -> bytearray | None:
        """Take a buffer of at least ``size`` bytes with arbitrary contents, or None. Return it with `give_back`."""
        room = self.room_for(size)
        free = self._free.get(room)
        if not free:
            return None
        self.kept -= room
        return free.pop()

    def give_back(self, buffer: bytearray) -> None:
        """Return a buffer to the pool, unless a view of it exists or the pool is full."""
        room = len(buffer)
        if room & (room - 1) or not self.SMALLEST <= room <= self._limit - self.kept:
            return
        try:
            buffer.pop()  # raises BufferError while a view exists
        except BufferError:
            return
        buffer.append(0)
        self.kept += room
        self._free.setdefault(room, []).append(buffer)


class FrameReader:
    """Reads frames from ``stream``.

    Args:
        max_bytes: largest frame accepted (``socket.request.max.bytes``).
        buffers: the pool of buffers for large Produce frames; without it, each frame gets new memory.
    """

    __slots__ = ("_borrowed", "_buffer", "_buffers", "_end", "_filled", "_max_bytes", "_start", "_stream", "room")

    def __init__(self, stream: Stream, *, max_bytes: int, buffers: FrameBuffers | None = None) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._buffers = buffers
        self._borrowed: bytearray | None = None
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self.room = BUFFER_BYTES
        """Size of the connection's buffer. ``reserve`` is not called for frames that fit in."""
        self._start = 0
        self._end = 0
        self._filled = False  # the last read filled the buffer

    def limit(self, max_bytes: int) -> None:
        """Accept frames of up to ``max_bytes`` from now on."""
        self._max_bytes = max_bytes

    async def read(self) -> bytearray | memoryview | None:
        """Wait for the next frame and return it without its size prefix; None when the peer closed between two frames.

        The caller may modify the frame and use it until it calls `done`. After a cancellation within a frame the reader
        is unusable.

        Raises:
            ProtocolError: the size is negative or too large, or the peer closed within a frame.
            OSError: the connection broke.
        """
        size = await self.read_size()
        return None if size is None else await self.read_body(size)

    async def read_size(self) -> int | None:
        """Read the size of the next frame, without an allocation: the first half of `read`."""
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
                f"frame size {size} (first bytes {first!r}{_looks_like(first)}) "
                f"is outside 0 to {self._max_bytes} (socket.request.max.bytes)"
            )
        self._start = start + _PREFIX_BYTES
        found: int = size
        return found

    async def read_body(self, size: int, reserve: Reserve | None = None) -> bytearray | memoryview:
        """Read the body of the frame: the second half of `read`. Does not wait when the whole frame is in the buffer.

        For a frame larger than `room`, the reader calls ``reserve`` with the total bytes of memory that it needs so
        far, before it takes more. ``reserve`` yields to other connections, since receiving from a fast peer never
        waits.
        """
        return await (self._read_large(size, reserve) if size > self.room else self._read_small(size))

    def take_body(self, size: int) -> bytearray | None:
        """Return the body of the frame if the buffer contains all of it, else None."""
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

    async def _read_small(self, size: int) -> bytearray:
        """Read a frame that fits into the buffer, of which a part is there."""
        while (have := self._end - self._start) < size:
            self._stream.expect(size - have, at_once=_AT_ONCE)
            if not await self._fill():
                raise ProtocolError(f"the peer closed after {have} of a frame's {size} bytes", offset=have)
        frame = self.take_body(size)
        assert frame is not None
        return frame

    async def _read_large(self, size: int, reserve: Reserve | None) -> bytearray | memoryview:
        """Read a frame larger than the buffer into a separate buffer, which grows as bytes arrive."""
        first = self._buffer[self._start : self._end]
        if size > _LARGER_BUFFER_BYTES:
            self._filled = False  # a larger buffer would not hold the frame either, and its start is copied
        buffers = self._buffers
        pooled = buffers is not None and buffers.keeps(size) and bytes(first[:2]) == _PRODUCE
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
            room.release()  # a bytearray with a view cannot grow
            if not received:
                raise ProtocolError(f"the peer closed after {have} of a frame's {size} bytes", offset=have)
            have += received
        if not pooled:
            return frame
        self._borrowed = frame
        return memoryview(frame)[:size]

    async def _read_mapped(self, size: int, reserve: Reserve | None) -> memoryview:
        """Read a frame into a separate memory mapping, which takes pages as they fill and frees them with the frame."""
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
        """Return the last frame's buffer to the pool. A buffer with an existing view stays out of the pool."""
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
        """Move the remaining bytes, part of the next frame, to the start of the buffer or of a larger one."""
        buffer = self._buffer
        rest = self._end - self._start
        left = buffer[self._start : self._end]
        if self._filled and self.room < _LARGER_BUFFER_BYTES:
            buffer = self._buffer = memoryview(bytearray(_LARGER_BUFFER_BYTES))
            self.room = _LARGER_BUFFER_BYTES
        buffer[:rest] = left
        self._start, self._end = 0, rest


def _looks_like(first: bytes) -> str:
    """Return a hint about the protocol of a peer that does not speak Kafka's."""
    if first[:2] == b"\x16\x03":
        return ": TLS, which this listener does not expect"
    if first[:4].isascii() and first[:4].decode().isprintable():
        return ": text, as of HTTP"
    return ""
