"""Delivery callbacks: failed records are reported in another topic, and the program does not wait for each record.

triokafka broker --listen 127.0.0.1:9092 --in-memory
python examples/produce_callbacks.py localhost:9092
"""

from __future__ import annotations

import sys
from functools import partial

import trio

import triokafka

LARGEST = 10_000


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "images") -> None:
    """The topic limits the size of records; the broker refuses larger ones, and the callback reports them."""
    async with triokafka.AdminClient(bootstrap_servers=bootstrap_servers) as admin:
        await admin.create_topics(
            [
                triokafka.NewTopic(topic, num_partitions=1, configs={"max.message.bytes": str(LARGEST)}),
                triokafka.NewTopic(f"{topic}-refused", num_partitions=1),
            ]
        )
    async with triokafka.Producer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.partitions_for(f"{topic}-refused")  # the callback cannot wait, so load the topic's metadata now

        def settled(name: str, metadata: triokafka.RecordMetadata | None, error: Exception | None) -> None:
            # Runs in a task of the producer: it must be quick, and must not wait.
            if error is not None:
                producer.send_nowait(f"{topic}-refused", f"{name}: {type(error).__name__}".encode())

        for number in range(100):
            size = LARGEST * 2 if number % 25 == 0 else LARGEST // 2
            await producer.send(topic, b"x" * size, on_delivery=partial(settled, f"image {number}"))
        await producer.flush()  # all callbacks have run, and the records that they sent are in the buffer
    refused = producer.metrics()["record_error_total"]
    print(f"{100 - refused:.0f} delivered, {refused:.0f} refused and reported in {topic}-refused")


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
