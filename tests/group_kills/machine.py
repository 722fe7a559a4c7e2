"""The coordinator's machine: a broker that is killed at a chosen point of its work, and restarted."""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from tests.group_kills.history import History
from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node
from triokafka.coordinator.group.group_coordinator import GroupCoordinator
from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from triokafka.testing import SimulatedWorld, Simulation
from triokafka.world.memory import DiskFault

REQUESTS: Final = (
    "join_group",
    "sync_group",
    "heartbeat",
    "consumer_group_heartbeat",
    "commit_offsets",
    "fetch_offsets",
)
"""Methods of the coordinator that take requests."""
WRITES: Final = ("write", "sync")


async def _slowly(world: SimulatedWorld, run: Callable[..., Awaitable[Any]], *given: Any) -> Any:
    with trio.CancelScope(shield=True):
        await trio.sleep(world.random.uniform(0.01, 0.08))
    return await run(*given)


@dataclass(slots=True)
class Aim:
    """The point where the broker dies: at the ``nth`` request or disk operation of a kind, and how.

    For requests: ``arriving`` before its execution, ``later`` this many seconds after. For the disk, on the log of
    ``__consumer_offsets``: ``before`` the operation, ``torn`` in the middle of a write, ``after`` it.
    """

    kind: str
    nth: int
    how: str
    delay: float = 0.0


def draw_aim(chance: random.Random, *, power_cut: bool) -> Aim:
    """Return a random aim. A power cut in the middle of a disk operation is one before it."""
    if chance.random() < (0.3 if power_cut else 0.5):
        kind = chance.choice((*REQUESTS[:2], *REQUESTS))
        how = chance.choice(("arriving", "later", "later"))
        return Aim(
            kind, chance.randrange(1, 5), how, chance.choice((0.0, chance.uniform(0, 0.01), chance.uniform(0, 2)))
        )
    kind = "sync" if power_cut and chance.random() < 0.7 else "write"
    how = "before" if power_cut else chance.choice(("before", "torn", "after", "after"))
    return Aim(kind, chance.randrange(1, 12), how)


class Machine:
    """The host ``broker``.

    ``options`` are the broker's; ``power_cut`` is whether its machine dies with it, ``slow_disk`` whether a sync takes
    tens of milliseconds. ``patience`` is how long requests of each kind may wait, in seconds.
    """

    def __init__(
        self,
        simulation: Simulation,
        history: History,
        *,
        power_cut: bool,
        slow_disk: bool,
        options: dict[str, Any],
        patience: Mapping[str, float],
        mutate: Callable[[Broker], None] | None = None,
    ) -> None:
        self.host = simulation.host("broker")
        self.broker: Broker | None = None
        self.ready = trio.Event()
        self.died = trio.Event()
        self.power_cut = power_cut
        self.unanswered: list[str] = []
        """Requests that a living coordinator did not answer within their time limit."""
        self._slow_disk = slow_disk
        self._patience = patience
        self._asked = 0
        self._waiting: dict[int, tuple[str, float]] = {}
        self._stop = trio.Event()
        self._simulation = simulation
        self._history = history
        self._options = options
        self._mutate = mutate
        self._aim: Aim | None = None
        self._left = 0
        self._shots = 0

    def start(self) -> None:
        """Run the broker's process."""
        self.ready, self.died = trio.Event(), trio.Event()
        self._history.note("broker starts")
        self.host.start(self._serve)

    async def _serve(self, world: SimulatedWorld) -> None:
        config = BrokerConfig.for_tests(listeners=("PLAINTEXT://broker:9092",), log_dirs=("/data",), **self._options)
        if self._slow_disk:
            world.run_in_thread = partial(_slowly, world, world.run_in_thread)  # type: ignore[method-assign]
        node = Node(config, world=world)
        broker = node.broker
        if self._mutate is not None:
            self._mutate(broker)
        coordinator = broker.group_coordinator
        if self._simulation.random.random() < 0.4:
            coordinator.runtime.load = partial(self._load_slowly, coordinator, coordinator.runtime.load)  # type: ignore[method-assign]
        for component in (coordinator.membership, coordinator.offsets):
            for name in REQUESTS:
                if hasattr(component, name):
                    setattr(component, name, partial(self._request, name, getattr(component, name)))
        async with node:
            self.broker = broker
            self.ready.set()
            await self._stop.wait()
        self.died.set()

    async def flush(self) -> None:
        """Stop the broker cleanly, and restart it: everything is on the disk then."""
        self._stop.set()
        await self.died.wait()
        self._stop = trio.Event()
        await self.host.kill()
        self.start()
        await self.ready.wait()

    def _load_slowly(self, coordinator: GroupCoordinator, load: Callable[[int, int], None], *which: int) -> None:
        """Slow the load of these small partitions, so that members have to wait for it."""
        loads = coordinator.runtime._loads
        load(*which)
        if loads:
            seconds = self._simulation.random.uniform(0.1, 2.5)
            self._simulation.nursery.start_soon(self._go_on_loading, coordinator.runtime, loads.pop(), seconds)

    async def _go_on_loading(self, runtime: CoordinatorRuntime[Any, Any], load: Any, seconds: float) -> None:
        self._history.note("loads for", f"{seconds:.1f} s")
        await trio.sleep(seconds)
        runtime._loads.append(load)
        runtime._wake()

    # ---------------------------------------------------------------- crashes

    def aim(self, aim: Aim) -> None:
        """Die there."""
        self._aim, self._left = aim, aim.nth
        self._history.note("aims at", aim)
        if aim.kind in WRITES or aim.kind == "any":
            self.host.disk.before_operation = self._operation

    def disarm(self) -> None:
        """Remove the aim."""
        self._aim = None
        self._shots += 1

    def die(self) -> None:
        """Die here and now."""
        if self.died.is_set() or self.host.world.is_halted:
            return
        self.broker = None
        self.disarm()
        self._history.note("broker dies", "and its machine" if self.power_cut else "")
        self.host.die(power_cut=self.power_cut)
        self.died.set()

    async def restart(self, away: float, aim: Aim | None = None) -> None:
        """Wait for the end of the process, and start another one after ``away`` seconds; that one may have its aim."""
        self.die()
        await self.host.kill(power_cut=self.power_cut)
        self.disarm()  # an aim that was set when the process was dead is not for the next one
        self.host.disk.before_operation = None
        self.host.disk.faults.clear()
        await trio.sleep(away)
        self.start()
        if aim is not None:
            self.aim(aim)

    def _hits(self, kind: str) -> Aim | None:
        aim = self._aim
        if aim is None or aim.kind not in (kind, "any"):
            return None
        self._left -= 1
        if self._left:
            return None
        self._aim = None
        return aim

    async def _request(self, name: str, method: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        aim = self._hits(name)
        if aim is not None and aim.how == "arriving":
            self.die()
        elif aim is not None:
            self._simulation.nursery.start_soon(self._die_later, aim.delay, self._shots)
        self._asked += 1
        number, since = self._asked, self._history.clock()
        self._waiting[number] = name, since
        try:
            return await method(*args, **options)
        finally:
            del self._waiting[number]
            self._note_slow(name, self._history.clock() - since)

    def _note_slow(self, name: str, seconds: float) -> None:
        if seconds > self._patience[name]:
            self.unanswered.append(f"{name} was not answered for {seconds:.1f} s")

    def check_waiting(self) -> None:
        """Check for requests that wait for longer than they may."""
        for name, since in self._waiting.values():
            self._note_slow(name, self._history.clock() - since)

    async def _die_later(self, delay: float, shot: int) -> None:
        await trio.sleep(delay)
        if shot == self._shots:
            self.die()

    def _operation(self, operation: str, path: str, size: int) -> None:
        if "__consumer_offsets" not in path or not path.endswith(".log"):
            return
        aim = self._hits(operation)
        if aim is None:
            return
        if aim.how == "torn":
            part = size * self._left_of(size) // 100
            self.host.disk.inject(DiskFault(operation="write", path=path, times=1, partial=part))
        self.die()
        if aim.how == "before":
            raise OSError(errno.EIO, "the process died here", path)

    def _left_of(self, size: int) -> int:
        return self._simulation.random.randrange(1, 100) if size else 0
