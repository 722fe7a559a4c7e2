"""A Python worker reuses the memory of earlier batches for later ones."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import triokafka
from triokafka.spark.reading import worker_memory

CODE = """
import resource, sys
from triokafka.spark.reading.worker_memory import keep_freed_memory
kept = sys.argv[1] == "kept" and keep_freed_memory()
for number in range(20):
    if number == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    batches = [bytearray(3 << 20) for _ in range(4)]
    del batches
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, kept)
"""

LOOKED_AT = """
import gc, sys
from pyspark import TaskContext
import pyarrow, pandas, trio
from triokafka.spark.reading.worker_memory import keep_what_is_loaded

class Loop:
    def __init__(self):
        self.itself = self

gc.collect()
gc.disable()
if sys.argv[1] == "task":
    TaskContext._setTaskContext(TaskContext())  # as a worker of Spark does
before = len(gc.get_objects())
for _ in range(2):  # as for two tasks
    keep_what_is_loaded()
    later = [Loop() for _ in range(1000)]
del later
print(before, gc.collect(), len(gc.get_objects()))
"""


def printed(code: str, *arguments: str) -> list[str]:
    """Return the output of a new Python that runs ``code``."""
    environment = {**os.environ, "PYTHONPATH": str(Path(triokafka.__file__).parent.parent)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


def faults(how: str) -> tuple[int, bool]:
    """Return the page faults of repeated batches, and whether the C library retains freed memory."""
    output = printed(CODE, how)
    return int(output[0]), output[1] == "True"


def test_memory_of_batches_is_not_faulted_in_again() -> None:
    few, retained = faults("kept")
    many, _ = faults("given back")
    assert few < many / 4 or not retained


def test_c_library_without_mallopt_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert worker_memory.keep_freed_memory.__wrapped__() is False


def test_imported_modules_are_not_scanned_after_each_task() -> None:
    before, collected, after = map(int, printed(LOOKED_AT, "task"))
    assert after < before / 10
    assert collected >= 2000, "what became garbage later is still found, also what was there at a later task's end"


def test_outside_of_spark_the_collector_is_left_as_it_is() -> None:
    before, _, after = map(int, printed(LOOKED_AT, "no task"))
    assert after > before / 2
