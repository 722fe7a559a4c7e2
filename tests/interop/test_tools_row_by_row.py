"""Kafka's tools and ours: the same rows and exit codes for the same state, of Apache Kafka and of three nodes of ours.

Each row runs both tools on the same servers. If both fail, only the failure is compared: our messages and the status of
usage errors differ on purpose (docs/cli.md).
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.interop import jvm, tool_rows
from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, mixed_cluster
from tests.interop.tool_rows import Row, lines, nothing
from tests.interop.tool_session import ToolSession, tool_session
from tests.support.tool import Tool
from triokafka.cli.app import run

pytestmark = pytest.mark.interop

KAFKA: Final = "Apache Kafka"
OURS: Final = "ours"
THEIRS_NAME, OUR_NAME = "xkx", "xox"
"""What ``{me}`` stands for in the arguments of Kafka's tool and of ours: commands that change need a subject each."""
_SETTINGS: Final[dict[str, Any]] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}


class Pair(NamedTuple):
    """Servers, and both tools for them; ``replicas`` is the number of replicas of each partition."""

    bootstrap: str
    kafkas: ToolSession
    replicas: str

    def differences(self, script: str, rows: Sequence[Row], tool: Tool, **substitutions: object) -> list[str]:
        """Run both tools for each row, and return the differences."""
        found = []
        for row in rows:
            where = ("--bootstrap-server", self.bootstrap)
            theirs = self.kafkas(script, *where, *_words(row.theirs, me=THEIRS_NAME, **substitutions))
            ours = tool(*_words(row.ours, me=OUR_NAME, **substitutions))
            # kafka-consumer-groups prints most failures, and exits with 0.
            failed = theirs.status or "\nError: " in theirs.out
            if bool(failed) != bool(ours.status):
                found.append(f"{row.theirs}: {theirs} and {ours}")
            elif not failed and row.fix(theirs.out) != row.fix(ours.out.replace(OUR_NAME, THEIRS_NAME)):
                found.append(f"{row.theirs}: {row.fix(theirs.out)} and {row.fix(ours.out)}")
        return found


def _words(text: str, **substitutions: object) -> list[str]:
    return [word.format(**substitutions).replace("~", " ") for word in text.split()]


@pytest.fixture(scope="module")
def kafkas() -> Iterator[ToolSession]:
    with tool_session() as session:
        yield session


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    members = [Member(number) for number in (1, 2, 3)]
    with mixed_cluster(tmp_path_factory.mktemp("ours"), members, **_SETTINGS) as running:
        running.create_topic("first", 1)  # waits until all brokers have registered
        yield running


@pytest.fixture(scope="module", params=[KAFKA, OURS])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kafkas: ToolSession
) -> Iterator[Pair]:
    if request.param == OURS:
        cluster: MixedCluster = request.getfixturevalue("cluster")
        yield prepared(Pair(cluster.bootstrap, kafkas, "1:2:3"))
        return
    with jvm.apache_kafka(tmp_path_factory.mktemp("rows"), **_SETTINGS) as bootstrap:
        yield prepared(Pair(bootstrap, kafkas, "1"))


@pytest.fixture
def tool(pair: Pair, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Tool:
    return Tool(pair.bootstrap, capfdbinary, monkeypatch)


def prepared(pair: Pair) -> Pair:
    """Create topics with records, quotas, committed offsets, and transactions: one complete, one open."""

    def ok(*arguments: str) -> None:
        assert run([*arguments, "-b", pair.bootstrap]) == 0

    three = ",".join([pair.replicas] * 3)
    ok("topics", "create", "orders", "--replica-assignment", three, "--config", "retention.ms=-1")
    compacted = ("--config", "cleanup.policy=compact", "--config", "min.insync.replicas=2")
    ok("topics", "create", "pay", "--replica-assignment", "1", *compacted)
    producer = Producer({"bootstrap.servers": pair.bootstrap})
    for number in range(6):
        producer.produce("orders", f"v{number}", partition=number % 3, timestamp=(number + 1) * 1000)
    assert producer.flush(TIMEOUT) == 0
    ok("quotas", "alter", "--user", "alice", "--producer-byte-rate", "1024", "--request-percentage", "12.5")
    ok("quotas", "alter", "--user", "alice", "--client", "loader", "--consumer-byte-rate", "2048")
    ok("quotas", "alter", "--user-defaults", "--client-defaults", "--consumer-byte-rate", "4096")
    ok("quotas", "alter", "--client-defaults", "--controller-mutation-rate", "1000")
    ok("quotas", "alter", "--ip-defaults", "--connection-creation-rate", "20000")
    return pair


def test_topics(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-topics", tool_rows.TOPICS, tool)


def test_configs(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-configs", tool_rows.CONFIGS, tool)
    assert not pair.differences("kafka-configs", tool_rows.QUOTAS, tool)


def test_client_metrics(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-client-metrics", tool_rows.CLIENT_METRICS, tool)


def test_acls(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-acls", tool_rows.ACLS, tool)


def test_offsets_and_directories(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-get-offsets", tool_rows.OFFSETS, tool)
    assert not pair.differences("kafka-log-dirs", tool_rows.LOG_DIRS, tool)


def test_features_and_elections(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-features", tool_rows.FEATURES, tool)
    assert not pair.differences("kafka-leader-election", tool_rows.ELECTIONS, tool)


def test_quorum(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-metadata-quorum", tool_rows.QUORUM, tool)


def test_groups(pair: Pair, tool: Tool) -> None:
    settings = {"bootstrap.servers": pair.bootstrap, "enable.auto.commit": False, "client.id": "reader"}
    empty = Consumer({**settings, "group.id": "empty"})
    empty.commit(offsets=[TopicPartition("orders", 0, 1), TopicPartition("pay", 0, 0)], asynchronous=False)
    empty.close()
    members = [
        Consumer({**settings, "group.id": "live", "partition.assignment.strategy": "range"}),
        Consumer({**settings, "group.id": "new", "group.protocol": "consumer"}),
    ]
    try:
        for member in members:
            member.subscribe(["orders"])
        deadline = time.monotonic() + TIMEOUT
        while any(len(member.assignment()) < 3 for member in members):
            assert time.monotonic() < deadline, "the groups did not get their partitions"
            for member in members:
                member.poll(0.1)
        assert not pair.differences("kafka-consumer-groups", tool_rows.GROUPS, tool)
    finally:
        for member in members:
            member.close()


def test_transactions(pair: Pair, tool: Tool) -> None:
    # On a busy machine the rows take longer than the usual transaction timeout.
    slow = {"bootstrap.servers": pair.bootstrap, "transaction.timeout.ms": 900_000}
    producers = []
    for transactional_id in ("done", "open"):
        producer = Producer({**slow, "transactional.id": transactional_id})
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        producer.produce("orders", b"x", partition=0)
        producer.flush(TIMEOUT)
        producers.append(producer)
    producers[0].commit_transaction(TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while "CompleteCommit" not in tool.ok("transactions", "list"):  # the markers are written after the response
        assert time.monotonic() < deadline
    assert not pair.differences("kafka-transactions", tool_rows.TRANSACTIONS, tool)
    producers[1].abort_transaction(TIMEOUT)
    for transactional_id in (THEIRS_NAME, OUR_NAME):
        producer = Producer({**slow, "transactional.id": transactional_id})
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        producer.produce("pay", b"x", partition=0)
        producer.poll(0.1)
    words = "forceTerminateTransaction --transactionalId {me}"
    row = Row(words, f"transactions {words}", nothing)
    assert not pair.differences("kafka-transactions", [row], tool)


def test_records_are_deleted(pair: Pair, tool: Tool, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    row = Row("--offset-json-file {file}", "delete-records --yes --offset-json-file {file}", lines)
    wrong = row._replace(fix=nothing)
    for text, rows_of_text in [
        ('{"partitions": [{"topic": "orders", "partition": 1, "offset": 1}], "version": 1}', row),
        ('{"partitions": [{"topic": "orders", "partition": 1, "offset": -1}], "version": 1}', row),
        ('{"partitions": [{"topic": "orders", "partition": 1, "offset": 0}], "version": 1}', row),
        ('{"partitions": [{"topic": "orders", "partition": 1, "offset": 1}] * 2}', wrong),
        ('{"partitions": [{"topic": "orders", "partition": 1, "offset": 1}], "version": 9}', wrong),
        ('{"partitions": [{"topic": "orders", "partition": "x", "offset": 1}], "version": 1}', wrong),
        ('{"version": 1}', wrong),
        ("", wrong),
        ("{", wrong),
    ]:
        file.write_text(text)
        assert not pair.differences("kafka-delete-records", [rows_of_text], tool, file=file)


@pytest.mark.parametrize("pair", [OURS], indirect=True)
def test_partitions_move(pair: Pair, tool: Tool, tmp_path: Path) -> None:
    """Each tool starts a move with a throttle, which the other one follows to its end and then removes."""
    kafkas, where = pair.kafkas, ("--bootstrap-server", pair.bootstrap)
    tool.ok("topics", "create", "moves", "--replica-assignment", "1:2,2:3")
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "moves"}]}')
    generate = "generate --topics-to-move-json-file {topics} --broker-list"
    current = [Row(f"--{generate} 1,2,3", f"reassign {generate} 1,2,3", lambda text: text.splitlines()[:2])]
    failing = [Row(f"--{generate} 1,9", f"reassign {generate} 1,9", nothing)]
    assert not pair.differences("kafka-reassign-partitions", [*current, *failing], tool, topics=topics)
    topics.write_text('{"version": 1, "topics": [{"topic": "no"}]}')
    assert not pair.differences("kafka-reassign-partitions", current, tool, topics=topics)

    verbs = ("execute", "verify", "cancel")
    theirs = {
        verb: lambda *more, v=verb: kafkas("kafka-reassign-partitions", *where, f"--{v}", *more) for verb in verbs
    }
    ours = {verb: lambda *more, v=verb: tool("reassign", v, *more) for verb in verbs}
    file = ("--reassignment-json-file", str(plan))
    outputs = []
    for begin, follow in ((theirs, ours), (ours, theirs)):
        placed = [[3, 1], [1, 2]] if begin is theirs else [[1, 2], [2, 3]]
        partitions = [{"topic": "moves", "partition": number, "replicas": to} for number, to in enumerate(placed)]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        begun = begin["execute"](*file, "--throttle", "10000000")
        assert begun.status == 0, begun
        deadline = time.monotonic() + TIMEOUT
        while "in progress" in (verified := follow["verify"](*file)).out:
            assert time.monotonic() < deadline, verified
        outputs.append(
            [re.sub(r"(?<=\[)[\d,]*(?=\])|--verify|/\S*", "", text).split() for text in (begun.out, verified.out)]
        )
        described = json.loads(tool.ok("topics", "describe", "moves", "--json"))[0]
        assert not any(name.endswith("throttled.replicas") for name in described["configs"])
        assert [partition["replicas"] for partition in described["partitions"]] == placed
    assert outputs[0][1] == outputs[1][1]
    assert theirs["cancel"](*file).status == ours["cancel"](*file).status == 0
    for wrong in (
        '{"partitions": [{"topic": "no", "partition": 0, "replicas": [1]}]}',
        '{"partitions": [{"topic": "moves", "partition": 0, "replicas": [9]}]}',
        '{"partitions": [{"topic": "moves", "partition": 0, "replicas": [1, 1]}]}',
        '{"version": 2, "partitions": [{"topic": "moves", "partition": 0, "replicas": [1]}]}',
        '{"partitions": []}', "{",
    ):  # fmt: skip
        plan.write_text(wrong)
        assert theirs["execute"](*file).status and ours["execute"](*file).status, wrong


@pytest.mark.parametrize("pair", [OURS], indirect=True)
def test_moves_under_way_are_listed_limited_again_and_cancelled(pair: Pair, tool: Tool, tmp_path: Path) -> None:
    """Each tool cancels a move that the throttle would let run for an hour."""
    tool.ok("topics", "create", "slow", "--replica-assignment", "1:2")
    producer = Producer({"bootstrap.servers": pair.bootstrap})
    for _ in range(80):
        producer.produce("slow", b"x" * 100_000, partition=0)
    assert producer.flush(TIMEOUT) == 0
    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [3, 1]}]}')

    def run_of(kind: str, verb: str, *more: str) -> str:
        """Run a command of one tool to its successful end, and return its output."""
        words = (*more, "--reassignment-json-file", str(plan))
        if kind == OURS:
            return tool.ok("reassign", verb, *words)
        done = pair.kafkas("kafka-reassign-partitions", "--bootstrap-server", pair.bootstrap, f"--{verb}", *words)
        assert done.status == 0, done
        return done.out

    def state() -> tuple[list[int], list[str], bool]:
        """The replicas, the throttles of the topic, and whether a broker has one."""
        (described,) = json.loads(tool.ok("topics", "describe", "slow", "--json"))
        throttles = [name for name in described["configs"] if name.endswith("throttled.replicas")]
        brokers = tool.ok("configs", "describe", "--entity-type", "brokers")
        return described["partitions"][0]["replicas"], throttles, "throttled.rate" in brokers

    for kind, other in ((KAFKA, OURS), (OURS, KAFKA)):
        assert "Successfully started" in run_of(kind, "execute", "--throttle", "2000")
        listed = [Row("--list", "reassign list", lines)]
        assert not pair.differences("kafka-reassign-partitions", listed, tool)
        assert "slow-0: replicas: 3,1,2. adding: 3. removing: 2." in tool.ok("reassign", "list")
        assert "Reassignment of partition slow-0 is still in progress." in run_of(other, "verify")
        assert "limit was set to 3000 B/s" in run_of(other, "execute", "--additional", "--throttle", "3000")
        assert "slow-0" in run_of(kind, "cancel")
        deadline = time.monotonic() + TIMEOUT
        while state() != ([1, 2], [], False):  # a broker that is asked may know of the changes a moment later
            assert time.monotonic() < deadline, state()


def test_both_tools_produce_the_same_records_from_lines(pair: Pair, tool: Tool) -> None:
    """This compares the records of both tools, and the texts that both refuse."""
    where = ("--bootstrap-server", pair.bootstrap)
    for name in (THEIRS_NAME, OUR_NAME):
        tool.ok("topics", "create", f"{name}-lines", "--partitions", "1")
    different = []
    for options, text in tool_rows.LINES:
        theirs = pair.kafkas("kafka-console-producer", *where, "--topic", f"{THEIRS_NAME}-lines", *options, stdin=text)
        ours = tool("produce", f"{OUR_NAME}-lines", *options, stdin=text)
        if bool(theirs.status) != bool(ours.status):
            different.append((options, text, theirs, ours))
    assert not different
    shown = ("-f", "%k %K %s %S %h\n", "--null", "NULL", "--from-beginning", "--until-end")
    theirs_sent, ours_sent = (tool.ok("consume", f"{name}-lines", *shown) for name in (THEIRS_NAME, OUR_NAME))
    assert theirs_sent.splitlines() == ours_sent.splitlines() and len(ours_sent.splitlines()) > len(tool_rows.LINES)


def test_both_tools_print_records_alike(pair: Pair, tool: Tool) -> None:
    tool.ok("topics", "create", "shapes", "--partitions", "2", "--config", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": pair.bootstrap})
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("\u00e4", "\u00f6".encode()), ("none", None), ("a", b"")]
    shapes = [(b"k", b"v"), (None, b"1234"), (b"", None), (b"\0\0\0\7", b""), (b"5", b"6")]
    for number, (key, value) in enumerate(shapes):
        producer.produce("shapes", value, key, partition=0, timestamp=(number + 1) * 1000, headers=headers[:number])
    assert producer.flush(TIMEOUT) == 0
    assert not pair.differences("kafka-console-consumer", tool_rows.READING, tool)
    where = ("--bootstrap-server", pair.bootstrap)
    whole = ("--partition", "0", "--offset", "earliest", "--max-messages", "5")
    different = []
    for words in tool_rows.FORMATS:
        asked = words.split()
        theirs = pair.kafkas("kafka-console-consumer", *where, "--topic", "shapes", *whole, *asked)
        ours = tool("consume", "shapes", *whole, *asked)
        if bool(theirs.status) != bool(ours.status) or (not theirs.status and theirs.out != ours.out):
            different.append((words, theirs, ours))
    assert not different


def test_both_tools_print_coordinator_records_alike(pair: Pair, tool: Tool) -> None:
    """Kafka's formatters do not end lines."""
    consumer = Consumer({"bootstrap.servers": pair.bootstrap, "group.id": "kept", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1, "note")], asynchronous=False)
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + TIMEOUT
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.close()
    producer = Producer({"bootstrap.servers": pair.bootstrap, "transactional.id": "kept"})
    producer.init_transactions(TIMEOUT)
    for marker, topic, formatters in (
        ('"group":"kept"', "__consumer_offsets", ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")),
        ('"transactionalId":"kept"', "__transaction_state", ("TransactionLogMessageFormatter",)),
    ):
        for formatter in formatters:
            found: dict[str, list[str]] = {}
            named = ("--formatter", f"org.apache.kafka.tools.consumer.{formatter}")
            for partition in range(len(json.loads(tool.ok("topics", "describe", topic, "--json"))[0]["partitions"])):
                whole = ("--partition", str(partition), "--offset", "earliest", *named)
                ours = tool("consume", topic, *whole, "--until-end")
                (count,) = re.findall(r"total of (\d+) messages", ours.err)
                if marker in ours.out:
                    where = ("--bootstrap-server", pair.bootstrap, "--topic", topic)
                    theirs = pair.kafkas("kafka-console-consumer", *where, *whole, "--max-messages", count)
                    found["theirs"] = theirs.out.replace("}{", "}\n{").splitlines()
                    found["ours"] = ours.out.splitlines()
            assert found.get("ours") and found["ours"] == found["theirs"], formatter


def test_measurements_and_latency(pair: Pair, tool: Tool, tmp_path: Path) -> None:
    where = ("--bootstrap-server", pair.bootstrap)
    tool.ok("topics", "create", "latency")
    measure = ("--topic", "latency", "--num-records", "5", "--producer-acks", "all", "--record-size", "50")
    deadline = time.monotonic() + TIMEOUT
    while (theirs := pair.kafkas("kafka-e2e-latency", *where, *measure)).status:  # a broker may not know the topic yet
        assert time.monotonic() < deadline, theirs
    printed = [theirs.out, tool.ok("perf", "end-to-end", *measure)]
    assert len({re.sub(r"[\d.]+(?=\b)", "N", text) for text in printed}) == 1, printed
    payload, config = tmp_path / "payload", tmp_path / "producer.properties"
    payload.write_text("coffee;tea;")
    config.write_text("acks=1\nenable.idempotence=false\n")
    for name in (THEIRS_NAME, OUR_NAME):
        tool.ok("topics", "create", f"{name}-load", "--partitions", "1")
    files = {"payload": payload, "config": config}
    assert not pair.differences("kafka-producer-perf-test", tool_rows.LOADS, tool, **files)
    ends = [tool.ok("get-offsets", "--topic", f"{name}-load").split(":")[2] for name in (THEIRS_NAME, OUR_NAME)]
    assert ends[0] == ends[1] and int(ends[0]) > 0
    shown = ("--from-beginning", "--until-end", "-f", "%S\n")
    sizes = [tool.ok("consume", f"{name}-load", *shown).splitlines() for name in (THEIRS_NAME, OUR_NAME)]
    assert [size for size in sizes[0] if size == "7"] == [size for size in sizes[1] if size == "7"]
    assert {*sizes[0]} == {*sizes[1]}
    tool("produce", "measured", stdin="coffee\n" * 10)
    assert not pair.differences("kafka-consumer-perf-test", tool_rows.MEASUREMENTS, tool)


@pytest.mark.parametrize("pair", [OURS], indirect=True)
def test_both_tools_find_that_the_replicas_are_equal(pair: Pair, tool: Tool) -> None:
    assert "orders-0: replicas 1,2,3" in tool.ok("verify-replicas", "--topics-include", "orders")
    command = ["java", *jvm.QUICK_START, "-cp", f"{jvm.jars()}/*", "org.apache.kafka.tools.ReplicaVerificationTool"]
    asked = ("--broker-list", pair.bootstrap, "--topics-include", "orders", "--time", "-2", "--report-interval-ms", "1")
    process = subprocess.Popen([*command, *asked], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:  # it runs until it is stopped, and reports the least verified partition
        assert any(re.search(r"max lag is 0 for partition orders-\d", line) for line in process.stdout)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_both_tools_list_the_same_nodes(pair: Pair, tool: Tool) -> None:
    where = ("--bootstrap-server", pair.bootstrap)
    for theirs, ours in (
        (("list-endpoints",), ("list",)),
        (("list-endpoints", "--include-fenced-brokers"), ("list", "--include-fenced-brokers")),
        (("cluster-id",), ("cluster-id",)),
    ):
        assert lines(pair.kafkas("kafka-cluster", *theirs, *where).out) == lines(tool.ok("nodes", *ours))
    assert pair.kafkas("kafka-cluster", "unregister", *where, "--id", "77").status
    tool.fails("nodes", "unregister", "--id", "77")


def test_kafkas_other_tools_work_with_our_nodes(cluster: MixedCluster, kafkas: ToolSession) -> None:
    server, controller = cluster.bootstrap, cluster.bootstrap_controllers.split(",")[0]
    status = kafkas("kafka-metadata-quorum", "--bootstrap-controller", controller, "describe", "--status").out
    found = dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))
    assert int(found["LeaderId"]) in cluster.nodes
    assert int(found["LeaderEpoch"]) > 0 and int(found["HighWatermark"]) > 0
    assert {entry["id"] for entry in json.loads(found["CurrentVoters"])} == {1, 2, 3}
    replication = kafkas("kafka-metadata-quorum", "--bootstrap-controller", controller, "describe", "--replication").out
    roles = [line.split()[-1] for line in replication.splitlines()[1:] if line.strip()]
    assert sorted(roles) == ["Follower", "Follower", "Leader"]
    through_a_broker = kafkas("kafka-metadata-quorum", "--bootstrap-server", server, "describe", "--status")
    assert "LeaderId:" in through_a_broker.out

    by_controller = kafkas("kafka-features", "--bootstrap-controller", controller, "describe").out
    assert "Feature: kraft.version" in by_controller
    versions = kafkas("kafka-broker-api-versions", "--bootstrap-server", server).out
    assert all(f"(id: {node.number} rack: null" in versions for node in cluster.brokers)
    assert "UNSUPPORTED" not in next(line for line in versions.splitlines() if "Produce(0)" in line)


def test_directories_are_described_and_formatted(
    cluster: MixedCluster, kafkas: ToolSession, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    """The directories of a node are already formatted, and are accepted unless they belong to another cluster."""
    config = str(cluster.nodes[1].config)
    new = tmp_path / "new.properties"
    text = Path(config).read_text()
    new.write_text(re.sub(r"(?m)^log\.dirs=.*", f"log.dirs={tmp_path}/new", text))
    theirs = kafkas("kafka-storage", "info", "-c", config)
    assert run(["storage", "info", "-c", config]) == theirs.status == 0
    ours = capfdbinary.readouterr().out.decode()
    found = re.search(r"Found metadata: \{(.*)\}", theirs.out)
    assert found and sorted(found[1].split(", ")) == sorted(re.findall(r"^  (\S+=\S+)$", ours, re.MULTILINE))
    cluster_id = re.findall(r"cluster.id=(\S+)", ours)[0]
    for words in (
        ("info", "-c", str(new)),
        ("format", "-t", cluster_id, "-c", config),
        ("format", "-t", cluster_id, "-c", config, "--ignore-formatted"),
        ("format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", config, "--ignore-formatted"),
    ):
        result = kafkas("kafka-storage", *words)
        status = run(["storage", *words])
        printed = capfdbinary.readouterr().out.decode()
        assert bool(status) == bool(result.status), (words, result, printed)
        assert ("already formatted" in printed) == ("already formatted" in result.out), (words, result, printed)
    assert run(["storage", "random-uuid"]) == 0
    for made in (kafkas("kafka-storage", "random-uuid").out, capfdbinary.readouterr().out.decode()):
        assert re.fullmatch(r"[\w-]{22}\n", made)


@pytest.mark.parametrize("pair", [OURS], indirect=True)
def test_reports_show_under_replicated_partitions_of_a_stopped_node(
    pair: Pair, tool: Tool, cluster: MixedCluster
) -> None:
    """This test and the next one come last: nodes stop. This one is the preferred leader again when it is back."""
    tool.ok("topics", "create", "led", "--replica-assignment", "2:3:1")
    tool.ok("topics", "create", "strict", "--replica-assignment", "2:3:1", "--config", "min.insync.replicas=3")
    cluster.wait_until_in_sync("led")
    cluster.wait_until_in_sync("strict")
    node = cluster.nodes[2]
    node.end()
    deadline = time.monotonic() + TIMEOUT
    while "led\tPartition: 0" not in tool.ok("topics", "describe", "led", "--under-replicated-partitions"):
        assert time.monotonic() < deadline
    filters = ("--under-replicated-partitions", "--at-min-isr-partitions", "--unavailable-partitions")
    reports = [Row(f"--describe --topic led {one}", f"topics describe led {one}", lines) for one in filters]
    missing = "strict --under-min-isr-partitions"
    while "strict\tPartition: 0" not in tool.ok("topics", "describe", *missing.split()):
        assert time.monotonic() < deadline
    reports.append(Row(f"--describe --topic {missing}", f"topics describe {missing}", lines))
    assert not pair.differences("kafka-topics", reports, tool)
    asked = "--election-type preferred --topic led --partition 0"
    election = Row(asked, f"leader-election {asked}", nothing)
    assert not pair.differences("kafka-leader-election", [election], tool)
    node.start()
    node.wait_until_listening()
    cluster.wait_until_in_sync("led")
    # The in-sync set that the wait saw may be older than the end of the node.
    while not (done := tool(*election.ours.split())).out.startswith("Successfully completed"):
        assert time.monotonic() < deadline + TIMEOUT, done
    assert not pair.differences("kafka-leader-election", [election._replace(fix=lines)], tool)
    assert cluster.leaders("led") == [2]


@pytest.mark.parametrize("pair", [OURS], indirect=True)
def test_unclean_election_lets_a_replica_out_of_sync_lead(pair: Pair, tool: Tool, cluster: MixedCluster) -> None:
    tool.ok("topics", "create", "torn", "--replica-assignment", "2:3", "--config", "min.insync.replicas=1")
    cluster.wait_until_in_sync("torn")
    cluster.nodes[3].end(signal.SIGTERM)
    producer = Producer({"bootstrap.servers": cluster.nodes[2].address, "acks": "all"})
    producer.produce("torn", b"only on node 2", partition=0)
    assert producer.flush(TIMEOUT) == 0
    cluster.nodes[2].end(signal.SIGTERM)
    cluster.nodes[3].start()
    cluster.nodes[3].wait_until_listening()
    where = ("--bootstrap-server", cluster.nodes[3].address)
    deadline = time.monotonic() + TIMEOUT
    asked = ("--topic", "torn", "--partition", "0")
    while (refused := pair.kafkas("kafka-leader-election", *where, "--election-type", "preferred", *asked)).status == 0:
        assert time.monotonic() < deadline, refused
    for report in ("--unavailable-partitions", "--under-replicated-partitions", "--under-min-isr-partitions"):
        shown = tool.ok("topics", "describe", "torn", report)
        assert shown.startswith("\tTopic: torn\tPartition: 0\tLeader: none\tReplicas: 2,3\t"), (report, shown)
    assert tool.ok("topics", "describe", "torn", "--at-min-isr-partitions") == ""
    while not (
        done := pair.kafkas("kafka-leader-election", *where, "--election-type", "unclean", *asked)
    ).out.startswith("Successfully completed leader election (UNCLEAN) for partitions torn-0"):
        assert time.monotonic() < deadline, done
    cluster.nodes[2].start()
    cluster.nodes[2].wait_until_listening()
    cluster.wait_until_in_sync("torn")
    assert cluster.leaders("torn") == [3]
    assert tool.ok("get-offsets", "--topic", "torn") == "torn:0:0\n"
