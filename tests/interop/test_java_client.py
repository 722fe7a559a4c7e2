"""Kafka's own Java client (4.3.0) against our broker, and what it puts on the wire against our stored vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker_process import broker_process
from tests.interop import jvm
from triokafka.protocol.api import API_NAMES

pytestmark = pytest.mark.interop

STEPS = [
    "create-and-alter",
    "produce",
    "group-with-rebalance",
    "commit-and-resume",
    "offsets-by-time",
    "groups",
    "delete-records",
    "delete-topic",
]
VECTORS = Path(__file__).parent.parent / "data" / "java_vectors.jsonl"


def steps(output: str) -> list[str]:
    return [line.removeprefix("ok ") for line in output.splitlines() if line.startswith("ok ")]


def test_java_client_does_a_services_work_with_our_broker(tmp_path: Path) -> None:
    jvm.require("mvn", "javac", "java")
    with broker_process(tmp_path / "data") as bootstrap:
        assert steps(jvm.run_java("ClientScenario", bootstrap)) == STEPS


def test_the_scenario_itself_holds_with_apache_kafka(tmp_path: Path) -> None:
    """What we ask of our broker is what Apache Kafka does."""
    jvm.require("mvn", "javac", "java")
    with jvm.apache_kafka(tmp_path) as bootstrap:
        assert steps(jvm.run_java("ClientScenario", bootstrap)) == STEPS


def test_stored_vectors_are_what_java_writes_today() -> None:
    """``tests/data/java_vectors.jsonl`` is the output of ``Vectors``: make it again and compare, line by line."""
    jvm.require("mvn", "javac", "java")
    stored = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    keys = [str(key) for key in sorted(API_NAMES)]
    made = [json.loads(line) for line in jvm.run_java("Vectors", *keys).splitlines()]
    assert len(made) == len(stored) > 1_000
    assert made == stored
