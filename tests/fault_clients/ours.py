"""triokafka."""

from __future__ import annotations

from collections.abc import Callable

import trio

import triokafka
from tests.fault_clients.client import BACKOFF_MS, PATIENCE, REQUEST_MS, SESSION_MS
from triokafka.errors import KafkaError


class OurClient:
    """See `FaultClient`."""

    def produce(self, servers: str, topic: str, happens: Callable[[], None]) -> str | None:
        return trio.run(_produce, servers, topic, happens)

    def consume(
        self, servers: str, topic: str, group: str, heartbeat_ms: int, happens: Callable[[], None]
    ) -> tuple[list[bytes], str | None]:
        return trio.run(_consume, servers, topic, group, heartbeat_ms, happens)


async def _produce(servers: str, topic: str, happens: Callable[[], None]) -> str | None:
    error: str | None = None
    async with triokafka.Producer(
        bootstrap_servers=servers,
        request_timeout_ms=REQUEST_MS,
        retry_backoff_ms=BACKOFF_MS,
        reconnect_backoff_ms=BACKOFF_MS,
        reconnect_backoff_max_ms=BACKOFF_MS,
        delivery_timeout_ms=PATIENCE * 1000,
        linger_ms=0,
    ) as producer:
        await (await producer.send(topic, b"before", partition=0))
        await trio.to_thread.run_sync(happens)
        try:
            await (await producer.send(topic, b"after", partition=0))
        except KafkaError as failure:
            error = type(failure).__name__
    return error


async def _consume(
    servers: str, topic: str, group: str, heartbeat_ms: int, happens: Callable[[], None]
) -> tuple[list[bytes], str | None]:
    async with triokafka.Consumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=heartbeat_ms,
        retry_backoff_ms=BACKOFF_MS,
        reconnect_backoff_ms=BACKOFF_MS,
        reconnect_backoff_max_ms=BACKOFF_MS,
        fetch_max_wait_ms=100,
    ) as consumer:
        assert len(await _read(consumer, 2, b"")) == 2
        await consumer.commit()
        await trio.to_thread.run_sync(happens)
        values = await _read(consumer, 100, b"last")
        if values and values[-1] == b"last":
            try:
                await consumer.commit()
            except KafkaError as failure:
                return values, type(failure).__name__
            return values, None
        return values, "nothing more"


async def _read(consumer: triokafka.Consumer, count: int, last: bytes) -> list[bytes]:
    values: list[bytes] = []
    with trio.move_on_after(PATIENCE):
        while len(values) < count and last not in values:
            for records in (await consumer.poll(timeout_ms=100)).values():
                values += [record.value or b"" for record in records]
    return values
