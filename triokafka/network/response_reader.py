"""Split the bytes of a broker into the frames of its responses."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from triokafka.errors import ProtocolError, SecurityProtocolMismatchError
from triokafka.network.foreign_protocol import describe_foreign_protocol, is_tls
from triokafka.network.receive_pool import ReceivePool
from triokafka.structs import Buffer
from triokafka.world import Stream

_RECEIVE_BYTES: Final = 64 << 10
_BYTES_BETWEEN_CHECKPOINTS: Final = 4 << 20
# The largest SO_RCVLOWAT: each wake-up of the loop finds cold processor caches after megabytes of data, which costs as
# much as copying some hundred kilobytes. A client has few connections, so the kernel may hold this much for each.
_AT_ONCE: Final = 4 << 20
_SIZE: Final = struct.Struct(">i")


class ResponseReader:
    """Reads one stream. ``name`` is the peer's, for messages; a frame of more than ``max_bytes`` is refused.

    Large frames are in buffers of the ``pool``, small ones are copies. ``before_waiting`` is called after all received
    frames were handled, before the reader waits for more.
    """

    def __init__(
        self,
        stream: Stream,
        pool: ReceivePool,
        *,
        name: str,
        max_bytes: int,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.bytes_received = 0
        self._before_waiting = before_waiting
        self._stream = stream
        self._pool = pool
        self._name = name
        self._max_bytes = max_bytes
        self._is_broker = False

    async def read(self, handle: Callable[[Buffer], bool], handle_large: Callable[[Buffer], Awaitable[bool]]) -> None:
        """Call a function with every frame, without its size prefix, until it returns False or the peer closes.

        ``handle_large`` is called instead of ``handle`` with frames that do not fit the reader's own buffer. Nothing is
        received while it waits. Yields to other tasks at least once for every four megabytes.

        Raises:
            ProtocolError: the size is invalid, or the peer is not a Kafka broker.
            SecurityProtocolMismatchError: the peer answers with TLS.
            OSError, trio.ClosedResourceError: the stream has ended for another reason.
        """
        buffer = bytearray(_RECEIVE_BYTES)
        view = memoryview(buffer)
        start = end = 0
        while True:
            while end - start >= 4:
                (size,) = _SIZE.unpack_from(buffer, start)
                if not 4 <= size <= self._max_bytes or not self._is_broker:
                    self._check(size, view[start:end])
                here = end - start - 4
                if here >= size:
                    # A copy, because decoded responses may keep slices, and this buffer is reused immediately.
                    frame: Buffer = bytes(view[start + 4 : start + 4 + size])
                    start += 4 + size
                    goes_on = handle(frame)
                elif size + 4 > _RECEIVE_BYTES:
                    large = self._pool.take(size)
                    large[:here] = view[start + 4 : end]
                    start = end = 0
                    self._stream.expect(size - here, at_once=_AT_ONCE)
                    while here < size:
                        got = await self._receive(large[here:])
                        if not got:
                            return
                        here += got
                    frame = large.toreadonly()
                    del large
                    goes_on = await handle_large(frame)
                else:
                    break
                if not goes_on:
                    return
                self._is_broker = True
                del frame
            if start == end:
                start = end = 0
            elif start:
                buffer[: end - start] = buffer[start:end]
                start, end = 0, end - start
            got = await self._receive(view[end:])
            if not got:
                return
            end += got

    async def _receive(self, room: memoryview) -> int:
        """Receive into ``room``; return 0 if the peer has closed."""
        self._before_waiting()
        got = await self._stream.receive_into(room)
        before = self.bytes_received // _BYTES_BETWEEN_CHECKPOINTS
        self.bytes_received += got
        if self.bytes_received // _BYTES_BETWEEN_CHECKPOINTS != before:
            # Receiving does not yield while bytes are available; a fast broker must not starve the other tasks.
            await trio.lowlevel.checkpoint()
        return got

    def _check(self, size: int, received: memoryview) -> None:
        if not self._is_broker and (protocol := describe_foreign_protocol(bytes(received[:64]))) is not None:
            kind = SecurityProtocolMismatchError if is_tls(bytes(received[:2])) else ProtocolError
            raise kind(f"{self._name} {protocol}")
        if not 4 <= size <= self._max_bytes:
            raise ProtocolError(
                f"{self._name} announced a response of {size} bytes; allowed are 4 to {self._max_bytes}"
                f" (receive_message_max_bytes). It began with {bytes(received[:16])!r}"
            )
