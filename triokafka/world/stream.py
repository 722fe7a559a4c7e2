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

    ``waits`` counts how often `receive_into` has waited, so that other tasks had their turn; it may say less.
    """

    waits: int = 0

    @abstractmethod
    async def send(self, *buffers: Buffer) -> None:
        """Send all bytes of all buffers, in order.

        Waits while the peer's window is full; when it need not wait it does not yield to other tasks. If cancelled, an
        unknown part was sent and the stream must be closed.
        """

    async def send_parts(self, parts: Sequence[Buffer | FileSlice]) -> None:
        """`send` for parts that may be slices of files. The event loop does not wait for a disk meanwhile.

        Raises `OSError` also when a file is not what it was.
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
        """Send what can be sent without waiting, from the front, and return how many bytes that was; maybe 0.

        Must not be called while `send` waits. A stream that cannot do it takes nothing.
        """
        return 0

    @abstractmethod
    async def receive_into(self, buffer: memoryview) -> int:
        """Receive at least one byte into ``buffer`` and return the number; 0 means that the peer has closed.

        While bytes are there it need not yield to other tasks. Cancelling loses nothing.
        """

    def expect(self, size: int, *, at_once: int) -> None:
        """The peer has announced ``size`` more bytes: whoever waits for them need not be woken for every few.

        At most ``at_once`` of them are waited for in one go, in the kernel's memory.
        """
        return

    def limit_silence(self, seconds: float) -> None:
        """Have the system end the connection when the peer's system has been gone for about so long.

        It covers bytes that the peer never acknowledges, and a peer that vanishes while nothing is sent. Where the
        system has no such limits, or the stream is no socket, nothing happens.
        """
        return

    def bytes_drained(self) -> int:
        """Return a number that grows as the peer's system takes bytes that had to wait here; 0 where it is unknown."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Close at once, without waiting; again does nothing. Waiting calls raise `trio.ClosedResourceError`."""

    @property
    @abstractmethod
    def peer_address(self) -> tuple[str, int]:
        """Host and port of the other end."""

    @property
    @abstractmethod
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end."""
