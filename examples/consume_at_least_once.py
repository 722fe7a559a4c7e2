"""At least once: handle the records first, then commit. A crash in between repeats records, and loses none.

python examples/consume_at_least_once.py localhost:9092 orders
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import trio

import triokafka


async def process(consumer: triokafka.Consumer, handle: Callable[[triokafka.ConsumerRecord], object]) -> None:
    """Call ``handle`` for every record, for some of them more than once. Repetitions must not harm."""
    while True:
        polled = await consumer.poll(timeout_ms=1_000)
        for records in polled.values():
            for record in records:
                handle(record)
        if polled:
            try:
                await consumer.commit()
            except triokafka.errors.CommitFailedError:
                continue  # another member has the partitions now and reads these records again


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders", instance: str = "") -> None:
    """Print partition, offset and value of every record, until cancelled."""
    async with triokafka.Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id="at-least-once",
        # with an instance id, a restarted consumer takes its place in the group at once
        group_instance_id=instance or None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=20,  # at most this many are repeated after a crash
    ) as consumer:
        await process(consumer, lambda record: print(record.partition, record.offset, record.value, flush=True))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
