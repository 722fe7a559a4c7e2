"""Topics for the Spark benchmark, filled by our producer."""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

import trio

import triokafka
from triokafka.cli.load.payloads import json_values

_numbers = itertools.count(1)
_AT_ONCE: Final = 20_000
_KEYS: Final = 1_000
_IDLE_RECORDS: Final = 10


class Topic(NamedTuple):
    """A topic with its end offsets."""

    name: str
    ends: list[int]

    @property
    def records(self) -> int:
        """The number of records in all partitions."""
        return sum(self.ends)


def filled(address: str, records: int, partitions: int, size: int, compression: str) -> Topic:
    """Return a new topic with ``records`` records, equally many in each partition."""
    each = records // partitions
    return trio.run(_fill, address, [each] * partitions, size, compression)


def idle(address: str, partitions: int) -> Topic:
    """Return a new topic with ten records in each partition."""
    return trio.run(_fill, address, [_IDLE_RECORDS] * partitions, 100, "none")


async def _fill(address: str, counts: list[int], size: int, compression: str) -> Topic:
    name = f"spark-{next(_numbers)}"
    values = json_values(size)
    async with triokafka.AdminClient(bootstrap_servers=address) as admin:
        await admin.create_topics([triokafka.NewTopic(name, len(counts), 1, configs={"retention.ms": "-1"})])
    keys = [b"%08d" % (number % _KEYS) for number in range(_AT_ONCE)]
    payloads = [values[number % len(values)] for number in range(_AT_ONCE)]
    async with triokafka.Producer(
        bootstrap_servers=address, compression_type=compression, batch_size=1 << 16, linger_ms=20
    ) as producer:
        for partition, count in enumerate(counts):
            left = count
            while left:
                some = min(left, _AT_ONCE)
                await producer.send_many(name, payloads[:some], keys=keys[:some], partition=partition)
                left -= some
    return Topic(name, counts)
