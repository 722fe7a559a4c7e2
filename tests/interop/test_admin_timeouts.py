"""Apache Kafka responds to administrative requests with an expired time limit as in the table that our broker
follows.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.interop import jvm
from tests.support.admin_timeouts import answers, expected

pytestmark = pytest.mark.interop


def test_apache_kafkas_responses_to_every_time_limit_equal_the_table(tmp_path: Path) -> None:
    """The table is that of ``tests/integration/test_admin_timeouts.py``."""
    jvm.require("mvn", "java")
    with jvm.apache_kafka(tmp_path) as bootstrap:
        assert trio.run(answers, bootstrap) == expected()
