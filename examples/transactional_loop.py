"""Exactly once from topic to topic: outputs and the positions of their inputs are committed in one transaction.

After a crash, a rebalance or an aborted transaction the loop continues at the last commit, and consumers of the output
with ``isolation_level="read_committed"`` see each result once. Give every running copy a transactional id of its own,
and give a restarted copy the same one: it ends what its predecessor has left open. It may be killed at any time.

python examples/transactional_loop.py localhost:9092 orders invoices billing-1
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import trio

import triokafka
from triokafka import ConsumerRecord, TopicPartition


async def main(
    bootstrap_servers: str = "localhost:9092",
    orders: str = "orders",
    invoices: str = "invoices",
    transactional_id: str = "billing-1",
) -> None:
    """Write an invoice for every order, until cancelled."""
    async with (
        triokafka.Producer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id) as producer,
        triokafka.Consumer(
            orders,
            bootstrap_servers=bootstrap_servers,
            group_id="billing-exactly-once",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
    ):

        async def bill(records: Mapping[TopicPartition, Sequence[ConsumerRecord]], transaction: object) -> None:
            for found in records.values():
                for record in found:
                    await producer.send(invoices, b"invoice: " + (record.value or b""), key=record.key)
            print("billed", sum(map(len, records.values())), flush=True)

        await triokafka.process_transactions(consumer, producer, bill)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
