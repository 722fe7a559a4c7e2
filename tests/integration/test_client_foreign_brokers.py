"""Our admin client against noida-db, and the fixtures of all tests with other projects' brokers.

The producer's tests with them are in `test_producer_brokers`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import trio

import triokafka
from tests.support import foreign_brokers
from triokafka.errors import KafkaError


@pytest.fixture(scope="module")
def librdkafka_mock() -> Iterator[str]:
    """The bootstrap servers of a mock cluster of three."""
    with foreign_brokers.librdkafka_mock() as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module")
def noida_db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a noida-db that serves Kafka's protocol only."""
    with foreign_brokers.noida_db(tmp_path_factory.mktemp("noida")) as bootstrap:
        yield bootstrap


@pytest.fixture(params=["librdkafka_mock", "noida_db"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of each broker of another project."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
def topic() -> str:
    """An unused topic name."""
    return f"topic-{uuid.uuid4().hex[:12]}"


async def test_admin_client_creates_describes_and_deletes_topics(noida_db: str, topic: str) -> None:
    with trio.fail_after(60):
        async with triokafka.AdminClient(bootstrap_servers=noida_db) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, num_partitions=3, replication_factor=1)])
            described = await admin.describe_topics([topic])
            assert len(described[topic].partitions) == 3
            assert topic in [listing.name for listing in await admin.list_topics()]
            await admin.delete_topics([topic])
            with pytest.raises(KafkaError):
                _ = (await admin.describe_topics([topic]))[topic]
