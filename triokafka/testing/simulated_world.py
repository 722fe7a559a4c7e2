"""The world of one simulated process: its own clocks, its own randomness, its host's disk and network."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from triokafka.structs import Buffer
from triokafka.testing.gated_listener import GatedListener
from triokafka.testing.guarded_storage import GuardedStorage
from triokafka.testing.simulated_network import Network
from triokafka.world import Listener, Stream, World
from triokafka.world.forwarding_stream import ForwardingStream
from triokafka.world.memory import MemoryStorage

T = TypeVar("T")

_EPOCH_MS = 1_700_000_000_000  # initial wall-clock time of a simulation
_BOOTED = 2.0**20
"""Initial monotonic time, in seconds, of a host whose clocks are behind: so large that `now` is never finer than Trio's
clock. Otherwise a wait for a last fraction of a second could be too short to advance Trio's clock at all."""


class SimulatedWorld(World):
    """One process on a simulated host. It ends with `halt`: from then on every operation outside the process raises.

    Args:
        seed: that of the simulation.
        network: connects the hosts of the simulation.
        started: when the simulation began, in seconds on Trio's clock.
        node: the host's name, and its address on the network.
        incarnation: the number of the process on that host; each draws its own random numbers.
        disk: the host's storage; it outlives the process.
        clock_skew: seconds that the host's clocks are ahead. Increase it to let both clocks of a running process jump
            forward, as after the suspension of a virtual machine.

    ``wall_skew`` are further seconds of the wall clock alone, 0 at first. Assign it to let the wall clock of a running
    process jump forward or back, as NTP does.
    """

    def __init__(
        self,
        node: str,
        incarnation: int,
        disk: MemoryStorage,
        *,
        seed: int,
        network: Network,
        started: float,
        clock_skew: float = 0.0,
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self.clock_skew = clock_skew
        self._booted = _BOOTED if clock_skew < 0 else 0.0
        self.wall_skew = 0.0
        self.random = random.Random(f"{seed}/{node}/{incarnation}")
        self.storage = GuardedStorage(disk, check=self.check_alive)
        self._network = network
        self._started = started
        self.is_halted = False
        """Whether the process is dead."""
        self._resumed = trio.Event()
        self._resumed.set()

    def now(self) -> float:
        return trio.current_time() + (self._booted + self.clock_skew)

    def wall_ms(self) -> int:
        return _EPOCH_MS + round((trio.current_time() - self._started + self.clock_skew + self.wall_skew) * 1000)

    def deadline(self, at: float) -> float:
        return at - (self._booted + self.clock_skew)

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
        listener = self._network.listen(self.node, host, port)
        return GatedListener(listener, gate=self.pass_door, wrap=lambda stream: _ProcessStream(self, stream))

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        # A thread takes time; a disk sync most of all.
        with trio.CancelScope(shield=True):
            await trio.sleep(self.random.uniform(0.0001, 0.005))
        await self._pass()
        return function(*args)

    # -- control by the simulation

    def halt(self) -> None:
        """End the process: further operations of its tasks fail and reach neither network nor disk."""
        self.is_halted = True
        self._resumed.set()

    def pause(self) -> None:
        """Stop the process at its next operation outside itself, as SIGSTOP would; `resume` continues it."""
        if self._resumed.is_set():  # otherwise keep the event: tasks may already wait for it
            self._resumed = trio.Event()

    def resume(self) -> None:
        """Resume a paused process."""
        self._resumed.set()

    def check_alive(self) -> None:
        """Raise `OSError` when the process is dead."""
        if self.is_halted:
            raise OSError(errno.ESHUTDOWN, f"the simulated process on {self.node} is dead")

    async def _pass(self) -> None:
        await self._resumed.wait()
        self.check_alive()

    @property
    def is_paused(self) -> bool:
        """Whether the process is paused."""
        return not self._resumed.is_set()

    async def pass_door(self) -> None:
        """Wait while the process is paused; raise when it is dead."""
        if not self._resumed.is_set() or self.is_halted:
            await self._pass()


class _ProcessStream(ForwardingStream):
    """A connection of the process: silent while paused, broken when dead."""

    def __init__(self, world: SimulatedWorld, stream: Stream) -> None:
        super().__init__(stream)
        self._world = world

    async def send(self, *buffers: Buffer) -> None:
        await self._world.pass_door()
        await self.inner.send(*buffers)

    def try_send(self, *buffers: Buffer) -> int:
        self._world.check_alive()
        return 0 if self._world.is_paused else self.inner.try_send(*buffers)

    async def receive_into(self, buffer: memoryview) -> int:
        await self._world.pass_door()
        size = await self.inner.receive_into(buffer)
        await self._world.pass_door()
        return size
