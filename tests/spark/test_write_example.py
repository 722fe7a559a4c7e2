"""``examples/spark_write.py`` runs unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_records_of_the_write_example_are_read_back(bootstrap: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "spark_write.py"), bootstrap, "squares"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "100 values, together 328350"
