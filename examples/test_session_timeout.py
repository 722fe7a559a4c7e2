"""A test of 45 seconds of silence, in virtual time: it takes milliseconds, and one seed always gives the same run.

Run with: pytest examples
"""

from __future__ import annotations

from collections.abc import Callable

import trio

import triokafka
from triokafka.testing import SimulatedWorld, Simulation, run_simulation, running_broker

SESSION_SECONDS = 45


async def member(world: SimulatedWorld) -> None:
    """A service that reads orders; each instance runs on a simulated host of its own."""
    async with triokafka.Consumer(
        "orders",
        bootstrap_servers="broker:9092",
        group_id="billing",
        session_timeout_ms=SESSION_SECONDS * 1000,
        world=world,
    ) as consumer:
        async for _ in consumer:
            pass


async def until(condition: Callable[[], bool]) -> None:
    """Wait in virtual time, which passes at once."""
    while True:
        if condition():
            return
        await trio.sleep(0.1)


async def story(simulation: Simulation) -> tuple[float, str]:
    """Kill one of two members without a leave request. Return the other's waiting time, and the trace's digest."""
    host = simulation.host("broker")
    async with running_broker(world=host.world, listeners=("PLAINTEXT://broker:9092",)) as broker:
        await broker.create_topic("orders", partitions=2)
        first, second = simulation.host("first"), simulation.host("second")
        first.start(member)
        second.start(member)
        await until(lambda: len(broker.members("billing")) == 2)
        await trio.sleep(simulation.random.uniform(10, 20))
        await first.kill()
        died = trio.current_time()
        await until(lambda: len(broker.members("billing")) == 1)
        waited = trio.current_time() - died
        await second.kill()
        return waited, simulation.trace_digest()


def test_a_member_that_dies_is_missed_after_its_session() -> None:
    waited, run = run_simulation(story, seed=7)
    # It had sent a heartbeat in its last three seconds.
    assert SESSION_SECONDS - 3 <= waited <= SESSION_SECONDS + 1
    assert run_simulation(story, seed=7) == (waited, run)
    assert run_simulation(story, seed=8)[1] != run
