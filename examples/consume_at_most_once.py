"""At most once: commit first, then handle the records. A crash in between loses records, and repeats none.

For effects that must not happen twice and may be left out: a reminder, a sample, a metric.

python examples/consume_at_most_once.py localhost:9092 orders
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import trio

import triokafka


async def process(consumer: triokafka.Consumer, handle: Callable[[triokafka.ConsumerRecord], object]) -> None:
    """Call ``handle`` for every record, for some of them never.

    A commit of which it is not known whether it happened ends it: who goes on from the committed offsets repeats none.
    """
    while True:
        polled = await consumer.poll(timeout_ms=1_000)
        if not polled:
            continue
        try:
            await consumer.commit()
        except triokafka.errors.CommitFailedError:
            continue  # the partitions have gone to another member, and these records with them
        for records in polled.values():
            for record in records:
                handle(record)


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders", instance: str = "") -> None:
    """Print partition, offset and value of every record, until cancelled."""
    async with triokafka.Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id="at-most-once",
        group_instance_id=instance or None,  # with a name, a restart takes its place in the group at once
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=20,  # so many may be lost in a crash
    ) as consumer:
        await process(consumer, lambda record: print(record.partition, record.offset, record.value, flush=True))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
