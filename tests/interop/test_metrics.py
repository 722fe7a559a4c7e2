"""The metrics library and the catalogues, beside Apache Kafka's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.interop import jvm
from tests.support.metric_scripts import scripts

DATA = Path(__file__).parents[1] / "data"

pytestmark = pytest.mark.interop


def test_the_values_in_the_data_file_are_kafkas() -> None:
    """``tests/data/metric_statistics.jsonl`` is the output of ``MetricStatistics``: make it again and compare."""
    done = subprocess.run(
        ["java", *jvm.QUICK_START, "-cp", jvm.compiled(), "MetricStatistics"],
        input="".join(f"{line}\n" for line in scripts()),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (DATA / "metric_statistics.jsonl").read_text()
