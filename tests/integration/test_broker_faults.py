"""Other clients' producers against a broker that refuses requests, drops responses after the write and throttles.

The faults are injected over the control endpoint, the quotas are set over the protocol. With idempotence, every record
is in the log once and in order, whatever the responses were.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
import trio
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from tests.support.broker_process import BrokerProcess
from triokafka.protocol.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from triokafka.protocol.frames import encode_request
from triokafka.world.system import RealWorld

COUNT = 400
PATIENCE = 60
JSON = {"Content-Type": "application/json"}

FAULTS: list[dict[str, Any]] = [
    {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 4, "chance": 0.3},
    {"api": "Produce", "error": "REQUEST_TIMED_OUT", "after_append": True, "times": 4, "chance": 0.3},
    {"api": "Produce", "error": "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "after_append": True, "times": 2, "chance": 0.3},
    {"api": "Produce", "close": "after", "times": 3, "chance": 0.2},
    {"api": "Produce", "close": "before", "times": 2, "chance": 0.2},
    {"api": "Produce", "close": "within", "times": 2, "chance": 0.2},
    {"api": "Produce", "answer_delay_ms": 50, "times": 10, "chance": 0.3},
]
LOST: dict[str, Any] = {"api": "Produce", "lose_answer": True, "times": 1, "skip": 5}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """Run a broker with a control endpoint."""
    process = BrokerProcess(None, controlled=True)
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Create a topic of one partition."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    return name


def control(broker: BrokerProcess, method: str, body: object = None) -> list[dict[str, Any]]:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(f"http://{broker.control}/faults", data, JSON, method=method), timeout=60) as answer:
        armed: list[dict[str, Any]] = json.loads(answer.read())
    return armed


def confluent(bootstrap: str, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 20,
            "socket.timeout.ms": 3000,
            "request.timeout.ms": 3000,
            "retry.backoff.ms": 10,
        }
    )
    errors: list[object] = []
    for i in range(COUNT):
        producer.produce(topic, b"%d" % i, on_delivery=lambda error, _: errors.append(error) if error else None)
        producer.poll(0)
        if not i % 10:
            producer.poll(0.01)
    assert producer.flush(PATIENCE) == 0
    assert errors == []


def kafka_python(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        batch_size=300,  # for many requests
        request_timeout_ms=3000,
        delivery_timeout_ms=PATIENCE * 1000,
        retry_backoff_ms=10,
    )
    sent = []
    for i in range(COUNT):
        sent.append(producer.send(topic, b"%d" % i))
    producer.flush(PATIENCE)
    assert [future.get(PATIENCE).topic for future in sent] == [topic] * COUNT
    producer.close()


def aiokafka(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            max_batch_size=300,  # for many requests
            request_timeout_ms=PATIENCE * 1000,  # which is also the total time limit of a batch
            retry_backoff_ms=10,
        )
        await producer.start()
        sent = []
        for i in range(COUNT):
            sent.append(await producer.send(topic, b"%d" % i))
        await producer.flush()
        await asyncio.gather(*sent)
        await producer.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def stored(bootstrap: str, topic: str) -> list[int]:
    """Return the records of partition 0, as numbers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < end:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value() or b""))
    consumer.close()
    return found


@pytest.mark.parametrize("produce", [confluent, kafka_python, aiokafka])
def test_an_idempotent_producer_writes_each_record_once_and_in_order_despite_faults(
    broker: BrokerProcess, topic: str, produce: Callable[[str, str], None]
) -> None:
    try:
        # aiokafka would wait for a lost response as long as for the whole batch.
        control(broker, "POST", FAULTS if produce is aiokafka else [*FAULTS, LOST])
        produce(broker.bootstrap, topic)
        left = control(broker, "GET")
    finally:
        control(broker, "DELETE")
    assert stored(broker.bootstrap, topic) == list(range(COUNT))
    assert sum(fault["times"] for fault in FAULTS) - sum(fault["times"] for fault in left) >= 5


def set_quota(bootstrap: str, user: str | None, key: str, value: float | None) -> None:
    """Set the quota over the protocol, because none of the clients has a call for it."""

    async def main() -> None:
        host, _, port = bootstrap.partition(":")
        stream = await RealWorld().connect(host, int(port))
        request = AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type="user", entity_name=user)],
                    ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
                )
            ]
        )
        await stream.send(*encode_request(request, version=1, correlation_id=1, client_id="test"))
        assert await stream.receive_into(memoryview(bytearray(1000)))
        stream.close()

    trio.run(main)


def test_a_throttled_librdkafka_reports_the_throttle_time(broker: BrokerProcess, topic: str) -> None:
    """It delivers everything (KIP-13, KIP-219)."""
    throttled: list[ThrottleEvent] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "throttle_cb": throttled.append, "linger.ms": 0, "batch.size": 60_000}
    )
    set_quota(broker.bootstrap, None, "producer_byte_rate", 100_000.0)
    try:
        for _ in range(22):
            producer.produce(topic, b"x" * 50_000)
        assert producer.flush(PATIENCE) == 0
    finally:
        set_quota(broker.bootstrap, None, "producer_byte_rate", None)
    producer.poll(0)
    assert throttled
    assert max(event.throttle_time for event in throttled) > 0


def test_a_throttled_kafka_python_logs_the_throttle_time(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-13, KIP-219."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0)
    set_quota(broker.bootstrap, "ANONYMOUS", "producer_byte_rate", 100_000.0)
    try:
        for _ in range(22):
            producer.send(topic, b"x" * 50_000).get(PATIENCE)
    finally:
        set_quota(broker.bootstrap, "ANONYMOUS", "producer_byte_rate", None)
    producer.close()
    assert "throttled by broker" in caplog.text
