"""A stream for tests: the peer's bytes are given beforehand, and the bytes sent to it are recorded."""

from __future__ import annotations

import trio

from triokafka.structs import Buffer
from triokafka.world import Stream


class ScriptedStream(Stream):
    """Delivers ``pieces`` one per receive, then waits for `feed` or the end."""

    def __init__(self, *pieces: bytes, peer: tuple[str, int] = ("192.0.2.1", 40_000), end: bool = True) -> None:
        self.sent = bytearray()
        self.closed = False
        self.send_buffers: list[int] = []
        self._pieces = [piece for piece in pieces if piece]
        self._end = end
        self._peer = peer
        self._more = trio.Event()

    def feed(self, piece: bytes) -> None:
        """The peer sends something."""
        self._pieces.append(piece)
        self._more.set()

    def hang_up(self) -> None:
        """The peer closes."""
        self._end = True
        self._more.set()

    async def send(self, *buffers: Buffer) -> None:
        if self.closed:
            raise trio.ClosedResourceError
        for buffer in buffers:
            self.sent += buffer

    def widen_send_buffer(self, size: int) -> None:
        self.send_buffers.append(size)

    async def receive_into(self, buffer: memoryview) -> int:
        while not self._pieces:
            if self.closed:
                raise trio.ClosedResourceError
            if self._end:
                return 0
            self._more = trio.Event()
            await self._more.wait()
        piece = self._pieces.pop(0)
        size = min(len(piece), len(buffer))
        buffer[:size] = piece[:size]
        if size < len(piece):
            self._pieces.insert(0, piece[size:])
        return size

    def close(self) -> None:
        self.closed = True
        self._more.set()

    @property
    def peer_address(self) -> tuple[str, int]:
        return self._peer

    @property
    def local_address(self) -> tuple[str, int]:
        return ("192.0.2.9", 9092)
