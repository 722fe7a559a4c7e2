"""A program that copies a topic in transactions.

Arguments: bootstrap servers, source, target, group, transactional id, and the maximum number of records in a
transaction. ``tests/interop/java/TransactionalCopier.java`` does the same with Kafka's own clients. Both run until they
are killed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import trio

import triokafka
from triokafka.records import ConsumerRecord
from triokafka.structs import TopicPartition


async def copy(bootstrap: str, source: str, target: str, group: str, name: str, batch: int) -> None:
    """Copy at most ``batch`` records in each transaction, to the partitions with the same numbers."""
    async with (
        triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=name, linger_ms=5) as producer,
        triokafka.Consumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=6_000,
        ) as consumer,
    ):

        async def handle(
            found: Mapping[TopicPartition, Sequence[ConsumerRecord]], transaction: triokafka.Transaction
        ) -> None:
            for partition, records in found.items():
                for record in records:
                    await producer.send(target, record.value, partition=partition.partition)

        await triokafka.process_transactions(consumer, producer, handle, max_records=batch)


if __name__ == "__main__":
    bootstrap, source, target, group, name, batch = sys.argv[1:]
    trio.run(copy, bootstrap, source, target, group, name, int(batch))
