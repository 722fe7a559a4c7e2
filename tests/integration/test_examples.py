"""The programs of ``examples/`` run as they are, against a broker as users start it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import broker_process

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_process() as address:
        yield address


def run_example(name: str, *arguments: str) -> str:
    """What the program prints. Fails with what it complained about."""
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_one_example_produces_the_other_consumes(bootstrap: str) -> None:
    produced = run_example("produce.py", bootstrap, "examples")
    assert "examples, partition 0, offset 0" in produced
    assert "OffsetRange(first=1, last=10000)" in produced
    consumed = run_example("consume_group.py", bootstrap, "examples", "3").splitlines()
    assert consumed[0] == "got examples-0"
    assert consumed[1] == "0 0 b'table 4' b'two coffees'"
    assert consumed[-1] == "gave up examples-0"


def test_simulation_survives_the_kill_with_any_seed() -> None:
    for seed in ("7", "8"):
        assert run_example("simulation.py", seed).startswith(f"seed {seed}: all 200 records, once and in order")


def test_example_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_with_broker.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    if "fixture 'triokafka_broker' not found" in done.stdout:  # a checkout that is not installed has no entry points
        command[3:3] = ["-p", "triokafka.testing.plugin"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout
