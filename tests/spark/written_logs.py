"""Logs written batch by batch in a broker of this process: transactions with their markers, and gaps of compaction.

No coordinator takes part, but logs handle transactions: markers, the index of aborted transactions, the last stable
offset. So the tests encode batches and markers directly, as a coordinator and replication would write them.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from triokafka.records import encode_batch
from triokafka.testing.broker import RunningBroker
from triokafka.testing.portal import Portal
from triokafka.testing.running import running_broker

_names = itertools.count(1)
NOW_MS = 1_388_491_200_000


class WrittenLog:
    """One topic whose logs the test writes."""

    def __init__(self, portal: Portal[RunningBroker], broker: RunningBroker, name: str, partitions: int) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.name = name
        self._portal = portal
        self._broker = broker
        self._sequences: dict[tuple[int, int], int] = {}
        portal.wait(broker.create_topic, name, partitions=partitions, configs={"retention.ms": "-1"})

    def write(
        self, values: Iterable[int | str], *, partition: int = 0, producer: int = -1, codec: str = "none"
    ) -> None:
        """Append one batch; with a ``producer`` id it belongs to that producer's open transaction."""
        records = [(NOW_MS, None, str(value).encode(), ()) for value in values]
        sequence = -1
        if producer >= 0:
            sequence = self._sequences.get((partition, producer), 0)
            self._sequences[partition, producer] = sequence + len(records)
        self._append(
            partition,
            encode_batch(
                records,
                compression=codec,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence,
                transactional=producer >= 0,
            ),
        )

    def write_at(self, offset: int, values: Iterable[int | str], *, partition: int = 0) -> None:
        """Append one batch that starts at ``offset``: earlier offsets were removed by compaction."""
        records = [(NOW_MS, None, str(value).encode(), ()) for value in values]
        data = encode_batch(records, base_offset=offset, leader_epoch=0)
        self.write_bytes(data, partition=partition)

    def write_bytes(self, data: bytes, *, partition: int = 0) -> None:
        """Append batches unchanged, in any format, as replication does."""
        self._portal.call(self._follow, partition, data)

    def commit(self, producer: int, *, partition: int = 0) -> None:
        """Commit the transaction of a producer: readers get its records."""
        self._end(producer, partition, committed=True)

    def abort(self, producer: int, *, partition: int = 0) -> None:
        """Abort the transaction of a producer: readers of committed records do not get its records."""
        self._end(producer, partition, committed=False)

    def options(self, **more: str) -> dict[str, str]:
        """Return the options of a read of the topic."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.name, **more}

    def _end(self, producer: int, partition: int, *, committed: bool) -> None:
        key, value = struct.pack(">hh", 0, int(committed)), struct.pack(">hi", 0, 5)
        marker = encode_batch(
            [(NOW_MS, key, value, ())], producer_id=producer, producer_epoch=0, transactional=True, control=True
        )
        self._append(partition, marker, from_client=False)

    def _append(self, partition: int, batch: bytes, *, from_client: bool = True) -> None:
        self._portal.call(self._lead, partition, batch, from_client)

    def _lead(self, number: int, batch: bytes, from_client: bool) -> None:
        replicas = self._broker.broker.replicas
        partition = replicas.partition((self.name, number))
        partition.append(bytearray(batch), required_acks=-1, now_ms=NOW_MS, from_client=from_client)
        replicas.appended(partition)

    def _follow(self, number: int, batch: bytes) -> None:
        replicas = self._broker.broker.replicas
        partition = replicas.partition((self.name, number))
        partition.log.append_as_follower(bytearray(batch), now_ms=NOW_MS)
        replicas.appended(partition)


class LogWriter:
    """Creates topics in the broker."""

    def __init__(self, portal: Portal[RunningBroker], broker: RunningBroker) -> None:
        self._portal = portal
        self._broker = broker

    def topic(self, partitions: int = 1) -> WrittenLog:
        """Return a new topic without records."""
        return WrittenLog(self._portal, self._broker, f"written-{next(_names)}", partitions)


@contextmanager
def log_writer(**options: Any) -> Iterator[LogWriter]:
    """Run a broker in a thread of this process for the length of the block."""
    portal = Portal(lambda: running_broker(**options), name="broker of written logs")
    broker = portal.start()
    try:
        yield LogWriter(portal, broker)
    finally:
        portal.stop()
