"""librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.fault_clients.client import BACKOFF_MS, PATIENCE, REQUEST_MS, SESSION_MS


class ConfluentClient:
    """See `FaultClient`."""

    def produce(self, servers: str, topic: str, happens: Callable[[], None]) -> str | None:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "socket.timeout.ms": REQUEST_MS,
                "request.timeout.ms": REQUEST_MS,
                "retry.backoff.ms": BACKOFF_MS,
                "reconnect.backoff.ms": BACKOFF_MS,
                "reconnect.backoff.max.ms": BACKOFF_MS,
                "message.timeout.ms": PATIENCE * 1000,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        errors: list[KafkaError | None] = []
        producer.produce(topic, b"before", partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE)
        happens()
        producer.produce(topic, b"after", partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE + 1)
        assert len(errors) == 2 and errors[0] is None
        return None if errors[1] is None else str(errors[1].name())

    def consume(
        self, servers: str, topic: str, group: str, heartbeat_ms: int, happens: Callable[[], None]
    ) -> tuple[list[bytes], str | None]:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": heartbeat_ms,
                "socket.timeout.ms": REQUEST_MS,
                "retry.backoff.ms": BACKOFF_MS,
                "reconnect.backoff.ms": BACKOFF_MS,
                "reconnect.backoff.max.ms": BACKOFF_MS,
                "fetch.error.backoff.ms": BACKOFF_MS,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([topic])
            assert len(_read(consumer, 2, b"")) == 2
            consumer.commit(asynchronous=False)
            happens()
            values = _read(consumer, 100, b"last")
            if values and values[-1] == b"last":
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as error:
                    return values, str(error.args[0].name())
                return values, None
            return values, "nothing more"
        finally:
            consumer.close()


def _read(consumer: Consumer, count: int, last: bytes) -> list[bytes]:
    values: list[bytes] = []
    until = time.monotonic() + PATIENCE
    while len(values) < count and time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            values.append(value)
            if value == last:
                break
    return values
