"""At most once: commit first, then handle the records. A crash in between loses records, and repeats none.

For effects that must not happen twice and may be missing: a reminder, a sample, a metric.

python examples/consume_at_most_once.py localhost:9092 orders
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import trio

import triokafka


async def process(consumer: triokafka.Consumer, handle: Callable[[triokafka.ConsumerRecord], object]) -> None:
    """Call ``handle`` for every record, except for some after failures.

    A commit with an unknown outcome ends the loop: the next owner starts at the committed offsets and repeats none.
    """
    while True:
        polled = await consumer.poll(timeout_ms=1_000)
        if not polled:
            continue
        try:
            await consumer.commit()
        except triokafka.errors.CommitFailedError:
            continue  # another member has the partitions now, and these records
        for records in polled.values():
            for record in records:
                handle(record)


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders", instance: str = "") -> None:
    """Print partition, offset and value of every record, until cancelled."""
    async with triokafka.Consumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id="at-most-once",
        # with an instance id, a restarted consumer takes its place in the group at once
        group_instance_id=instance or None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=20,  # at most this many are lost in a crash
    ) as consumer:
        await process(consumer, lambda record: print(record.partition, record.offset, record.value, flush=True))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
