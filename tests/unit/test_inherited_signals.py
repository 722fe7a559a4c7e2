"""Tests whose caller ignores signals, as ``nohup`` and background jobs of a script do."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_CHILD = "import signal, sys; print(signal.getsignal(int(sys.argv[1])) is signal.SIG_IGN)"
_TESTS = f"""
import signal, subprocess, sys
from tests.support.inherited_signals import heed_signals
number = int(sys.argv[1])
signal.signal(number, signal.SIG_IGN)
child = [sys.executable, "-c", {_CHILD!r}, str(number)]
print(subprocess.check_output(child, text=True).strip())
heed_signals()
print(subprocess.check_output(child, text=True).strip())
try:
    signal.raise_signal(number)
    print("nothing")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    ("number", "effect"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGHUP, "nothing"),
        (signal.SIGQUIT, "nothing"),
        (signal.SIGTERM, "nothing"),
    ],
)
def test_processes_that_tests_start_heed_a_signal_that_their_caller_ignores(number: int, effect: str) -> None:
    """`make test &` in a script failed where a test sends SIGINT to a command."""
    done = subprocess.run([sys.executable, "-c", _TESTS, str(number)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", effect]


def test_tests_themselves_run_so() -> None:
    ending = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)
    assert signal.SIG_IGN not in [signal.getsignal(number) for number in ending]
