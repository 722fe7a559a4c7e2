"""aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.fault_clients.client import BACKOFF_MS, PATIENCE, REQUEST_MS, SESSION_MS


class AiokafkaClient:
    """See `FaultClient`."""

    def produce(self, servers: str, topic: str, happens: Callable[[], None]) -> str | None:
        return asyncio.run(_produce(servers, topic, happens))

    def consume(
        self, servers: str, topic: str, group: str, heartbeat_ms: int, happens: Callable[[], None]
    ) -> tuple[list[bytes], str | None]:
        return asyncio.run(_consume(servers, topic, group, heartbeat_ms, happens))


async def _produce(servers: str, topic: str, happens: Callable[[], None]) -> str | None:
    async with AIOKafkaProducer(
        bootstrap_servers=servers, request_timeout_ms=REQUEST_MS, retry_backoff_ms=BACKOFF_MS
    ) as producer:
        await producer.send_and_wait(topic, b"before", partition=0)
        await asyncio.to_thread(happens)
        try:
            await asyncio.wait_for(producer.send_and_wait(topic, b"after", partition=0), PATIENCE + 1)
        except KafkaError as error:
            return type(error).__name__
        return None


async def _consume(
    servers: str, topic: str, group: str, heartbeat_ms: int, happens: Callable[[], None]
) -> tuple[list[bytes], str | None]:
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=heartbeat_ms,
        request_timeout_ms=REQUEST_MS,
        retry_backoff_ms=BACKOFF_MS,
        fetch_max_wait_ms=100,
    ) as consumer:
        assert len(await _read(consumer, 2, b"")) == 2
        await consumer.commit()
        await asyncio.to_thread(happens)
        values = await _read(consumer, 100, b"last")
        if values and values[-1] == b"last":
            try:
                await consumer.commit()
            except KafkaError as error:
                return values, type(error).__name__
            return values, None
        return values, "nothing more"


async def _read(consumer: AIOKafkaConsumer, count: int, last: bytes) -> list[bytes]:
    values: list[bytes] = []
    until = time.monotonic() + PATIENCE
    while len(values) < count and last not in values and time.monotonic() < until:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            values += [record.value for record in records]
    return values
