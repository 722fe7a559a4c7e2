"""A rebalance listener that never ends, or is cancelled again and again, holds up nobody but its member."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

import pytest
import trio

import triokafka
from tests.support.group_faults import EVERYTHING, PARTITIONS, PORT, PROTOCOLS, Protocol, start_broker
from triokafka.errors import MaxPollIntervalExceededError
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation

REBALANCE_TIMEOUT = 10


class Stuck(triokafka.ConsumerRebalanceListener):
    """Goes on for as long as it is let."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.lets_go = trio.Event()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.told.append("revoked")
            await self.lets_go.wait()
            self.told.append("done")

    def on_partitions_lost(self, lost: Any) -> None:
        self.told.append("lost")


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


async def until(holds: Any, seconds: float) -> None:
    with trio.fail_after(seconds):
        while not holds():
            await trio.sleep(0.05)


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_a_listener_that_never_ends_costs_its_member_its_place_and_the_group_a_rebalance_timeout(
    protocol: Protocol,
) -> None:

    async def main(simulation: Simulation) -> None:
        await topic_made(simulation)
        listener = Stuck()
        async with (
            consumer(simulation, protocol, "a") as stuck,
            consumer(simulation, protocol, "b") as other,
            trio.open_nursery() as nursery,
        ):
            stuck.subscribe("t", listener=listener)
            other.subscribe("t")
            nursery.start_soon(keep_polling, stuck)
            await until(lambda: len(stuck.assignment()) == PARTITIONS, 10)
            nursery.start_soon(keep_polling, other)
            await until(lambda: listener.told == ["revoked"], 5)
            # The other is given what the stuck one holds as soon as that is out of the group.
            await until(lambda: sorted(other.assignment()) == EVERYTHING, REBALANCE_TIMEOUT + 8)
            assert listener.told == ["revoked"]
            listener.lets_go.set()
            await until(
                lambda: sorted([*stuck.assignment(), *other.assignment()]) == EVERYTHING and stuck.assignment(),
                REBALANCE_TIMEOUT,
            )
            assert listener.told[:2] == ["revoked", "done"]
            nursery.cancel_scope.cancel()

    run_simulation(main, 1)


@pytest.mark.parametrize("protocol", get_args(Protocol))
def test_a_listener_that_is_cancelled_again_and_again_is_called_until_it_is_done(protocol: Protocol) -> None:

    async def main(simulation: Simulation) -> None:
        await topic_made(simulation)
        told: list[tuple[TopicPartition, ...]] = []

        class Patient(triokafka.ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: Any) -> None:
                if revoked:
                    told.append(tuple(revoked))
                    await trio.sleep(0.2 * (5 - len(told)))  # only the last time it is quick enough

        async with (
            consumer(simulation, protocol, "a") as one,
            consumer(simulation, protocol, "b") as other,
            trio.open_nursery() as nursery,
        ):
            one.subscribe("t", listener=Patient())
            other.subscribe("t")
            while len(one.assignment()) < PARTITIONS:
                await one.poll(timeout_ms=500)
            nursery.start_soon(keep_polling, other)
            with trio.fail_after(REBALANCE_TIMEOUT):
                while len(other.assignment()) < PARTITIONS // 2 or len(one.assignment()) != PARTITIONS // 2:
                    with trio.move_on_after(0.1):
                        await one.poll(timeout_ms=500)
            assert len(told) >= 5 and len(set(told[:5])) == 1
            nursery.cancel_scope.cancel()

    run_simulation(main, 1)
