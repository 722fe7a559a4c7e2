"""One broker and one Spark session for all tests of this directory; a session costs seconds and most of a gigabyte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess, broker_process


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Address of a broker in a process of its own."""
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
    """A Spark session as the documentation tells users to make one."""
    import triokafka.spark

    triokafka.spark.prepare_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("triokafka tests")
    settings = {
        **triokafka.spark.session_conf(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "768m",
        # A session as short as this one never earns back what the optimising compiler costs.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        # Not UTC, to see that instants do not depend on it.
        "spark.sql.session.timeZone": "America/New_York",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", "")  # restored after this session, which sets it
        # Spark gives the process that plans a streaming query ten seconds for its imports: not much on a busy machine.
        triokafka.spark.prepare_home(str(tmp_path_factory.mktemp("home")))
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
