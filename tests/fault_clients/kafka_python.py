"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError

from tests.fault_clients.client import BACKOFF_MS, PATIENCE, REQUEST_MS, SESSION_MS


class KafkaPythonClient:
    """See `FaultClient`."""

    def produce(self, servers: str, topic: str, happens: Callable[[], None]) -> str | None:
        producer = KafkaProducer(
            bootstrap_servers=servers,
            request_timeout_ms=REQUEST_MS,
            retry_backoff_ms=BACKOFF_MS,
            reconnect_backoff_ms=BACKOFF_MS,
            reconnect_backoff_max_ms=BACKOFF_MS,
            delivery_timeout_ms=PATIENCE * 1000,
        )
        try:
            producer.send(topic, b"before", partition=0).get(PATIENCE)
            happens()
            try:
                producer.send(topic, b"after", partition=0).get(PATIENCE + 1)
            except KafkaError as error:
                return type(error).__name__
            return None
        finally:
            producer.close(timeout=1)

    def consume(
        self, servers: str, topic: str, group: str, heartbeat_ms: int, happens: Callable[[], None]
    ) -> tuple[list[bytes], str | None]:
        consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=heartbeat_ms,
            retry_backoff_ms=BACKOFF_MS,
            reconnect_backoff_ms=BACKOFF_MS,
            reconnect_backoff_max_ms=BACKOFF_MS,
            fetch_max_wait_ms=100,
            # It may join before it knows a new topic; then it gets no partitions until its next refresh.
            metadata_max_age_ms=1_000,
        )
        try:
            # If it joined before it knows the topic, it would get no partitions and wait for a refresh of all topics;
            # if it subscribed only after that, the next refresh would be a change to it, and it would join again.
            consumer.subscribe([topic])
            while not consumer.partitions_for_topic(topic):
                pass
            assert len(_read(consumer, 2, b"")) == 2
            consumer.commit()
            member = consumer.group_metadata().member_id
            happens()
            values = _read(consumer, 100, b"last")
            if values and values[-1] == b"last":
                try:
                    _commit(consumer, member)
                except KafkaError as error:
                    return values, type(error).__name__
                return values, None
            return values, "nothing more"
        finally:
            consumer.close(timeout_ms=2000)


def _commit(consumer: KafkaConsumer, member: str) -> None:
    """Commit as ``member``.

    The client refuses while it joins again, and polling ends that. If a heartbeat was refused because the member had
    expired, it joins as a new member, which may not commit for the old one.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            consumer.commit()
            return
        except RebalanceInProgressError:
            if time.monotonic() > until:
                raise
            consumer.poll(timeout_ms=100)
            if consumer.group_metadata().member_id not in ("", member):
                raise CommitFailedError from None


def _read(consumer: KafkaConsumer, count: int, last: bytes) -> list[bytes]:
    values: list[bytes] = []
    until = time.monotonic() + PATIENCE
    while len(values) < count and last not in values and time.monotonic() < until:
        for records in consumer.poll(timeout_ms=100).values():
            values += [record.value for record in records]
    return values
