"""Claims about other people's transactional producers: this broker has no transactions, and they learn that at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import errors as aiokafka_errors
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka import errors as kafka_python_errors

from tests.support.broker_process import broker_process

PATIENCE_SECONDS = 30
"""After this time a client would give up by itself."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_process() as address:
        yield address


def test_librdkafka_ends_with_a_fatal_error(bootstrap: str) -> None:
    """After INVALID_REQUEST it repeated FindCoordinator until the timeout, and without one for ever."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(PATIENCE_SECONDS)
    error = raised.value.args[0]
    assert error.code() == KafkaError._FATAL or error.fatal()
    assert "this broker does not serve transactions" in error.str()


def test_kafka_python_ends_with_a_fatal_error(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx", max_block_ms=PATIENCE_SECONDS * 1000)
    try:
        with pytest.raises(kafka_python_errors.TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(timeout=1)


def test_aiokafka_ends_with_a_fatal_error(bootstrap: str) -> None:
    async def begin() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="tx")
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka_errors.TransactionalIdAuthorizationFailed):
        asyncio.run(begin())
