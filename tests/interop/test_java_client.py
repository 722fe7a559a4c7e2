"""The bytes of Kafka's own Java client (4.3.0), against our stored vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop import jvm
from triokafka.protocol.api import API_NAMES

pytestmark = pytest.mark.interop

VECTORS = Path(__file__).parent.parent / "data" / "java_vectors.jsonl"


def test_stored_vectors_equal_javas_present_output() -> None:
    """``tests/data/java_vectors.jsonl`` is the output of ``Vectors``: generate it again and compare, line by line."""
    jvm.require("mvn", "javac", "java")
    stored = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    keys = [str(key) for key in sorted(API_NAMES)]
    made = [json.loads(line) for line in jvm.run_java("Vectors", *keys).splitlines()]
    assert len(made) == len(stored) > 1_000
    assert made == stored
