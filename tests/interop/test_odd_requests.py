"""Apache Kafka responds to odd requests as our broker does, except for the differences in the table."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.interop import jvm
from tests.support.odd_requests import answered_frames, answers, expected, frames, table

pytestmark = pytest.mark.interop


def test_apache_kafka_responds_to_every_odd_request_as_we_do(tmp_path: Path) -> None:
    """The table is that of ``tests/integration/test_odd_requests.py``."""
    jvm.require("mvn", "javac", "java")
    with jvm.apache_kafka(tmp_path) as bootstrap:
        assert trio.run(answers, bootstrap, table()) == expected(table(), of_kafka=True)
        assert trio.run(answered_frames, bootstrap, frames()) == expected(frames(), of_kafka=True)
