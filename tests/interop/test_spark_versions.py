"""Earlier versions of Spark: the tests in `tests/spark` that run in Spark itself, with 3.5, 4.0, 4.1 and 4.2 from PyPI.

Each version is installed once, beside this environment and without its dependencies, which come from this environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
SUBSET = (
    "tests/spark/test_batch_read.py",
    "tests/spark/test_reader.py",
    "tests/spark/test_spark_streams.py",
    "tests/spark/test_spark_write.py",
)
# From the long profile: the behaviour that could differ between versions, in Spark itself.
SUBSET_LONG = (
    *(
        f"tests/spark/test_micro_batch.py::{name}"
        for name in (
            "test_from_specific_offsets[spark-subscribe-true]",
            "test_from_specific_timestamps[spark-global-subscribePattern-false]",
            "test_null_keys_and_values[spark]",
            "test_headers[spark]",
            "test_min_partitions[spark]",
            "test_a_deleted_topic_fails_the_query_if_loss_is_an_error[spark]",
            "test_a_new_partition_that_does_not_start_at_zero_fails_the_query[spark]",
            "test_a_planned_batch_that_was_not_completed_is_read_again[spark]",
            "test_a_record_timestamp_beyond_sparks_range[spark]",
        )
    ),
    "tests/spark/test_spark_faults.py::test_a_query_continues_when_its_broker_is_killed",
    "tests/spark/test_spark_faults.py::test_a_killed_python_worker_loses_and_repeats_no_row",
)
# For Spark 3.5, which has no Python data sources.
SUBSET_RANGES = tuple(
    f"tests/spark/test_map_in_arrow.py::{name}"
    for name in (
        "test_every_record_is_read_once_with_all_of_its_columns",
        "test_an_empty_topic_is_an_empty_frame",
        "test_invalid_options_fail_before_any_task",
    )
)
_SECONDS = 900


def python_with(version: str) -> str:
    """Return an interpreter with a version of Spark; all other packages are this environment's."""
    home = ROOT / ".interop" / f"spark-{version}"
    python = str(home / "bin" / "python")
    marker = home / ".installed"
    if not marker.exists():
        _run([sys.executable, "-m", "venv", str(home)])
        spark = [f"pyspark=={version}.*", "py4j"]
        _run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed", *spark])
        marker.touch()
    # Behind its own packages, so that its own Spark is found first. Written every time, because this environment may
    # change.
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _run(command: list[str]) -> str:
    # A session of an earlier test has set this interpreter for the workers, which would use this environment's Spark.
    named = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in named}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("version", ["4.0", "4.1", "4.2"])
def test_reading_streaming_and_writing_in_an_earlier_spark(version: str) -> None:
    """Signatures, Arrow schemas, limits and triggers differ between versions."""
    python = python_with(version)
    assert _run([python, "-c", "import pyspark; print(pyspark.__version__)"]).startswith(version)
    output = _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUBSET])
    assert " passed" in output
    output = _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "long", *SUBSET_LONG])
    assert f"{len(SUBSET_LONG)} passed" in output


@pytest.mark.timeout(1_200)
def test_reading_ranges_in_a_spark_without_data_sources_in_python() -> None:
    """Only ``mapInArrow`` is needed."""
    python = python_with("3.5")
    assert _run([python, "-c", "import pyspark; print(pyspark.__version__)"]).startswith("3.5")
    output = _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUBSET_RANGES])
    assert f"{len(SUBSET_RANGES)} passed" in output
