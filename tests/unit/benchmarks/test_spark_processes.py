"""The processor time of a session in the Spark benchmark."""

from __future__ import annotations

import os
import subprocess

import pytest

from benchmarks import spark_processes
from benchmarks.spark_processes import OTHERS, _Process, spark_cpu, worker_peak_mib

JVM, PLANNER, DAEMON, WORKER, BROKER = range(10, 15)


def test_the_time_of_processes_that_have_ended_is_neither_lost_nor_counted_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The JVM waits for its children, and gets their processor time; Spark's daemon ignores how its children end."""
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


def test_memory_of_workers_with_clients_of_others_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = ["sh", "-c", "echo begun; read end"]
    ours, theirs = (
        subprocess.Popen(begun, env={**os.environ, **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for more in ({}, {OTHERS: "1"})
    )
    try:
        assert [process.stdout.readline() for process in (ours, theirs)] == [b"begun\n"] * 2  # type: ignore[union-attr]
        monkeypatch.setattr(spark_processes, "_workers", lambda: [ours.pid, theirs.pid])
        monkeypatch.setattr(spark_processes, "_peak", lambda pid: 2048.0 if pid == ours.pid else 4096.0)
        assert worker_peak_mib() == 2.0
        assert worker_peak_mib(others=True) == 4.0
    finally:
        for process in (ours, theirs):
            process.communicate(b"\n")
