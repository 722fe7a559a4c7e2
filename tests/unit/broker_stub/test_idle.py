"""A broker without requests uses almost no processor time."""

from __future__ import annotations

import trio

from tests.unit.broker_stub.api.node import batch, running_node


class StepsByTask(trio.abc.Instrument):
    """Counts how often each task runs."""

    def __init__(self) -> None:
        self.count = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_idle_broker_sleeps(autojump_clock: object) -> None:
    """A broker with topics and records runs its tasks at most four times a second."""
    async with running_node() as node:
        await node.create("t", 20)
        assert (await node.produce("t", batch(b"v"))).error_code == 0
        await trio.sleep(1)
        steps = StepsByTask()
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(600)
        trio.lowlevel.remove_instrument(steps)
    assert steps.count < 600 * 6, f"{steps.count / 600:g} steps a second"
