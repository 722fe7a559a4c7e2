"""A connection that can freeze, lose all data, or slow down to a drip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from triokafka.structs import Buffer
from triokafka.testing.gate import BothGates, Gate
from triokafka.world import FileSlice, Stream
from triokafka.world.forwarding_stream import ForwardingStream

_DRIP_SECONDS: Final = 0.5
"""Seconds between the transfers of a dripping connection."""


class FaultyStream(ForwardingStream):
    """Another stream with faults.

    Args:
        stream: the other stream.
        gate: shut while connections are frozen.
    """

    def __init__(self, stream: Stream, gate: Gate | BothGates) -> None:
        super().__init__(stream)
        self._gate = gate
        self._closed = False
        self._ended = trio.Event()
        self._lost = False
        self._bytes_per_second: float | None = None
        self._receive_at = 0.0

    # Faults

    def lose(self) -> None:
        """Lose all data in both directions from now on; neither end notices."""
        self._lost = True

    def slow_down(self, bytes_per_second: float) -> None:
        """Limit the transfer in each direction to this many bytes a second from now on."""
        self._bytes_per_second = bytes_per_second

    async def _thawed(self) -> None:
        await self._gate.wait()
        if self._closed:
            raise trio.ClosedResourceError("this connection was closed here")

    # The stream

    async def send(self, *buffers: Buffer) -> None:
        if not self._gate.is_open:
            await self._thawed()
        if self._lost:
            await trio.lowlevel.checkpoint()
        elif self._bytes_per_second is None:
            await self.inner.send(*buffers)
        else:
            await self._send_slowly(memoryview(b"".join(buffers)), self._bytes_per_second)

    async def _send_slowly(self, data: memoryview, bytes_per_second: float) -> None:
        size = max(1, int(bytes_per_second * _DRIP_SECONDS))
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            await trio.sleep(len(piece) / bytes_per_second)
            if not self._gate.is_open:
                await self._thawed()
            if self._lost:
                return
            await self.inner.send(piece)

    async def send_parts(self, parts: Sequence[Buffer | FileSlice]) -> None:
        if not self._gate.is_open:
            await self._thawed()
        if self._lost:
            await trio.lowlevel.checkpoint()
        elif self._bytes_per_second is None:
            await self.inner.send_parts(parts)
        else:
            await super().send_parts(parts)

    def try_send(self, *buffers: Buffer) -> int:
        if not self._gate.is_open:
            return 0
        if self._lost:
            return sum(map(len, buffers))
        return self.inner.try_send(*buffers) if self._bytes_per_second is None else 0

    async def receive_into(self, buffer: memoryview) -> int:
        bytes_per_second = self._bytes_per_second
        if bytes_per_second is not None:
            # Waits before it receives: bytes that were received and not returned would be lost by a cancellation.
            await trio.sleep_until(self._receive_at)
            buffer = buffer[: max(1, int(bytes_per_second * _DRIP_SECONDS))]
        try:
            size = await self.inner.receive_into(buffer)
        except OSError:
            if not self._lost:
                raise
        finally:
            self.waits = self.inner.waits
        if self._lost:
            await self._ended.wait()
            raise trio.ClosedResourceError("this connection was closed here")
        if self._bytes_per_second is not None:
            self._receive_at = trio.current_time() + size / self._bytes_per_second
        if not self._gate.is_open:
            await self._thawed()
        return size

    def expect(self, size: int, *, at_once: int) -> None:
        self.inner.expect(size, at_once=at_once)

    def close(self) -> None:
        self._closed = True
        self._ended.set()
        super().close()
