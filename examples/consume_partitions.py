"""Process partitions in parallel, each in order, under the consumer protocol (KIP-848), which does not stop the others.

python examples/consume_partitions.py localhost:9092
"""

from __future__ import annotations

import sys

import trio

import triokafka


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders", limit: str = "") -> None:
    """Print records until cancelled, or until ``limit`` records were handled; then print the committed offsets."""
    handled = 0
    enough = trio.CancelScope()

    async def handle(record: triokafka.ConsumerRecord) -> None:
        nonlocal handled
        await trio.sleep(0.01)  # a slow service; the other partitions continue meanwhile
        print(record.partition, record.offset, record.value)
        handled += 1
        if limit and handled >= int(limit):
            enough.cancel()

    async with triokafka.Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id="shipping",
        group_protocol="consumer",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        with enough:
            await triokafka.process_partitions(consumer, handle)
        committed = await consumer.committed(consumer.assignment())
        print("committed", sum(position.offset for position in committed.values() if position is not None))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
