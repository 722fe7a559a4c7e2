"""A simulated world: virtual time, a memory network, disks that forget, and one seed that decides everything.

``run_simulation`` gives a test its own Trio run on a virtual clock; ``simulation`` is the world inside it. The same
seed gives the same trace, in any process: Trio's scheduler is seeded too, and no order in the package depends on a set
or on object ids.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio
import trio.testing

from triokafka.errors import IllegalStateError
from triokafka.testing.block_nursery import block_nursery
from triokafka.testing.simulated_network import Network
from triokafka.testing.simulated_world import SimulatedWorld
from triokafka.trio_context import require_trio
from triokafka.world.memory import MemoryStorage

T = TypeVar("T")


class Host:
    """A simulated machine: a disk that outlives processes, and at most one process at a time.

    ``world`` is the running process's `SimulatedWorld`; pass it as ``world=`` to a broker or a client.
    """

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.name = name
        self.disk = MemoryStorage()
        self._simulation = simulation
        self._incarnation = 0
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()
        self.clock_skew = 0.0
        self.world = self._boot()

    def _boot(self) -> SimulatedWorld:
        self._incarnation += 1
        simulation = self._simulation
        world = SimulatedWorld(
            self.name,
            self._incarnation,
            self.disk,
            seed=simulation.seed,
            network=simulation.network,
            started=simulation.started,
            clock_skew=self.clock_skew,
        )
        self.disk.wall_ms = world.wall_ms
        return world

    def start(self, process: Callable[[SimulatedWorld], Awaitable[object]]) -> None:
        """Run ``process(world)`` on this host in the background, until it returns or is killed.

        An exception of the process ends the simulation, except after `kill`.
        """
        if self._scope is not None:
            raise IllegalStateError(f"a process is already running on {self.name}")
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._simulation.nursery.start_soon(self._run, process, self.world, self._scope, self._ended)

    async def _run(
        self,
        process: Callable[[SimulatedWorld], Awaitable[object]],
        world: SimulatedWorld,
        scope: trio.CancelScope,
        ended: trio.Event,
    ) -> None:
        try:
            with scope:
                await process(world)
        except Exception:
            # The tasks of a dead process get errors from closed doors while they end; an error of a living process is a
            # finding.
            if not scope.cancel_called:
                raise
        finally:
            ended.set()
            if self._scope is scope:
                self._scope = None

    def die(self, *, power_cut: bool = False) -> None:
        """End the process at this point, as SIGKILL would: connections reset, nothing flushed, written bytes stay.

        May be called from anywhere, also from within the process or from its disk's ``before_operation``. With
        ``power_cut`` the machine fails as well: unsynced data is lost or torn. `kill` waits for the end.
        """
        self._simulation.record("kill", self.name, power_cut)
        self.world.halt()
        if power_cut:
            self.disk.crash(self._simulation.random)
        else:
            self.disk.kill()
        self._simulation.network.drop_node(self.name)
        if self._scope is not None:
            self._scope.cancel()

    async def kill(self, *, power_cut: bool = False) -> None:
        """End the process with `die`, unless that was done, and return when its last task has ended.

        `start` may be called again afterwards.
        """
        if not self.world.is_halted:
            self.die(power_cut=power_cut)
        if self._scope is not None:
            await self._ended.wait()
        self.world = self._boot()


class Simulation:
    """The simulated world of one seed; made by `simulation`.

    ``network`` injects network faults, ``host(name)`` returns a machine, ``random`` is for the test's own choices.
    ``trace_digest()`` is the same whenever the same seed runs the same test.
    """

    def __init__(self, seed: int, nursery: trio.Nursery) -> None:
        self.seed = seed
        self.nursery = nursery
        self.random = random.Random(f"{seed}/simulation")
        self.started = trio.current_time()
        self.network = Network(random.Random(f"{seed}/network"), self.record)
        self._hosts: dict[str, Host] = {}
        self._trace = hashlib.sha256()
        self._recent: list[str] = []

    def host(self, name: str) -> Host:
        """Return the machine of that name, made at its first use."""
        if name not in self._hosts:
            self._hosts[name] = Host(self, name)
        return self._hosts[name]

    def record(self, *event: object) -> None:
        """Add an event to the trace."""
        line = f"{trio.current_time() - self.started:.6f} {' '.join(map(str, event))}"
        self._trace.update(line.encode() + b"\n")
        self._recent.append(line)
        if len(self._recent) > 2_000:
            del self._recent[:1_000]

    def trace_digest(self) -> str:
        """Return the SHA-256 of all events so far, in hexadecimal."""
        return self._trace.hexdigest()

    def recent_events(self, count: int = 100) -> list[str]:
        """Return the last events, oldest first, to print when a check fails."""
        return self._recent[-count:]


@asynccontextmanager
async def simulation(seed: int) -> AsyncIterator[Simulation]:
    """Enter a simulated world, inside a Trio run on a virtual clock.

    `run_simulation` makes such a run, and so does pytest-trio's ``autojump_clock``. Leaving the block cancels
    everything that still runs in it.

    Raises:
        IllegalStateError: the run is on the real clock; virtual time over real sockets would exceed every deadline.
    """
    require_trio("simulation()", asyncio="", blocking="triokafka.testing.run_simulation")
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, trio.testing.MockClock):
        raise IllegalStateError(
            "simulation() needs a virtual clock: call triokafka.testing.run_simulation(test, seed), "
            "or use pytest-trio's autojump_clock fixture"
        )
    _seed_scheduler(seed)
    async with block_nursery() as nursery:
        yield Simulation(seed, nursery)


def run_simulation(test: Callable[[Simulation], Awaitable[T]], seed: int) -> T:
    """Run ``test(simulation)`` in a simulated world of its own, on a virtual clock, and return its result.

    If it raises, a note on the exception names the seed and the last events.

    Raises:
        RuntimeError: called inside a Trio run; use `simulation` there.
    """
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("run_simulation() starts a Trio run: inside one, use `async with simulation(seed)`")
    result: list[T] = []

    async def main() -> None:
        async with simulation(seed) as world:
            try:
                result.append(await test(world))
            except Exception as error:
                error.add_note(
                    f"seed {seed}, at virtual second {trio.current_time() - world.started:.3f}; last events:"
                )
                error.add_note("\n".join(world.recent_events(30)))
                raise

    _seed_scheduler(seed)
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return result[0]


def _seed_scheduler(seed: int) -> None:
    """Make the order in which Trio runs ready tasks a function of the seed.

    Trio has no public form of this yet; its own support for Hypothesis does the same.
    """
    run: Any = trio._core._run
    if not hasattr(run, "_ALLOW_DETERMINISTIC_SCHEDULING") or not hasattr(run, "_r"):
        raise IllegalStateError(f"this version of Trio ({trio.__version__}) cannot be made deterministic")
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    if not isinstance(run._r, _ThreadsOwnRandom):
        run._r = _ThreadsOwnRandom()
    run._r.seed(seed)


class _ThreadsOwnRandom(threading.local):
    """A source of randomness for Trio's scheduler, separate for each thread.

    Trio has one for all threads: a broker or a client that runs in another thread would change the order here.
    """

    def __init__(self) -> None:
        self._random = random.Random()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._random, name)
