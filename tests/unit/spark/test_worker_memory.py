"""What batches leave behind in a Python worker is memory for the next ones."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import triokafka
from triokafka.spark import worker_memory

CODE = """
import resource, sys
from triokafka.spark.worker_memory import keep_freed_memory
kept = sys.argv[1] == "kept" and keep_freed_memory()
for number in range(20):
    if number == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    batches = [bytearray(3 << 20) for _ in range(4)]
    del batches
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, kept)
"""


def faults(how: str) -> tuple[int, bool]:
    """Page faults of batches that come and go, and whether the C library keeps memory."""
    environment = {**os.environ, "PYTHONPATH": str(Path(triokafka.__file__).parent.parent)}
    command = [sys.executable, "-c", CODE, how]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
    return int(said[0]), said[1] == "True"


def test_memory_of_batches_is_not_faulted_in_again() -> None:
    few, kept = faults("kept")
    many, _ = faults("given back")
    assert few < many / 4 or not kept


def test_c_library_that_cannot_be_told_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert worker_memory.keep_freed_memory.__wrapped__() is False
