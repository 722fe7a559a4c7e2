"""The worked example runs unchanged: stopped, restarted, equal to the batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs.lag_picture import PICTURE, Run, draw, parse, save

ROOT = Path(__file__).parents[2]


def test_picture_of_lag_is_drawn_from_the_output_of_the_example(tmp_path: Path) -> None:
    lines = ["batch   0:    900 behind #\n", "stopped, and started again\n", "batch   1:      0 behind \n", "1 hours\n"]
    run = parse(lines)
    assert run == Run([900, 0], 1)
    for number in range(2):
        save(draw(run), tmp_path / f"{number}.svg")
    drawn = (tmp_path / "0.svg").read_text()
    assert "stopped, and started again" in drawn
    assert drawn == (tmp_path / "1.svg").read_text(), "the same figures must give the same picture"
    assert PICTURE.name in (ROOT / "docs" / "spark.md").read_text()


@pytest.mark.long
def test_windows_of_flights_are_equal_after_a_stop_in_the_middle(bootstrap: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "spark_windows.py"), bootstrap, "departures", "40000"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped, and started again" in done.stdout
    run = parse(done.stdout.splitlines())
    assert run.behind[-1] == 0 and run.stopped_after is not None
    assert "799 hours, 14046 late flights: equal" in done.stdout
