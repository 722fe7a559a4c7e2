"""Apache Kafka responds to Produce requests as our broker does, except for the differences in the table."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.interop import jvm
from tests.support.produce_cases import answers, expected

pytestmark = pytest.mark.interop


def test_apache_kafka_responds_to_every_kind_of_produce_request_as_we_do(tmp_path: Path) -> None:
    """The table is that of ``tests/integration/test_produce_answers.py``."""
    jvm.require("mvn", "javac", "java")
    with jvm.apache_kafka(tmp_path) as bootstrap:
        assert trio.run(answers, bootstrap) == expected(of_kafka=True)
