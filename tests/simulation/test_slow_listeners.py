"""A rebalance listener that never returns, or is cancelled repeatedly, delays only its own member."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

import pytest
import trio

import triokafka
from tests.support.group_faults import EVERYTHING, PARTITIONS, PORT, PROTOCOLS, Protocol, start_broker
from tests.support.waiting import eventually
from triokafka.errors import MaxPollIntervalExceededError
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation

REBALANCE_TIMEOUT = 10


class StuckListener(triokafka.ConsumerRebalanceListener):
    """Runs until the test releases it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.lets_go = trio.Event()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.calls.append("revoked")
            await self.lets_go.wait()
            self.calls.append("done")

    def on_partitions_lost(self, lost: Any) -> None:
        self.calls.append("lost")


def consumer(simulation: Simulation, protocol: Protocol, name: str) -> triokafka.Consumer:
    return triokafka.Consumer(
        bootstrap_servers=f"broker:{PORT}",
        group_id="g",
        world=simulation.host(name).world,
        auto_offset_reset="earliest",
        max_poll_interval_ms=REBALANCE_TIMEOUT * 1000,
        **PROTOCOLS[protocol],
    )


async def topic_made(simulation: Simulation) -> None:
    start_broker(simulation)
    async with triokafka.AdminClient(bootstrap_servers=f"broker:{PORT}", world=simulation.host("admin").world) as admin:
        await admin.create_topics([triokafka.NewTopic("t", PARTITIONS, 1)])


async def keep_polling(one: triokafka.Consumer) -> None:
    while True:
        with suppress(MaxPollIntervalExceededError):
            await one.poll(timeout_ms=500)


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_a_listener_that_never_returns_costs_its_member_the_membership_and_the_group_a_rebalance_timeout(
    protocol: Protocol,
) -> None:

    async def main(simulation: Simulation) -> None:
        await topic_made(simulation)
        listener = StuckListener()
        async with (
            consumer(simulation, protocol, "a") as stuck,
            consumer(simulation, protocol, "b") as other,
            trio.open_nursery() as nursery,
        ):
            stuck.subscribe("t", listener=listener)
            other.subscribe("t")
            nursery.start_soon(keep_polling, stuck)
            await eventually(lambda: len(stuck.assignment()) == PARTITIONS, seconds=10)
            nursery.start_soon(keep_polling, other)
            await eventually(lambda: listener.calls == ["revoked"], seconds=5)
            # The other member gets the stuck member's partitions as soon as that member is removed from the group.
            await eventually(lambda: sorted(other.assignment()) == EVERYTHING, seconds=REBALANCE_TIMEOUT + 8)
            assert listener.calls == ["revoked"]
            listener.lets_go.set()
            await eventually(
                lambda: sorted([*stuck.assignment(), *other.assignment()]) == EVERYTHING and stuck.assignment(),
                seconds=REBALANCE_TIMEOUT,
            )
            assert listener.calls[:2] == ["revoked", "done"]
            nursery.cancel_scope.cancel()

    run_simulation(main, 1)


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_a_repeatedly_cancelled_listener_is_called_until_it_returns(protocol: Protocol) -> None:

    async def main(simulation: Simulation) -> None:
        await topic_made(simulation)
        calls: list[tuple[TopicPartition, ...]] = []

        class SlowListener(triokafka.ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: Any) -> None:
                if revoked:
                    calls.append(tuple(revoked))
                    await trio.sleep(0.2 * (5 - len(calls)))  # only the last time it is fast enough

        async with (
            consumer(simulation, protocol, "a") as one,
            consumer(simulation, protocol, "b") as other,
            trio.open_nursery() as nursery,
        ):
            one.subscribe("t", listener=SlowListener())
            other.subscribe("t")
            while len(one.assignment()) < PARTITIONS:
                await one.poll(timeout_ms=500)
            nursery.start_soon(keep_polling, other)
            with trio.fail_after(REBALANCE_TIMEOUT):
                while len(other.assignment()) < PARTITIONS // 2 or len(one.assignment()) != PARTITIONS // 2:
                    with trio.move_on_after(0.1):
                        await one.poll(timeout_ms=500)
            assert len(calls) >= 5 and len(set(calls[:5])) == 1
            nursery.cancel_scope.cancel()

    run_simulation(main, 1)
