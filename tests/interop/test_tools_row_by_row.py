"""Kafka's tools and ours print the same rows for the same state, of Apache Kafka and of our broker."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.integration.test_cli import Tool
from tests.interop import jvm
from tests.support.broker_process import BrokerProcess
from triokafka.cli.app import run

pytestmark = pytest.mark.interop

TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


class Server(NamedTuple):
    """A server with the state that the tests compare, and a runner of Kafka's tools."""

    bootstrap: str
    directory: Path

    def kafkas(self, main: str, *arguments: str, status: int = 0) -> str:
        """The output of one of Kafka's tools."""
        command = ["java", *jvm.QUICK_START, "-Xmx256m", "-cp", f"{jvm.jars()}/*", main]
        done = subprocess.run(
            [*command, "--bootstrap-server", self.bootstrap, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, (done.stdout, done.stderr)
        return done.stdout


@pytest.fixture(scope="module", params=["Apache Kafka", "ours"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("rows")
    if request.param == "ours":
        process = BrokerProcess(directory / "data")
        prepared(process.start())
        yield Server(process.bootstrap, directory)
        assert process.stop() == 0
        return
    with jvm.apache_kafka(directory) as bootstrap:
        prepared(bootstrap)
        yield Server(bootstrap, directory)


def prepared(bootstrap: str) -> None:
    """Make topics, records, quotas and a user."""

    def ok(*arguments: str) -> None:
        assert run([*arguments, "-b", bootstrap]) == 0

    ok("topics", "create", "orders", "--partitions", "3", "--config", "retention.ms=-1")
    ok("topics", "create", "pay", "--config", "cleanup.policy=compact", "--config", "min.insync.replicas=2")
    for number in range(5):
        ok("produce", "orders", "--partition", str(number % 2), "--value", f"v{number}", "--timestamp", f"{number}000")
    ok("quotas", "alter", "--user", "alice", "--producer-byte-rate", "1024", "--request-percentage", "12.5")
    ok("quotas", "alter", "--user", "alice", "--client", "loader", "--consumer-byte-rate", "2048")
    ok("quotas", "alter", "--user-defaults", "--client-defaults", "--consumer-byte-rate", "4096")
    ok("quotas", "alter", "--client-defaults", "--controller-mutation-rate", "10")
    ok("quotas", "alter", "--ip-defaults", "--connection-creation-rate", "20000")


@pytest.fixture
def tool(server: Server, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Tool:
    return Tool(server.bootstrap, capfdbinary, monkeypatch)


def lines(text: str) -> list[str]:
    """The lines in an order of their own, with single spaces between columns and sorted configurations."""
    return sorted(" ".join(map(sorted_configs, line.split())) for line in text.splitlines() if line.strip())


def sorted_configs(word: str) -> str:
    return ",".join(sorted(word.split(","))) if "=" in word else word


def quotas(text: str) -> dict[str, dict[str, float]]:
    """The quotas by entity: a list has no order."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"Quota configs for (.*) are (.*)", line)
        if match is not None:
            values = (pair.split("=") for pair in match[2].split(", "))
            found[match[1]] = {name: float(value) for name, value in values}
    return found


def longer(*options: str) -> Any:
    """A case of the long run: each takes a JVM of its own."""
    return pytest.param(options, marks=pytest.mark.long)


CONFIGS: Final = "kafka.admin.ConfigCommand"


@pytest.mark.parametrize(
    "entity",
    [
        longer("--entity-type", "users"),
        longer("--entity-type", "clients"),
        ("--entity-type", "users", "--entity-type", "clients"),
        longer("--entity-type", "ips"),
        longer("--entity-type", "users", "--entity-name", "alice"),
        longer("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default"),
    ],
)
def test_quotas(server: Server, tool: Tool, entity: tuple[str, ...]) -> None:
    theirs = quotas(server.kafkas(CONFIGS, "--describe", *entity))
    assert theirs == quotas(tool.ok("quotas", "describe", *entity)) == quotas(tool.ok("configs", "describe", *entity))
    assert theirs


def test_quotas_set_by_kafkas_tool_are_seen_by_ours(server: Server, tool: Tool) -> None:
    server.kafkas(
        CONFIGS, "--alter", "--add-config", "producer_byte_rate=77", "--entity-type", "clients", "--entity-name", "x"
    )
    assert "client-id 'x' are producer_byte_rate=77.0" in tool.ok("quotas", "describe", "--client", "x")
    tool.ok("quotas", "alter", "--client", "x", "--remove", "all")
    assert not quotas(server.kafkas(CONFIGS, "--describe", "--entity-type", "clients", "--entity-name", "x"))


@pytest.mark.parametrize(
    "options",
    [
        longer(),
        longer("--topic", "orders"),
        longer("--topic", "or.*|pay", "--partitions", "0,2"),
        ("--topic-partitions", "orders:1-,pay"),
        longer("--topic-partitions", ":0"),
        longer("--time", "earliest", "--topic", "orders"),
        longer("--time", "-3", "--topic", "orders"),
        longer("--time", "2500", "--topic", "orders"),
        longer("--time", "-4"),
        longer("--time", "latest-tiered"),
        longer("--exclude-internal-topics"),
    ],
)
def test_offsets(server: Server, tool: Tool, options: tuple[str, ...]) -> None:
    theirs = server.kafkas("org.apache.kafka.tools.GetOffsetShell", *options)
    assert theirs == tool.ok("get-offsets", *options)


@pytest.mark.long
def test_filters_that_match_nothing(server: Server, tool: Tool) -> None:
    server.kafkas("org.apache.kafka.tools.GetOffsetShell", "--topic", "nothing", status=1)
    tool.fails("get-offsets", "--topic", "nothing")


@pytest.mark.parametrize(
    "options",
    [
        (),
        longer("--topic", "orders"),
        longer("--exclude-internal"),
        longer("--topics-with-overrides"),
        longer("--under-replicated-partitions"),
        longer("--unavailable-partitions"),
        longer("--under-min-isr-partitions"),
        longer("--at-min-isr-partitions"),
    ],
)
def test_topics(server: Server, tool: Tool, options: tuple[str, ...]) -> None:
    theirs = server.kafkas("org.apache.kafka.tools.TopicCommand", "--describe", *options)
    ours = [option for option in options if option != "--topic"]
    assert lines(theirs) == lines(tool.ok("topics", "describe", *ours))


@pytest.mark.long
def test_topic_names(server: Server, tool: Tool) -> None:
    theirs = server.kafkas("org.apache.kafka.tools.TopicCommand", "--list")
    assert theirs.split() == tool.ok("topics", "list").split()


def test_log_directories(server: Server, tool: Tool) -> None:
    theirs = server.kafkas("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", "orders,pay")
    found = json.loads(next(line for line in theirs.splitlines() if line.startswith("{")))
    ours = json.loads(tool.ok("log", "dirs", "--topic-list", "orders,pay", "--json"))
    assert by_order(found) == by_order(ours)


def by_order(document: Any) -> Any:
    """The document with sorted lists."""
    if isinstance(document, dict):
        return {name: by_order(value) for name, value in document.items()}
    if isinstance(document, list):
        return sorted((by_order(value) for value in document), key=json.dumps)
    return document


def test_leader_election(server: Server, tool: Tool) -> None:
    asked = ("--election-type", "preferred", "--topic", "orders", "--partition", "0")
    theirs = server.kafkas("org.apache.kafka.tools.LeaderElectionCommand", *asked)
    assert lines(theirs) == lines(tool.ok("leader-election", *asked))


def test_printed_records(server: Server, tool: Tool) -> None:
    shown = [f"print.{part}=true" for part in ("timestamp", "partition", "offset", "headers", "key")]
    asked = [word for part in shown for word in ("--formatter-property", part)]
    asked += ["--partition", "1", "--offset", "earliest", "--max-messages", "2"]
    theirs = server.kafkas("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "orders", *asked)
    assert theirs == tool.ok("consume", "orders", *asked)
    assert theirs


def test_features(server: Server, tool: Tool) -> None:
    theirs = server.kafkas("org.apache.kafka.tools.FeatureCommand", "describe")
    # The epoch is an offset of the metadata log, which grows without changes.
    printed = [re.sub(r"Epoch: \d+", "Epoch: N", text) for text in (theirs, tool.ok("features", "describe"))]
    assert lines(printed[0]) == lines(printed[1])
    assert "Epoch: N" in printed[0]


def test_records_are_deleted(server: Server, tool: Tool, tmp_path: Path) -> None:
    printed = []
    for offset, delete in ((1, server.kafkas), (2, tool.ok)):
        file = tmp_path / "offsets.json"
        asked = [{"topic": "orders", "partition": partition, "offset": offset} for partition in (0, 1)]
        file.write_text(json.dumps({"partitions": asked, "version": 1}))
        name = "org.apache.kafka.tools.DeleteRecordsCommand" if offset == 1 else "delete-records"
        printed.append(lines(delete(name, "--offset-json-file", str(file)).replace(f": {offset}", ": N")))
    assert printed[0] == printed[1]
    assert "partition: orders-1 low_watermark: N" in printed[0]
