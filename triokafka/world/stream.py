"""The interface of a byte stream to one peer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from triokafka.structs import Buffer
from triokafka.world.file_slice import FileSlice
from triokafka.world.threads import in_thread


class Stream(ABC):
    """A byte stream to one peer. One task may send while another receives.

    All methods raise `OSError` when the connection is gone (`BrokenPipeError`, `ConnectionResetError`, …) and
    `trio.ClosedResourceError` after `close`.

    ``waits`` counts how often `receive_into` has waited, and so let other tasks run. It is a lower bound.
    """

    waits: int = 0

    @abstractmethod
    async def send(self, *buffers: Buffer) -> None:
        """Send all bytes of all buffers, in order.

        Waits while the peer's window is full; otherwise it does not yield to other tasks. If cancelled, an unknown part
        was sent, and the stream must be closed.
        """

    async def send_parts(self, parts: Sequence[Buffer | FileSlice]) -> None:
        """`send` for parts that may be slices of files. The event loop never waits for the disk.

        Also raises `OSError` when a file was changed from outside.
        """
        buffers: list[Buffer] = []
        for part in parts:
            if isinstance(part, FileSlice):
                whole = bytearray(len(part))
                if part.copy_resident(0, memoryview(whole)) == len(whole):
                    part = whole
                else:
                    part = await in_thread(None, part.read)
            buffers.append(part)
        await self.send(*buffers)

    def try_send(self, *buffers: Buffer) -> int:
        """Send as many bytes as possible without waiting, from the front, and return their number.

        Must not be called while `send` waits. A stream without this ability returns 0.
        """
        return 0

    @abstractmethod
    async def receive_into(self, buffer: memoryview) -> int:
        """Receive at least one byte into ``buffer`` and return the number; 0 means that the peer has closed.

        It need not yield to other tasks while bytes are available. Cancelling loses no byte.
        """

    def expect(self, size: int, *, at_once: int) -> None:
        """Announce that the peer will send ``size`` more bytes, so that `receive_into` need not wake for every few.

        A wait ends when ``at_once`` bytes are in the kernel's buffer, at the latest.
        """
        return

    def limit_silence(self, seconds: float) -> None:
        """Let the operating system end the connection when the peer's system has been gone for about ``seconds``.

        This covers bytes that the peer never acknowledges, and a peer that vanishes while nothing is sent. Nothing
        happens where the system has no such limits, or the stream is not a socket.
        """
        return

    def widen_send_buffer(self, size: int) -> None:
        """Let the kernel hold up to ``size`` bytes that the peer has not received yet; it may allow fewer."""
        return

    def bytes_drained(self) -> int:
        """Return a number that grows as the peer acknowledges queued bytes; 0 where it is unknown."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Close without waiting. Waiting calls raise `trio.ClosedResourceError`. A second call does nothing."""

    @property
    @abstractmethod
    def peer_address(self) -> tuple[str, int]:
        """Host and port of the other end."""

    @property
    @abstractmethod
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end."""
