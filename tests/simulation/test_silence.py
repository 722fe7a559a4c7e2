"""Every wait of every client, while its connections die silently: each continues within ten seconds, in virtual time.

A black hole also takes new connections, so there the seconds count from the moment when it heals.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from triokafka.client.range_session import RangeSession
from triokafka.client.reader import RangeReader
from triokafka.structs import TopicPartition
from triokafka.testing import running_broker
from triokafka.testing.simulated_network import Network

LONGEST: Final = 10.0
HOLE: Final = 15.0
HEARTBEAT: Final = 5.0
"""The consumer protocol's interval: a healthy member hears of the other's step so much later."""
T0: Final = TopicPartition("t", 0)
Again = Callable[[], Awaitable[object]]
"""Does the client's work once more, and returns when it is done."""


async def no_fault(network: Network) -> None:
    pass


async def cut(network: Network) -> None:
    network.cut("client")


async def half_open(network: Network) -> None:
    network.half_open("client", "broker")


async def requests_lost(network: Network) -> None:
    network.half_open("client", "broker", one_way=True)


async def answers_lost(network: Network) -> None:
    network.half_open("broker", "client", one_way=True)


async def black_hole(network: Network) -> None:
    network.black_hole("client", "broker")
    await trio.sleep(HOLE)
    network.heal()


async def black_hole_for_requests(network: Network) -> None:
    network.black_hole("client", "broker", one_way=True)
    await trio.sleep(HOLE)
    network.heal()


async def black_hole_for_answers(network: Network) -> None:
    network.black_hole("broker", "client", one_way=True)
    await trio.sleep(HOLE)
    network.heal()


async def requests_drip(network: Network) -> None:
    network.drip("client", "broker", 2, one_way=True)


async def answers_drip(network: Network) -> None:
    network.drip("broker", "client", 2, one_way=True)


async def both_drip(network: Network) -> None:
    network.drip("client", "broker", 2)


FAULTS: Final = (
    cut,
    half_open,
    requests_lost,
    answers_lost,
    black_hole,
    black_hole_for_requests,
    black_hole_for_answers,
    requests_drip,
    answers_drip,
    both_drip,
)


def options(host: str, **more: Any) -> dict[str, Any]:
    return {"world": current_simulation().host(host).world, "bootstrap_servers": "broker:9092", **more}


async def write(value: bytes) -> None:
    """Have another client, which no fault affects, write a record."""
    async with triokafka.Producer(**options("other")) as producer:
        await (await producer.send("t", value, partition=0))


@asynccontextmanager
async def producing(idempotent: bool = True) -> AsyncIterator[Again]:
    async with triokafka.Producer(**options("client", enable_idempotence=idempotent)) as producer:

        async def repeat() -> None:
            await (await producer.send("t", b"record", partition=0))

        yield repeat


@asynccontextmanager
async def consuming(**more: Any) -> AsyncIterator[tuple[triokafka.Consumer, Again]]:
    async with triokafka.Consumer(
        **options("client", auto_offset_reset="earliest", enable_auto_commit=False, **more)
    ) as consumer:
        if "group_id" in more:
            consumer.subscribe(["t"])
        else:
            consumer.assign([T0])
        count = 0

        async def repeat() -> None:
            nonlocal count
            count += 1
            value = b"%d" % count
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write, value)
                while (await anext(consumer)).value != value:
                    pass

        yield consumer, repeat


@asynccontextmanager
async def consuming_alone() -> AsyncIterator[Again]:
    async with consuming() as (_, repeat):
        yield repeat


@asynccontextmanager
async def consuming_in_a_group() -> AsyncIterator[Again]:
    async with consuming(group_id="g") as (_, repeat):
        yield repeat


@asynccontextmanager
async def consuming_under_the_consumer_protocol() -> AsyncIterator[Again]:
    async with consuming(group_id="g", group_protocol="consumer") as (_, repeat):
        yield repeat


@asynccontextmanager
async def committing(**more: Any) -> AsyncIterator[Again]:
    async with consuming(group_id="g", **more) as (consumer, repeat):
        await repeat()

        async def commit() -> None:
            await consumer.commit({T0: await consumer.position(T0)})

        yield commit


@asynccontextmanager
async def committing_under_the_consumer_protocol() -> AsyncIterator[Again]:
    async with committing(group_protocol="consumer") as commit:
        yield commit


@asynccontextmanager
async def looking_up_positions() -> AsyncIterator[Again]:
    async with consuming(group_id="g") as (consumer, repeat):
        await repeat()

        async def look_up() -> None:
            await consumer.end_offsets([T0])
            await consumer.committed([T0])

        yield look_up


@asynccontextmanager
async def rebalancing(**more: Any) -> AsyncIterator[Again]:
    """Another member joins, and the group settles with both."""
    async with consuming(group_id="g", **more) as (consumer, repeat):
        await repeat()

        async def rebalance() -> None:
            async with (
                trio.open_nursery() as nursery,
                triokafka.Consumer("t", **options("other", group_id="g", **more)) as other,
            ):

                async def poll(one: triokafka.Consumer) -> None:
                    while True:
                        await one.poll(timeout_ms=500)

                nursery.start_soon(poll, consumer)
                nursery.start_soon(poll, other)
                while len(consumer.assignment()) != 1 or len(other.assignment()) != 1:
                    await trio.sleep(0.1)
                nursery.cancel_scope.cancel()

        yield rebalance


@asynccontextmanager
async def rebalancing_under_the_consumer_protocol() -> AsyncIterator[Again]:
    async with rebalancing(group_protocol="consumer") as rebalance:
        yield rebalance


@asynccontextmanager
async def administering() -> AsyncIterator[Again]:
    async with triokafka.AdminClient(**options("client")) as admin:
        count = 0

        async def repeat() -> None:
            nonlocal count
            count += 1
            await admin.list_topics()
            await admin.create_topics([triokafka.NewTopic(f"new-{count}", 1, 1)])
            await admin.list_groups()

        yield repeat


@asynccontextmanager
async def reading_ranges() -> AsyncIterator[Again]:
    """Read ranges as `read_topic` and the Spark reader do."""
    await write(b"there")
    async with RangeSession(**options("client")) as session:

        async def repeat() -> None:
            bounds = await session.log_bounds(T0)
            async with RangeReader({T0: bounds}, session=session) as reader:
                assert [batch.num_rows async for batch in reader]

        yield repeat


WAITS: Final[Mapping[str, Callable[[], Any]]] = {
    made.__name__: made
    for made in (
        producing,
        consuming_alone,
        consuming_in_a_group,
        consuming_under_the_consumer_protocol,
        committing,
        committing_under_the_consumer_protocol,
        looking_up_positions,
        rebalancing,
        rebalancing_under_the_consumer_protocol,
        administering,
        reading_ranges,
    )
}

REBALANCES: Final = (rebalancing, rebalancing_under_the_consumer_protocol)


async def longest_stall(wait: Callable[[], Any], fault: Callable[[Network], Awaitable[None]], idle: float) -> float:
    """Return the seconds that the work takes with the fault, counted from the fault, or from when it healed.

    The time that a rebalance takes without a fault is subtracted.
    """
    async with (
        running_broker(
            world=current_simulation().host("broker").world,
            listeners=("PLAINTEXT://broker:9092",),
            group_initial_rebalance_delay_ms=0,
        ),
        triokafka.AdminClient(**options("other")) as admin,
    ):
        await admin.create_topics([triokafka.NewTopic("t", 2, 1)])
        async with wait() as again:
            with trio.fail_after(120):
                began_at = trio.current_time()
                await again()
                usual = trio.current_time() - began_at + HEARTBEAT if wait in REBALANCES else 0.0
                await trio.sleep(idle)
                healed_at = trio.current_time()
                async with trio.open_nursery() as nursery:

                    async def strike() -> None:
                        nonlocal healed_at
                        await fault(current_simulation().network)
                        healed_at = trio.current_time()

                    nursery.start_soon(strike)
                    await trio.sleep(0.01)
                    await again()
                    done_at = trio.current_time()
                await again()
    return done_at - healed_at - usual


@pytest.mark.parametrize("idle", [0.0, 20.0], ids=["busy", "idle"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("wait", WAITS)
@simulated
async def test_client_continues_within_ten_seconds(wait: str, fault: Any, idle: float) -> None:
    assert await longest_stall(WAITS[wait], fault, idle) < LONGEST
