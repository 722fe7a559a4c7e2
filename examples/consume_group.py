"""Consume as a member of a group. Start it several times: the members share the partitions.

python examples/consume_group.py localhost:9092
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import trio

import triokafka
from triokafka import TopicPartition


class Announcer(triokafka.ConsumerRebalanceListener):
    """Prints assigned and revoked partitions."""

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        print("got", ", ".join(map(str, assigned)) or "nothing")

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        if revoked:  # a member that joins for the first time has no partitions
            print("gave up", ", ".join(map(str, revoked)))


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders", limit: str = "") -> None:
    """Print records until cancelled, or until ``limit`` records. Offsets are committed in the background."""
    seen = 0
    async with triokafka.Consumer(
        bootstrap_servers=bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic], listener=Announcer())
        async for record in consumer:  # a record is finished when the loop asks for the next one
            print(record.partition, record.offset, record.key, record.value)
            seen += 1
            if limit and seen >= int(limit):
                break


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
