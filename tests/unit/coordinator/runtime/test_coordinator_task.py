"""The task of a coordinator, which sleeps until there is work."""

from __future__ import annotations

import trio.testing

from tests.unit.coordinator.rig import PARTITION, Rig, StillWorld
from triokafka.coordinator.runtime.shard_context import ShardState
from triokafka.errors import KafkaStorageError


class TrioTime(StillWorld):
    """A world with the clock of the event loop."""

    def now(self) -> float:
        return trio.current_time()


class TimedRig(Rig):
    """A rig in that world."""

    new_world = TrioTime


async def test_failed_load_is_retried_by_the_task(autojump_clock: trio.testing.MockClock) -> None:
    rig = TimedRig()
    rig.runtime.unload(PARTITION)
    rig.log.unreadable = KafkaStorageError("a bad block")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.task.run)
        rig.runtime.load(PARTITION, leader_epoch=2)
        await trio.sleep(0.5)
        assert rig.runtime.state(PARTITION) is ShardState.FAILED
        rig.log.unreadable = None
        await trio.sleep(1)
        assert rig.runtime.state(PARTITION) is ShardState.ACTIVE
        nursery.cancel_scope.cancel()
