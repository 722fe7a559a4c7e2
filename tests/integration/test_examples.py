"""The programs of ``examples/`` run as they are, against a broker as users start it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import broker_process

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_process() as address:
        yield address


def run_example(name: str, *arguments: str) -> str:
    """What the program prints. Fails with what it complained about."""
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env={"PYTHONPATH": str(ROOT)}
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
    (lag,) = run_example("group_lag.py", bootstrap).splitlines()
    group, topic, records = lag.split()
    assert (group, topic) == ("billing", "examples") and int(records) > 0
    *handled, committed = run_example("consume_partitions.py", bootstrap, "examples", "20").splitlines()
    assert [int(line.split()[1]) for line in handled] == list(range(20))
    assert committed == "committed 20"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("produce_backpressure.py", r"sent 5000, waited some time for buffer space\nsent \d+, dropped [1-9]\d+"),
        ("produce_fan_out.py", r"worker \d: \d+ jobs\n(.*\n)*200 results in \d+ batches"),
        ("produce_callbacks.py", r"96 delivered, 4 refused and reported in examples-produce-callbacks-refused"),
        ("produce_watched.py", r"connected to broker -1\n(.*\n)*\d+ records/s, .*\n(.*\n)*healthy: True"),
    ],
)
def test_patterns_of_producing_do_what_they_say(bootstrap: str, name: str, said: str) -> None:
    topic = "examples-" + name.removesuffix(".py").replace("_", "-")
    assert re.search(said, run_example(name, bootstrap, topic))


def test_simulation_survives_the_kill_with_any_seed() -> None:
    for seed in ("7", "8"):
        assert run_example("simulation.py", seed).startswith(f"seed {seed}: all 200 records, once and in order")


def test_example_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["examples/test_with_broker.py", "examples/test_session_timeout.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
    if "fixture 'kafka_broker' not found" in done.stdout:  # a checkout that is not installed has no entry points
        command[3:3] = ["-p", "triokafka.testing.plugin"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout
