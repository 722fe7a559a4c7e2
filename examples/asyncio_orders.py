"""asyncio: aiokafka's classes, from this package. Programs change only their imports.

python examples/asyncio_orders.py localhost:9092 orders
"""

from __future__ import annotations

import asyncio
import sys

from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders") -> None:
    """Send a hundred orders with a task for each, then read them back in batches."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", linger_ms=5) as producer:
        sent = await asyncio.gather(
            *(producer.send_and_wait(topic, f"order {number}".encode(), key=b"table 4") for number in range(100))
        )
    print(f"sent {len(sent)} to partition {sent[0].partition}")
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id="asyncio-orders",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        read = 0
        while read < len(sent):
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                read += len(records)
            await consumer.commit()
    print(f"read and committed {read}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
