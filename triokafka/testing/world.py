"""The world as one simulated process sees it: its own clocks, its own randomness, its host's disk and network."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from triokafka.structs import Buffer
from triokafka.testing.network import Network
from triokafka.world import File, Listener, Storage, Stream, World
from triokafka.world.memory import MemoryStorage

if TYPE_CHECKING:
    from triokafka.testing.simulated import Simulation

T = TypeVar("T")

_EPOCH_MS = 1_700_000_000_000  # what the wall clocks show when a simulation begins


class SimulatedWorld(World):
    """One process on a simulated host. It ends with `halt`: from then on every door to the outside raises.

    Args:
        simulation: owns clock, network and trace.
        node: the host's name, and its address on the network.
        incarnation: which process on that host; each draws its own random numbers.
        disk: the host's storage; it outlives the process.
        clock_skew: seconds that the host's clocks are ahead.
    """

    def __init__(
        self, simulation: Simulation, node: str, incarnation: int, disk: MemoryStorage, *, clock_skew: float = 0.0
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self.clock_skew = clock_skew
        self.random = random.Random(f"{simulation.seed}/{node}/{incarnation}")
        self.storage = _ProcessStorage(self, disk)
        self._network: Network = simulation.network
        self._started = simulation.started
        self._halted = False
        self._resumed = trio.Event()
        self._resumed.set()

    def now(self) -> float:
        return trio.current_time() + self.clock_skew

    def wall_ms(self) -> int:
        return _EPOCH_MS + round((trio.current_time() - self._started + self.clock_skew) * 1000)

    def deadline(self, at: float) -> float:
        return at - self.clock_skew

    def random_bytes(self, size: int) -> bytes:
        return self.random.randbytes(size)

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        await self._pass()
        return [(host, port)]

    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> Stream:
        await self._pass()
        return _ProcessStream(self, await self._network.connect(self.node, host, port))

    async def listen(
        self,
        host: str,
        port: int,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = 1024,
    ) -> Listener:
        await self._pass()
        return _ProcessListener(self, self._network.listen(self.node, host, port))

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        # A thread takes time; a disk sync most of all.
        with trio.CancelScope(shield=True):
            await trio.sleep(self.random.uniform(0.0001, 0.005))
        await self._pass()
        return function(*args)

    # -- what the simulation does to the process

    def halt(self) -> None:
        """The process is dead: what its tasks still try fails, and nothing of it reaches network or disk."""
        self._halted = True
        self._resumed.set()

    def pause(self) -> None:
        """Stop the process at its next contact with the outside, as SIGSTOP would; `resume` lets it go on."""
        if self._resumed.is_set():  # else somebody may wait already, whom a new event would leave behind
            self._resumed = trio.Event()

    def resume(self) -> None:
        """Let a paused process go on."""
        self._resumed.set()

    @property
    def is_halted(self) -> bool:
        """Whether the process is dead."""
        return self._halted

    def check_alive(self) -> None:
        """Raise `OSError` when the process is dead."""
        if self._halted:
            raise OSError(errno.ESHUTDOWN, f"the simulated process on {self.node} is dead")

    async def _pass(self) -> None:
        await self._resumed.wait()
        self.check_alive()

    @property
    def is_paused(self) -> bool:
        """Whether the process stands still."""
        return not self._resumed.is_set()

    async def pass_door(self) -> None:
        """Wait while the process is paused; raise when it is dead."""
        if not self._resumed.is_set() or self._halted:
            await self._pass()


class _ProcessStream(Stream):
    """A connection as its process sees it: silent while paused, broken when dead."""

    def __init__(self, world: SimulatedWorld, stream: Stream) -> None:
        self._world = world
        self._stream = stream

    async def send(self, *buffers: Buffer) -> None:
        await self._world.pass_door()
        await self._stream.send(*buffers)

    def try_send(self, *buffers: Buffer) -> int:
        self._world.check_alive()
        return 0 if self._world.is_paused else self._stream.try_send(*buffers)

    async def receive_into(self, buffer: memoryview) -> int:
        await self._world.pass_door()
        size = await self._stream.receive_into(buffer)
        await self._world.pass_door()
        return size

    def limit_silence(self, seconds: float) -> None:
        self._stream.limit_silence(seconds)

    def bytes_drained(self) -> int:
        return self._stream.bytes_drained()

    def close(self) -> None:
        self._stream.close()

    @property
    def peer_address(self) -> tuple[str, int]:
        return self._stream.peer_address

    @property
    def local_address(self) -> tuple[str, int]:
        return self._stream.local_address


class _ProcessListener(Listener):
    def __init__(self, world: SimulatedWorld, listener: Listener) -> None:
        self._world = world
        self._listener = listener

    async def accept(self) -> Stream:
        stream = await self._listener.accept()
        await self._world.pass_door()
        return _ProcessStream(self._world, stream)

    def close(self) -> None:
        self._listener.close()

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address


class _ProcessStorage(Storage):
    """The host's disk as one process sees it; the disk itself kills the files that a dead process left open."""

    def __init__(self, world: SimulatedWorld, disk: MemoryStorage) -> None:
        self._world = world
        self._disk = disk

    def _live(self) -> MemoryStorage:
        self._world.check_alive()
        return self._disk

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        return self._live().open(path, create=create, read_only=read_only)

    def exists(self, path: str) -> bool:
        return self._live().exists(path)

    def is_dir(self, path: str) -> bool:
        return self._live().is_dir(path)

    def list_dir(self, path: str) -> list[str]:
        return self._live().list_dir(path)

    def make_dirs(self, path: str) -> None:
        self._live().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self._live().rename(source, target)

    def remove(self, path: str) -> None:
        self._live().remove(path)

    def remove_tree(self, path: str) -> None:
        self._live().remove_tree(path)

    def modified_ms(self, path: str) -> int:
        return self._live().modified_ms(path)

    def set_modified_ms(self, path: str, at_ms: int) -> None:
        self._live().set_modified_ms(path, at_ms)

    def sync_dir(self, path: str) -> None:
        self._live().sync_dir(path)

    def lock(self, path: str) -> Callable[[], None]:
        return self._live().lock(path)
