"""Other clients' transactions on a cluster whose leaders move and whose brokers stop: each is complete or absent.

Two producers (librdkafka) write transactions over six partitions with three replicas. Meanwhile the leaders of the
partitions and of the coordinators move, and brokers are killed and started again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.waiting import until
from triokafka.testing.blocking import running_cluster

PARTITIONS = 6
TRANSACTIONS = 12
SECONDS = 60.0


class Writer:
    """Writes transactions under one transactional id, one value into every partition."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap = bootstrap
        self.name = name
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(150)
        assert not self._thread.is_alive(), f"{self.name} hangs after {len(self.committed)} transactions"
        if self.failure is not None:
            raise self.failure

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            producer = self._new_producer()
            for number in range(TRANSACTIONS):
                value = f"{self.name}-{number}"
                try:
                    self._write(producer, value, commits=number % 4 != 3)
                except KafkaException as error:
                    if error.args[0].txn_requires_abort():
                        self._patiently(partial(producer.abort_transaction, 5.0))
                        self.aborted.add(value)
                    else:
                        producer = self._new_producer()
        except BaseException as error:
            self.failure = error

    def _write(self, producer: Producer, value: str, *, commits: bool) -> None:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("t", value.encode(), partition=partition)
        producer.flush(SECONDS)
        if commits:
            self._patiently(lambda: producer.commit_transaction(5.0))
            self.committed.add(value)
        else:
            self._patiently(lambda: producer.abort_transaction(5.0))
            self.aborted.add(value)

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "reconnect.backoff.max.ms": 200,
                "socket.timeout.ms": 5_000,
            }
        )
        self._patiently(lambda: producer.init_transactions(5.0))
        return producer

    @staticmethod
    def _patiently(call: Any) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


def read_committed(bootstrap: str) -> list[Counter[str]]:
    """Return the values of each partition."""
    found: list[Counter[str]] = [Counter() for _ in range(PARTITIONS)]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error() is None:
            found[message.partition() or 0][(message.value() or b"").decode()] += 1
        else:
            ends += 1
    consumer.close()
    return found


def wait_for_a_commit(writers: list[Writer]) -> None:
    """Wait until the writers have committed one more transaction, or have finished."""
    before = sum(len(writer.committed) for writer in writers)
    until(
        lambda: sum(len(one.committed) for one in writers) > before or not any(one.is_alive for one in writers),
        "no transaction was committed",
    )


@pytest.mark.timeout(240)
def test_transactions_are_whole_while_leaders_move_and_brokers_stop() -> None:
    chance = random.Random(3)
    with running_cluster(3) as cluster:
        bootstrap = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result()
        writers = [Writer(bootstrap, f"writer-{number}") for number in range(2)]
        for _ in range(4):
            wait_for_a_commit(writers)
            for topic in ("__transaction_state", "t"):
                if cluster.leader(topic, 0) >= 0:
                    cluster.move_leader(topic, chance.randrange(4))
            time.sleep(0.3)  # transactions continue at the new leaders before a broker restarts
            cluster.restart(chance.randrange(1, 4), clean=chance.random() < 0.5)
        for writer in writers:
            writer.join()
        deadline = time.monotonic() + SECONDS
        while any(part != first for first, *parts in [read_committed(bootstrap)] for part in parts):
            assert time.monotonic() < deadline, "a transaction is torn"
        (seen, *_) = read_committed(bootstrap)
    assert set(seen.values()) <= {1}
    for writer in writers:
        assert writer.committed <= set(seen)
        assert not writer.aborted & set(seen)
        assert len(writer.committed) >= TRANSACTIONS // 2
