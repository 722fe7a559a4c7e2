"""The broker that the integration tests run against.

It is ours, in its own process, unless ``TRIOKAFKA_TEST_BOOTSTRAP`` names another one, such as Apache Kafka. Every test
uses its own topics and groups, so that one broker serves all tests.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.tool import Tool


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The HOST:PORT of the broker under test."""
    given = os.environ.get("TRIOKAFKA_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    data: Path = tmp_path_factory.mktemp("broker") / "data"
    settings = {
        "log.initial.task.delay.ms": "86400000",  # no retention: some tests write records of long ago
        "group.initial.rebalance.delay.ms": "100",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "transaction.state.log.num.partitions": "5",
    }
    with broker_process(data, settings=settings) as address:
        yield address


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The HOST:PORT of a broker for the tests of one module, which ends cleanly. A module may have another one."""
    process = BrokerProcess(
        None, settings={"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    )
    yield process.start()
    assert process.stop() == 0


@pytest.fixture
def tool(broker: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Tool:
    """The commands against ``broker``."""
    return Tool(broker, capfdbinary, monkeypatch)


@pytest.fixture
def topic() -> str:
    """An unused topic name."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """An unused group id."""
    return f"group-{uuid.uuid4().hex[:12]}"
