"""The interface of the outside, as one node sees it."""

from __future__ import annotations

import errno
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from triokafka.world.doorbell import Doorbell
from triokafka.world.listener import Listener
from triokafka.world.storage import Storage
from triokafka.world.stream import Stream

if TYPE_CHECKING:
    from triokafka.world.process_usage import ProcessUsage

T = TypeVar("T")


_MEMORY_OF_A_WORLD: Final = 4 << 30
"""The memory of a simulated world, in bytes."""


class World(ABC):
    """Clocks, randomness, network, storage and threads, as one node sees them.

    ``random`` is the node's only source of randomness; ``storage`` its file system; ``cpus`` the number of processors
    that its threads may run on.
    """

    random: random.Random
    storage: Storage
    cpus: int = 4

    @abstractmethod
    def now(self) -> float:
        """Return seconds on this node's monotonic clock; only differences are meaningful."""

    def loop_clock(self) -> Callable[[], float]:
        """Return a function that does the same as `now`, and may cost less, for objects that end with the event loop.

        Call it inside of the event loop; the function is for that event loop only.
        """
        return self.now

    @abstractmethod
    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch on this node's wall clock; may jump."""

    @abstractmethod
    def deadline(self, at: float) -> float:
        """The Trio deadline for the point ``at`` on `now`, as ``trio.CancelScope(deadline=…)`` takes it."""

    @abstractmethod
    def random_bytes(self, size: int) -> bytes:
        """Unpredictable bytes: nonces, tokens."""

    @abstractmethod
    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        """All addresses of a host name, in the resolver's order. Raises `OSError` when it has none."""

    async def canonical_name(self, address: str) -> str:
        """The full name of a numeric address as the resolver knows it, or the address itself."""
        return address

    @abstractmethod
    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> Stream:
        """Connect to one address. The caller bounds the time. Raises `OSError`.

        The sizes are those of the socket's buffers in the kernel; -1 leaves them to the operating system.
        """

    @abstractmethod
    async def listen(
        self,
        host: str,
        port: int,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = 1024,
    ) -> Listener:
        """Listen on one address; port 0 takes a free one. Raises `OSError` (``EADDRINUSE``, …).

        The sizes are those of the buffers of every accepted connection in the kernel, -1 leaves them to the operating
        system; ``backlog`` is how many connections may wait to be accepted.
        """

    @abstractmethod
    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function away from the event loop and return its result. Not stopped by cancellation."""

    async def run_in_abandonable_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Like `run_in_thread`, but a cancelled call returns immediately, while the function continues in its thread.

        The function must not touch any object that is used afterwards.
        """
        return await self.run_in_thread(function, *args)

    def available_memory(self) -> int:
        """Return how many bytes of memory this process may use in total."""
        return _MEMORY_OF_A_WORLD

    def process_usage(self) -> ProcessUsage | None:
        """Return what this process uses, and the thread that calls; None in a simulated world."""
        return None

    def keep_little_free_memory(self) -> None:
        """Return large pieces of freed memory to the operating system from now on."""
        return

    def release_free_memory(self) -> None:
        """Return memory that this process has freed to the operating system. Blocks for some milliseconds."""
        return

    @property
    def has_doorbells(self) -> bool:
        """Whether `doorbell` works. A simulated world runs no threads, and has none."""
        return False

    def doorbell(self) -> Doorbell:
        """Return a bell that a thread can ring without the interpreter. Raises `OSError` without file descriptors."""
        raise OSError(errno.ENOSYS, "this world has no doorbells, because it runs no threads")

    def raise_file_limit(self) -> int:
        """Raise this process's limit of open files and connections to the maximum, and return it; 0 if unknown."""
        return 0

    def uuid(self) -> uuid.UUID:
        """A random (version 4) UUID from `random_bytes`."""
        return uuid.UUID(bytes=self.random_bytes(16), version=4)
