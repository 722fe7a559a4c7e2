"""Send records and print their positions.

triokafka broker --listen 127.0.0.1:9092 --in-memory
python examples/produce.py localhost:9092
"""

from __future__ import annotations

import sys

import trio

import triokafka


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders") -> None:
    """Send one record and wait for it, then many, and wait for all of them."""
    async with triokafka.Producer(bootstrap_servers=bootstrap_servers) as producer:
        delivery = await producer.send(topic, b"two coffees", key=b"table 4", headers=[("waiter", b"Ada")])
        metadata = await delivery  # the broker's acknowledgement; the record is sent without this, too
        print(f"{metadata.topic}, partition {metadata.partition}, offset {metadata.offset}")

        deliveries = await producer.send_many(topic, [f"order {number}".encode() for number in range(10_000)])
        for partition, offsets in (await deliveries).items():
            print(f"{partition}: {offsets}")
    # Leaving the block has sent everything. It raises errors of deliveries that were not awaited.


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
