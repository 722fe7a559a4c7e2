"""Exactly once, in your own database: results and offsets are stored in one transaction, and nothing in Kafka.

A new owner of a partition continues at the position in the database. A member that the group has removed may not know
it yet: it finds that the database is beyond its records, and stores nothing.

python examples/consume_exactly_once.py localhost:9092 orders results.sqlite
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing

import trio

import triokafka
from triokafka import TopicPartition


class Results:
    """A database with the results of the records, and the position in each partition."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path)
        with self._database:
            self._database.execute("create table if not exists results (partition integer, offset integer, value blob)")
            self._database.execute(
                "create table if not exists positions (topic text, partition integer, position integer,"
                " primary key (topic, partition))"
            )

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the first record without a result."""
        row = self._database.execute(
            "select position from positions where topic = ? and partition = ?", partition
        ).fetchone()
        return 0 if row is None else int(row[0])

    def store(self, partition: TopicPartition, records: Sequence[triokafka.ConsumerRecord]) -> bool:
        """Store results and position in one transaction. Return False if another member has continued from here."""
        with self._database:
            # The lock is taken before the position is read, so that no other member can move it in between.
            self._database.execute("begin immediate")
            if self.position(partition) > records[0].offset:
                return False
            self._database.executemany(
                "insert into results values (?, ?, ?)",
                [(record.partition, record.offset, record.value) for record in records],
            )
            self._database.execute(
                "insert or replace into positions values (?, ?, ?)", (*partition, records[-1].offset + 1)
            )
        return True

    def all(self) -> list[tuple[int, int, bytes]]:
        """Return all results, in order."""
        return self._database.execute("select * from results order by partition, offset").fetchall()

    def close(self) -> None:
        """Close the database; uncommitted changes are dropped."""
        self._database.close()


class GoOnFromResults(triokafka.ConsumerRebalanceListener):
    """Starts every assigned partition where the results end."""

    def __init__(self, consumer: triokafka.Consumer, results: Results) -> None:
        self._consumer = consumer
        self._results = results

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        for partition in assigned:
            self._consumer.seek(partition, self._results.position(partition))


async def process(consumer: triokafka.Consumer, topic: str, results: Results) -> None:
    """Store every record once, whatever fails in between."""
    consumer.subscribe([topic], listener=GoOnFromResults(consumer, results))
    while True:
        for partition, records in (await consumer.poll(timeout_ms=1_000)).items():
            if results.store(partition, records):
                print("stored", partition.partition, records[0].offset, "to", records[-1].offset, flush=True)
            elif partition in consumer.assignment():
                # Another member had this partition meanwhile: continue where it stopped.
                consumer.seek(partition, results.position(partition))


async def main(
    bootstrap_servers: str = "localhost:9092",
    topic: str = "orders",
    path: str = "results.sqlite",
    instance: str = "",
) -> None:
    """Store records until cancelled."""
    async with triokafka.Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id="exactly-once",
        # with an instance id, a restarted consumer takes its place in the group at once
        group_instance_id=instance or None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=20,
    ) as consumer:
        with closing(Results(path)) as results:
            await process(consumer, topic, results)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
