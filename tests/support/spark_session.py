"""A Spark session in this process, as the documentation tells users to make one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def spark_session(name: str, home: str, **settings: str) -> Iterator[Any]:
    """Run a session with ``home`` as the folder of ``prepare_home``. In ``settings``, ``_`` stands for a dot."""
    import triokafka.spark

    triokafka.spark.prepare_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName(name)
    given = {
        **triokafka.spark.session_conf(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A session as short as this one never recovers the cost of the optimising compiler.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        **{f"spark.{key.replace('_', '.')}": value for key, value in settings.items()},
    }
    for key, value in given.items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", "")  # restored after this session, which sets it
        # Spark gives the process that plans a streaming query ten seconds for its imports: not much on a busy machine.
        triokafka.spark.prepare_home(home)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
