"""The scenarios of transactions: the Java producer on our broker, all producers on Apache Kafka, and TV1 on both.

Under transaction version 1 a producer adds partitions with a separate request and keeps its epoch at the end of a
transaction; under version 2 it does neither (KIP-890).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

import triokafka
from tests.conformance.java_driver import JavaProcess, java_process
from tests.integration.test_transaction_scenarios import *  # noqa: F403 - they run with the fixtures of this module
from tests.interop import jvm
from tests.interop.transactional_java import JavaTransactions
from tests.support.broker_process import broker_process
from tests.support.transactional_drivers import DRIVERS, BlockingDriver, TransactionalDriver
from triokafka.client.admin import FeatureUpdate, UpgradeType

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

Make = Callable[[str, str, int], TransactionalDriver]

OURS: Final = "triokafka"
KAFKA: Final = "Apache Kafka"
CLIENTS: Final = ("Java", *(kind.name for kind in DRIVERS))
QUICK: Final = (
    (OURS, 2, "Java"),
    (OURS, 1, "Java"),
    (OURS, 1, BlockingDriver.name),
    (KAFKA, 2, "Java"),
    (KAFKA, 2, BlockingDriver.name),
)
LONG: Final = tuple(
    one for client in CLIENTS for level in (2, 1) for one in ((KAFKA, level, client),) if one not in QUICK
)
"""All clients on our broker, under version 2, are in the module of the scenarios."""


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProcess]:
    jvm.require("mvn", "javac", "java")
    with java_process(jvm.compiled()) as process:
        yield process


class Brokers:
    """Brokers by name and transaction version, each started on first use."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._known: dict[tuple[str, int], str] = {}

    def address(self, broker: str, level: int) -> str:
        """Return the address of a broker whose producers use that transaction version."""
        if (broker, level) not in self._known:
            directory = self._directory / f"{broker}-{level}".replace(" ", "-")
            directory.mkdir()
            running = broker_process(directory / "data") if broker == OURS else jvm.apache_kafka(directory)
            address = self._stack.enter_context(running)
            if level < 2:
                trio.run(_downgrade, address, level)
            self._known[broker, level] = address
        return self._known[broker, level]


async def _downgrade(address: str, level: int) -> None:
    update = FeatureUpdate(level, UpgradeType.SAFE_DOWNGRADE)
    async with triokafka.AdminClient(bootstrap_servers=address) as admin:
        await admin.update_features({"transaction.version": update})
        found = (await admin.describe_features()).finalized["transaction.version"]
        assert found.max_version == level


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(tmp_path_factory.mktemp("brokers"), stack)


@pytest.fixture(
    scope="module",
    params=[*QUICK, *(pytest.param(one, marks=pytest.mark.long) for one in LONG)],
    ids=lambda one: f"{one[2]} on {one[0]} TV{one[1]}",
)
def pair(request: pytest.FixtureRequest, brokers: Brokers) -> tuple[str, Make]:
    """A broker's address, and the constructor of a client's producers."""
    broker, level, client = request.param
    if client == "Java":
        return brokers.address(broker, level), partial(JavaTransactions, request.getfixturevalue("java"))
    (kind,) = (kind for kind in DRIVERS if kind.name == client)
    return brokers.address(broker, level), kind


@pytest.fixture
def bootstrap(pair: tuple[str, Make]) -> str:
    return pair[0]


@pytest.fixture  # type: ignore[no-redef]  # in place of the scenarios' own
def producer(pair: tuple[str, Make]) -> Iterator[Callable[..., TransactionalDriver]]:
    made: list[TransactionalDriver] = []

    def make(transactional_id: str | None = None, timeout_ms: int = 60_000) -> TransactionalDriver:
        one = pair[1](pair[0], transactional_id or uuid.uuid4().hex, timeout_ms)
        made.append(one)
        one.init()
        return one

    yield make
    for one in made:
        one.close()


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"
