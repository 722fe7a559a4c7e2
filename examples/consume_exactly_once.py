"""Exactly once, in your own database: results and offsets are stored in one transaction, and nothing in Kafka.

Whoever gets a partition goes on where the database is. A member that was put out of the group, and does not know it
yet, finds that the position in the database is beyond the records that it has, and stores nothing.

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
    """A database with what came of the records, and how far each partition was read."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path)
        with self._database:
            self._database.execute("create table if not exists results (partition integer, offset integer, value blob)")
            self._database.execute(
                "create table if not exists positions (topic text, partition integer, position integer,"
                " primary key (topic, partition))"
            )

    def position(self, partition: TopicPartition) -> int:
        """The offset of the first record that is not in the results."""
        row = self._database.execute(
            "select position from positions where topic = ? and partition = ?", partition
        ).fetchone()
        return 0 if row is None else int(row[0])

    def store(self, partition: TopicPartition, records: Sequence[triokafka.ConsumerRecord]) -> bool:
        """Results and position in one transaction; False when somebody else has gone on from where these begin."""
        with self._database:
            # The lock is taken before the position is read, so that nobody can move it in between.
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
        """Everything stored, in order."""
        return self._database.execute("select * from results order by partition, offset").fetchall()

    def close(self) -> None:
        """What was not committed is gone."""
        self._database.close()


class GoOnFromResults(triokafka.ConsumerRebalanceListener):
    """Begins every partition that comes where the results end."""

    def __init__(self, consumer: triokafka.Consumer, results: Results) -> None:
        self._consumer = consumer
        self._results = results

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        for partition in assigned:
            self._consumer.seek(partition, self._results.position(partition))


async def process(consumer: triokafka.Consumer, topic: str, results: Results) -> None:
    """Store every record once, whatever happens in between."""
    consumer.subscribe([topic], listener=GoOnFromResults(consumer, results))
    while True:
        for partition, records in (await consumer.poll(timeout_ms=1_000)).items():
            if results.store(partition, records):
                print("stored", partition.partition, records[0].offset, "to", records[-1].offset, flush=True)
            elif partition in consumer.assignment():
                # Another member had this partition meanwhile, and it has come back: go on where that one stopped.
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
        group_instance_id=instance or None,  # with a name, a restart takes its place in the group at once
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=20,
    ) as consumer:
        with closing(Results(path)) as results:
            await process(consumer, topic, results)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
