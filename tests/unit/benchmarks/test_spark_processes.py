"""What the Spark benchmark takes for the processor time of a session."""

from __future__ import annotations

import os

import pytest

from benchmarks import spark_processes
from benchmarks.spark_processes import _Process, spark_cpu

JVM, PLANNER, DAEMON, WORKER, BROKER = range(10, 15)


def test_the_time_of_processes_that_have_ended_is_neither_lost_nor_counted_twice(monkeypatch: pytest.MonkeyPatch):
    """The JVM waits for its children, and is told of their time; Spark's daemon ignores how its children end."""
    second = os.sysconf("SC_CLK_TCK")
    table = {
        JVM: _Process(os.getpid(), 5 * second, 0),
        PLANNER: _Process(JVM, second, 0),
        DAEMON: _Process(JVM, 2 * second, 0),
        WORKER: _Process(DAEMON, 3 * second, 0),
        BROKER: _Process(os.getpid(), 100 * second, 0),
    }
    monkeypatch.setattr(spark_processes, "_processes", lambda: dict(table))
    monkeypatch.setattr(spark_processes, "_is_jvm", lambda pid: pid == JVM)
    monkeypatch.setattr(spark_processes, "_forked", {})
    assert spark_cpu() == 11
    del table[PLANNER], table[WORKER]
    table[JVM] = _Process(os.getpid(), 5 * second, second)
    assert spark_cpu() == 11
