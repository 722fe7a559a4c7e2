"""Where a node of a test runs: in the test's own Trio run, or on a host of the simulated world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

import trio

from triokafka.testing.faulty_world import FaultyWorld

if TYPE_CHECKING:
    from triokafka.testing.simulation_run import Host
    from triokafka.world import World


class Machine(Protocol):
    """A machine that runs the processes of one node, one after the other."""

    outlives_cancellation: bool
    """Whether the node continues while the test's body is cancelled, until the end of the block."""

    @property
    def world(self) -> FaultyWorld:
        """The world of the node's process."""
        ...

    async def run(self, process: Callable[[], Awaitable[None]]) -> None:
        """Start a process in the background, once the one before has ended."""
        ...

    async def kill(self, *, power_cut: bool) -> bool:
        """End the process as SIGKILL does. Returns False if this machine cannot: the process has to do it itself."""
        ...


class LocalMachine:
    """The test's own Trio run."""

    outlives_cancellation = True

    def __init__(self, nursery: trio.Nursery, world: FaultyWorld) -> None:
        self._nursery = nursery
        self.world = world
        """See `Machine`."""

    async def run(self, process: Callable[[], Awaitable[None]]) -> None:
        """See `Machine`."""
        self._nursery.start_soon(process)

    async def kill(self, *, power_cut: bool) -> bool:
        """See `Machine`."""
        return False


class SimulatedMachine:
    """A host of the simulated world, for this node alone.

    Args:
        wrap: makes the faulty world of a process.
    """

    outlives_cancellation = False

    def __init__(self, host: Host, wrap: Callable[[World], FaultyWorld]) -> None:
        self._host = host
        self._wrap = wrap
        self._of: World = host.world
        self._world = wrap(host.world)
        self._was_used = False

    @property
    def world(self) -> FaultyWorld:
        """See `Machine`."""
        if self._of is not self._host.world:
            self._of = self._host.world
            self._world = self._wrap(self._of)
        return self._world

    async def run(self, process: Callable[[], Awaitable[None]]) -> None:
        """See `Machine`."""
        if self._was_used:
            await self._host.kill()  # the rest of the process before
        self._was_used = True
        self._host.start(lambda world: process())

    async def kill(self, *, power_cut: bool) -> bool:
        """See `Machine`."""
        self._was_used = False
        await self._host.kill(power_cut=power_cut)
        return True
