"""Topics that change while a query runs: written to, grown, truncated, deleted and recreated, through the public
clients.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable

import trio

import triokafka
from tests.spark.topics import Record, produce
from triokafka.structs import TopicPartition

_numbers = itertools.count(1)


class Topic:
    """One topic of a broker. Values are integers as text, distributed over the partitions in turn."""

    def __init__(self, bootstrap: str, partitions: int = 1, *, name: str | None = None) -> None:
        self.bootstrap = bootstrap
        self.name = name if name is not None else f"stream-{next(_numbers)}"
        self.partitions = partitions
        self.create()

    def create(self) -> None:
        """Create the topic, which does not exist."""
        # Any timestamps, as brokers before Kafka 3.6 accept them.
        configs = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
        topic = triokafka.NewTopic(self.name, self.partitions, 1, configs=configs)
        self._manage(lambda admin: admin.create_topics([topic]))

    def add(self, values: Iterable[int], *, timestamp_ms: int | None = None) -> None:
        """Write values, the first to partition 0, the next to partition 1 and so on."""
        self.write(
            Record(b"%d" % value, partition=place % self.partitions)
            if timestamp_ms is None
            else Record(b"%d" % value, partition=place % self.partitions, timestamp_ms=timestamp_ms)
            for place, value in enumerate(values)
        )

    def add_to(self, partition: int, values: Iterable[int]) -> None:
        """Write values to one partition."""
        self.write(Record(b"%d" % value, partition=partition) for value in values)

    def write(self, records: Iterable[Record]) -> None:
        """Write records."""
        trio.run(produce, self.bootstrap, self.name, records)

    def grow(self, partitions: int) -> None:
        """Add partitions."""
        self._manage(lambda admin: admin.create_partitions({self.name: partitions}))
        self.partitions = partitions

    def cut(self, offset: int, partition: int = 0) -> None:
        """Delete the records below an offset, as retention does."""
        self._manage(lambda admin: admin.delete_records({TopicPartition(self.name, partition): offset}))

    def delete(self) -> None:
        """Delete it."""
        self._manage(lambda admin: admin.delete_topics([self.name]))

    def ends(self) -> dict[int, int]:
        """Return the end offsets of its partitions."""
        found = {}

        async def ask() -> None:
            async with triokafka.AdminClient(bootstrap_servers=self.bootstrap) as admin:
                ones = [TopicPartition(self.name, number) for number in range(self.partitions)]
                for one, answer in (await admin.list_offsets(dict.fromkeys(ones, "latest"))).items():
                    found[one.partition] = answer.offset

        trio.run(ask)
        return found

    def _manage(self, work: Callable[[triokafka.AdminClient], Awaitable[object]]) -> None:
        async def manage() -> None:
            async with triokafka.AdminClient(bootstrap_servers=self.bootstrap) as admin:
                await work(admin)

        trio.run(manage)


def committed(bootstrap: str, group_id: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group."""
    found: dict[TopicPartition, int] = {}

    async def ask() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            for one, position in (await admin.list_group_offsets(group_id)).items():
                found[one] = position.offset

    trio.run(ask)
    return found
