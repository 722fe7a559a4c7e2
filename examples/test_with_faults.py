"""Tests of a service when the broker fails: errors, lost answers, a crash. Any client in any language can be tested so.

Run with: pytest examples. The page docs/testing.md lists all faults.
"""

from __future__ import annotations

import triokafka
from triokafka.testing import running_broker


async def values_of(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    """Read a topic from the beginning."""
    async with triokafka.Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id="reader", auto_offset_reset="earliest"
    ) as consumer:
        found: list[bytes | None] = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
    return found


async def test_refused_and_lost_answers_neither_lose_nor_repeat_an_order() -> None:
    async with running_broker() as broker:
        async with triokafka.Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10) as producer:
            await (await producer.send("orders", b"first"))
            broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=2)
            await (await producer.send("orders", b"second"))
            broker.close_on("Produce", at="after")  # the record is in the log, and the answer is lost
            await (await producer.send("orders", b"third"))
        assert await values_of(broker.bootstrap_servers, "orders", 3) == [b"first", b"second", b"third"]


async def test_orders_survive_a_crash_of_the_broker() -> None:
    async with running_broker() as broker:
        async with triokafka.Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10) as producer:
            await (await producer.send("orders", b"before"))
            await broker.restart(clean=False)
            await (await producer.send("orders", b"after"))
        assert await values_of(broker.bootstrap_servers, "orders", 2) == [b"before", b"after"]
