"""The background task of a coordinator: it loads shards, fires deadlines and releases queued answers."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import trio

from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog
from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from triokafka.coordinator.runtime.coordinator_type import CoordinatorType
from triokafka.coordinator.runtime.shard import Shard
from triokafka.world import World

S = TypeVar("S", bound=Shard[Any])
C = TypeVar("C")


class CoordinatorTask(Generic[S, C]):
    """A runtime with the one task that serves it. The arguments are those of `CoordinatorRuntime`."""

    def __init__(
        self, world: World, log: CoordinatorLog, coordinator_type: CoordinatorType[S], *, partitions: int
    ) -> None:
        self._world = world
        self._work_arrived = trio.Event()
        self.runtime: CoordinatorRuntime[S, C] = CoordinatorRuntime(
            world, log, coordinator_type, partitions=partitions, wake=lambda: self._work_arrived.set()
        )

    async def run(self) -> None:
        """Serve the runtime until cancelled; then stop it, which fails all waiting requests."""
        runtime = self.runtime
        try:
            while True:
                if runtime.has_queued_work:
                    runtime.load_step()
                    runtime.fire_due()
                    await trio.lowlevel.checkpoint()
                    continue
                self._work_arrived = trio.Event()  # first: a load that is tried again has work for this task itself
                runtime.fire_due()
                with trio.CancelScope(deadline=self._world.deadline(runtime.fall_asleep())):
                    await self._work_arrived.wait()
                runtime.wake_up()
        finally:
            runtime.stop()
