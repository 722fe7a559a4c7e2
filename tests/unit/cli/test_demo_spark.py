"""Spark in ``triokafka demo``: a late worker, and the message about a failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("rich")

import triokafka.spark
from triokafka.cli.demo import spark_job
from triokafka.cli.demo.flights import CarrierTotals

TOTALS = {"UA": CarrierTotals(2, 2, 10)}
FAILURE = """org.apache.spark.SparkException: Python worker failed to connect back.
pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query totals terminated.
=== Streaming Query ===
Thread State: RUNNABLE
"""


def test_stream_whose_worker_is_late_runs_again() -> None:
    """On a busy machine a Python process needs more than the 10 seconds that Spark allows."""
    failures = [RuntimeError("Python worker failed to connect back. SQLSTATE: XXKST") for _ in range(2)]

    def query() -> spark_job.Totals:
        if failures:
            raise failures.pop()
        return TOTALS

    assert spark_job.repeated(query) == TOTALS


def test_stream_that_fails_otherwise_does_not_run_again() -> None:
    runs = []

    def query() -> spark_job.Totals:
        runs.append(1)
        raise RuntimeError("the topic is gone")

    with pytest.raises(RuntimeError, match="the topic is gone"):
        spark_job.repeated(query)
    assert len(runs) == 1


async def test_failure_of_spark_is_reported_by_its_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The last line of Spark's output is the state of a thread."""
    program = tmp_path / "spark"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{FAILURE}END\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(triokafka.spark, "find_java", lambda: "java")
    with pytest.raises(spark_job.SparkFailedError, match=r"STREAM_FAILED"):
        await spark_job.totals_from_spark("127.0.0.1:1", "flights")
