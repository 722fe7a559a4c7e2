"""The worked example runs as it is: stopped, started again, equal to the batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_windows_of_flights_are_equal_after_a_stop_in_the_middle(bootstrap: str):
    command = [sys.executable, str(ROOT / "examples" / "spark_windows.py"), bootstrap, "departures", "40000"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped, and started again" in done.stdout
    assert "799 hours, 14046 late flights: equal" in done.stdout
