"""One broker and one Spark session for all tests of this directory; a session costs seconds and most of a gigabyte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.spark_session import spark_session


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """The address of a broker in its own process."""
    with broker_process() as address:
        yield address


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker on disk that a test may kill."""
    process = BrokerProcess(tmp_path / "data")
    process.start()
    yield process
    process.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One session for all tests."""
    home = str(tmp_path_factory.mktemp("home"))
    # Not UTC, to test that instants do not depend on it.
    zone = {"sql_session_timeZone": "America/New_York"}
    with spark_session("triokafka tests", home, driver_memory="768m", **zone) as session:
        yield session
