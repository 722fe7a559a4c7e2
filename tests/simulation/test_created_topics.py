"""Auto-created topics: how long the first request for a missing topic waits, and what the client reports meanwhile.

The broker responds that the topic does not exist, but has created it by then; the client asks again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import MetadataNotReadyError, UnknownTopicOrPartitionError
from triokafka.structs import TopicPartition
from triokafka.testing import running_broker

FIRST_BACKOFF = (0.08, 0.12)
"""Seconds: ``retry_backoff_ms``, a fifth more or less."""
ON_THE_WAY = 0.05
"""Seconds, more than the requests of one call take in the simulated network."""


@asynccontextmanager
async def started(**settings: Any) -> AsyncIterator[dict[str, Any]]:
    """Run a broker with two partitions per topic; yield the options of a client."""
    simulation = current_simulation()
    async with running_broker(world=simulation.host("broker").world, num_partitions=2, **settings) as broker:
        yield {"bootstrap_servers": broker.bootstrap_servers, "world": simulation.host("client").world}


async def sent(producer: triokafka.Producer) -> None:
    await (await producer.send("new", b"v"))


async def sent_many(producer: triokafka.Producer) -> None:
    await (await producer.send_many("new", [b"v", b"w"]))


async def bound(producer: triokafka.Producer) -> None:
    await (await (await producer.bind("new", partition=1)).send(b"v"))


async def looked_up(producer: triokafka.Producer) -> None:
    assert len(await producer.partitions_for("new")) == 2


async def sent_without_waiting(producer: triokafka.Producer) -> None:
    while True:
        try:
            await producer.send_nowait("new", b"v")
            return
        except MetadataNotReadyError:
            await trio.sleep(0.001)


@simulated
@pytest.mark.parametrize("first", [sent, sent_many, bound, looked_up, sent_without_waiting])
async def test_first_use_of_an_auto_created_topic_waits_for_one_backoff(
    first: Callable[[triokafka.Producer], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    """No other call of the producer waits."""
    caplog.set_level(logging.INFO, "triokafka.client")
    caplog.set_level(logging.INFO, "triokafka.network")
    async with started() as options, triokafka.Producer(**options) as producer:
        await producer.partitions_for("another")  # the producer is connected then
        before = trio.current_time()
        await first(producer)
        waited = trio.current_time() - before
        assert FIRST_BACKOFF[0] < waited < FIRST_BACKOFF[1] + ON_THE_WAY
        before = trio.current_time()
        await sent(producer)
        assert trio.current_time() - before < ON_THE_WAY
    assert caplog.messages == []


@simulated
async def test_topics_created_together_wait_for_one_backoff() -> None:
    """KIP-526: a program that starts with many topics."""
    async with started() as options, triokafka.Producer(**options) as producer:
        await producer.partitions_for("another")
        before = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(producer.send, f"t{number}", b"v")
        assert FIRST_BACKOFF[0] < trio.current_time() - before < 2 * FIRST_BACKOFF[1] + ON_THE_WAY


@simulated
@pytest.mark.parametrize("group", [None, "classic", "consumer"])
async def test_consumer_reads_an_auto_created_topic(group: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """The problem in its health disappears once the topic exists, and nothing is logged."""
    caplog.set_level(logging.INFO, "triokafka.client")
    caplog.set_level(logging.INFO, "triokafka.network")
    async with started(group_initial_rebalance_delay_ms=0) as options:
        of_group: dict[str, Any] = {} if group is None else {"group_id": "g", "group_protocol": group}
        async with triokafka.Consumer("new", **options, **of_group, auto_offset_reset="earliest") as consumer:
            with trio.fail_after(6):  # members of a group receive an assignment with a heartbeat
                while len(consumer.assignment()) < 2:
                    await consumer.poll(timeout_ms=10)
            with trio.fail_after(FIRST_BACKOFF[1] + ON_THE_WAY):
                while consumer.health().troubles:
                    await consumer.poll(timeout_ms=10)
            async with triokafka.Producer(**options) as producer:
                await sent(producer)
            with trio.fail_after(1):
                assert (await anext(consumer)).value == b"v"
    assert [record.message for record in caplog.records if record.levelno > logging.INFO] == []


@simulated
async def test_consumer_reads_an_assigned_partition_of_an_auto_created_topic() -> None:
    partition = TopicPartition("new", 1)
    async with started() as options, triokafka.Consumer(**options) as consumer:
        consumer.assign([partition])
        before = trio.current_time()
        assert await consumer.position(partition) == 0
        assert trio.current_time() - before < 2 * FIRST_BACKOFF[1] + ON_THE_WAY
        assert await consumer.end_offsets([TopicPartition("other", 0)]) == {TopicPartition("other", 0): 0}


@simulated
async def test_send_to_a_missing_topic_fails_when_max_block_ms_is_over() -> None:
    async with (
        started(auto_create_topics_enable=False) as options,
        triokafka.Producer(**options, max_block_ms=1_000) as producer,
    ):
        before = trio.current_time()
        with pytest.raises(UnknownTopicOrPartitionError, match="'new' does not exist"):
            await producer.send("new", b"v")
        assert trio.current_time() - before == pytest.approx(1, abs=0.01)
