"""Clients above a quota reach its rate, within a tenth, in virtual time; clients without a quota are unaffected."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from triokafka.client.admin import NewTopic, QuotaEntity
from triokafka.structs import TopicPartition
from triokafka.testing import running_broker

LIMIT: Final = 100_000
"""Bytes per second, for all limited clients together."""
VALUE: Final = b"x" * 5_000
WARM_UP: Final = 20.0
"""Seconds after which the burst of the first windows no longer counts."""
MEASURED: Final = 44.0
"""Seconds: four times the eleven windows of a second, because consumers read in bursts of one such time."""
LIMITED: Final = QuotaEntity.of(client_id="limited")


class Meter:
    """Counts bytes, and returns the rate per second over a measurement."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, *_: object) -> None:
        self.bytes += len(VALUE)

    async def measure(self) -> float:
        await trio.sleep(WARM_UP)
        before = self.bytes
        await trio.sleep(MEASURED)
        return (self.bytes - before) / MEASURED


@asynccontextmanager
async def broker_with_quota(name: str) -> AsyncIterator[dict[str, Any]]:
    """A broker with the topic t, whose quota ``name`` of the client id ``limited`` is `LIMIT`."""
    simulation = current_simulation()
    async with running_broker(world=simulation.host("broker").world) as broker:
        options: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "world": simulation.host("client").world,
        }
        async with triokafka.AdminClient(**options) as admin:
            await admin.create_topics([NewTopic("t", 1, 1)])
            await admin.alter_client_quotas({LIMITED: {name: LIMIT}})
        yield options


async def produce_always(options: dict[str, Any], acknowledged: Callable[..., None]) -> None:
    async with triokafka.Producer(**options, client_id="limited", batch_size=16_384, buffer_memory=65_536) as producer:
        while True:
            await producer.send("t", VALUE, on_delivery=acknowledged)


async def read_always(options: dict[str, Any], read: Callable[..., None]) -> None:
    async with triokafka.Consumer(
        **options, client_id="limited", fetch_max_bytes=20_000, max_partition_fetch_bytes=20_000
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        while True:
            consumer.seek_to_beginning(TopicPartition("t", 0))
            for _ in range(50):
                for batch in (await consumer.poll(timeout_ms=1000)).values():
                    for record in batch:
                        read(record)


@pytest.mark.parametrize("clients", [1, 10])
@simulated
async def test_producers_above_their_quota_reach_it_together(clients: int) -> None:
    async with broker_with_quota("producer_byte_rate") as options, trio.open_nursery() as nursery:
        meter = Meter()
        for _ in range(clients):
            nursery.start_soon(produce_always, options, meter.add)
        assert 0.9 * LIMIT <= await meter.measure() <= 1.1 * LIMIT
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("clients", [1, 10])
@simulated
async def test_consumers_above_their_quota_reach_it_together(clients: int) -> None:
    async with broker_with_quota("consumer_byte_rate") as options:
        async with triokafka.Producer(**options) as producer:
            for _ in range(400):
                await producer.send("t", VALUE)
        async with trio.open_nursery() as nursery:
            meter = Meter()
            for _ in range(clients):
                nursery.start_soon(read_always, options, meter.add)
            assert 0.9 * LIMIT <= await meter.measure() <= 1.1 * LIMIT
            nursery.cancel_scope.cancel()


@simulated
async def test_client_without_a_quota_is_not_affected_by_throttled_ones() -> None:
    async with broker_with_quota("producer_byte_rate") as options, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(produce_always, options, lambda *_: None)
        await trio.sleep(WARM_UP)
        async with triokafka.Producer(**options, client_id="free") as producer:
            await (await producer.send("t", b"first"))
            for _ in range(20):
                began_at = trio.current_time()
                await (await producer.send("t", VALUE))
                assert trio.current_time() - began_at < 0.1
            assert producer.metrics()["throttle_seconds_total"] == 0.0
        nursery.cancel_scope.cancel()
