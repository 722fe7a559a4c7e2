"""Earlier Sparks: what runs in Spark itself in `tests/spark`, with Spark 4.0, 4.1 and 4.2 from PyPI.

Each version is installed once, beside this environment and without its dependencies, which are those that are here.
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
_SECONDS = 900


def python_with(version: str) -> str:
    """An interpreter with a version of Spark; everything else it has is this environment's."""
    home = ROOT / ".interop" / f"spark-{version}"
    python = str(home / "bin" / "python")
    marker = home / ".installed"
    if not marker.exists():
        _run([sys.executable, "-m", "venv", str(home)])
        (packages,) = home.glob("lib/python*/site-packages")
        # Behind its own packages, so that its own Spark is found first.
        (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        spark = [f"pyspark=={version}.*", "py4j"]
        _run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed", *spark])
        marker.touch()
    return python


def _run(command: list[str]) -> str:
    # A session that another test made here has named this interpreter for the workers, which would run this Spark's.
    named = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in named}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("version", ["4.0", "4.1", "4.2"])
def test_reading_streaming_and_writing_in_an_earlier_spark(version: str):
    """`spark/2.1`: signatures, Arrow schemas, limits and triggers differ by version"""
    python = python_with(version)
    assert _run([python, "-c", "import pyspark; print(pyspark.__version__)"]).startswith(version)
    said = _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUBSET])
    assert " passed" in said
