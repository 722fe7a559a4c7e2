"""Kafka's tools and ours: the same rows and exit codes for the same state, of Apache Kafka and of three nodes of ours.

Each row runs both tools on the same servers. Where both fail, only that they fail is compared: our texts and the status
of usage errors differ on purpose (docs/cli.md).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.test_cli import Tool
from tests.interop import jvm
from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, mixed_cluster
from tests.interop.tool_session import ToolSession, tool_session
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


class Row(NamedTuple):
    """Arguments of Kafka's tool, and ours; ``fix`` leaves of an output what both have to say."""

    theirs: str
    ours: str
    fix: Callable[[str], Any]


class Pair(NamedTuple):
    """Servers, and both tools for them; ``replicas`` is what they have of each partition."""

    bootstrap: str
    kafkas: ToolSession
    replicas: str

    def differences(self, script: str, rows: Sequence[Row], tool: Tool, **words: object) -> list[str]:
        """Run both tools for each row, and return what differs."""
        found = []
        for row in rows:
            where = ("--bootstrap-server", self.bootstrap)
            theirs = self.kafkas(script, *where, *_words(row.theirs, me=THEIRS_NAME, **words))
            ours = tool(*_words(row.ours, me=OUR_NAME, **words))
            if bool(theirs.status) != bool(ours.status):
                found.append(f"{row.theirs}: {theirs} and {ours}")
            elif not theirs.status and row.fix(theirs.out) != row.fix(ours.out.replace(OUR_NAME, THEIRS_NAME)):
                found.append(f"{row.theirs}: {row.fix(theirs.out)} and {row.fix(ours.out)}")
        return found


def _words(text: str, **words: object) -> list[str]:
    return [word.format(**words).replace("~", " ") for word in text.split()]


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
    """Make topics with records, quotas, committed offsets, and transactions: one done, one open."""

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


# What of an output counts


def lines(text: str) -> list[str]:
    """The different lines in an order of their own, with single spaces and sorted configurations."""

    def sorted_configs(word: str) -> str:
        return ",".join(sorted(word.split(","))) if "=" in word else word

    return sorted({" ".join(map(sorted_configs, line.split())) for line in text.splitlines() if line.strip()})


def table(text: str) -> list[str]:
    """The rows of tables; both tools have remarks beside them."""
    return [
        line for line in lines(text) if not line.startswith(("Warn", "Note", "Request succeeded", "Consumer group"))
    ]


def filled_table(text: str) -> list[str]:
    """The rows of tables without titles: Kafka's tool also prints the title of a table without rows."""
    return [line for line in table(text) if not line.startswith("GROUP ")]


def settled(text: str) -> list[str]:
    """Rows of features, whose epoch grows meanwhile."""
    return lines(re.sub(r"(?<=Epoch: )\d+", "N", text))


def transactions(text: str) -> list[str]:
    """Rows of transactions without the durations, which grow meanwhile."""
    return [re.sub(r"(?<= \d{13}) \d+(?= |$)", " N", line) for line in lines(text)]


def quotas(text: str) -> dict[str, dict[str, float]]:
    """Quotas by entity: their list has no order."""
    found = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"Quota configs for (.*) are (.*)", line):
            pairs = (pair.split("=") for pair in match[2].split(", "))
            found[match[1]] = {name: float(value) for name, value in pairs}
    return found


def acls(text: str) -> set[tuple[str, str]]:
    """Entries with their resources."""
    found, resource = set(), ""
    for line in text.splitlines():
        resource = next(iter(re.findall(r"ResourcePattern\(.*?\)", line)), resource)
        found |= {(resource, entry) for entry in re.findall(r"\(principal=.*?\)", line)}
    return found


def document(text: str) -> Any:
    """A JSON document, beside which Kafka's tool prints other lines, with sorted lists."""

    def by_order(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: by_order(one) for name, one in value.items()}
        return sorted(map(by_order, value), key=json.dumps) if isinstance(value, list) else value

    return by_order(json.loads(text[text.index("{") :] if text.startswith("{") else text[text.index("\n{") :]))


def quorum(text: str) -> list[str]:
    """Rows of the quorum's status, without offsets and times, which grow meanwhile."""
    return lines(re.sub(r"(?<=HighWatermark:)\s+\d+|(?<=MaxFollowerLag:)\s+\d+|(?<=LagTimeMs:)\s+-?\d+", " N", text))


def replicas_of_metadata(text: str) -> list[str]:
    """Rows of the metadata log's replicas, without offsets and times."""
    return [re.sub(r" \d+ \d+ \d{13} \d{13} | \d+ \d+ \d+ ms ago \d+ ms ago ", " N ", line) for line in lines(text)]


def measured(text: str) -> tuple[str, str, str]:
    """The columns of a measurement, and how much was read."""
    titles, values = (line for line in text.splitlines() if "," in line)
    read = values.split(", ")
    return titles, read[2], read[4]


def nothing(_text: str) -> None:
    """The exit status is all that is compared."""


# The rows


def rows(verb: str, command: str, *arguments: str, fix: Callable[[str], Any] = lines) -> list[Row]:
    """Rows with the same arguments for both tools."""
    return [Row(f"{verb} {more}", f"{command} {more}", fix) for more in arguments]


TOPICS: Final = [
    *rows(
        "--describe", "topics describe", "", "--exclude-internal", "--topics-with-overrides",
        "--unavailable-partitions", "--under-replicated-partitions", "--under-min-isr-partitions",
        "--at-min-isr-partitions", "--topic-id AAAAAAAAAAAAAAAAAAAAAQ",
    ),
    *[
        Row(f"--describe --topic {name}", f"topics describe {name}", lines)
        for name in ("or.*|pay", "no", "no --if-exists")
    ],
    *[Row(f"--list --topic {name}", f"topics list {name}", lines) for name in ("or.*", "no")],
    *rows("--list", "topics list", "", "--exclude-internal"),
    *[
        Row(f"--create --topic {words}", f"topics create {words}", fix)
        for words, fix in [
            ("{me} --partitions 2 --replication-factor 1 --config retention.ms=5000", lines),
            ("orders", lines), ("orders --if-not-exists", nothing), ("{me}2 --replication-factor 5", lines),
            ("{me}2 --config nope=1", lines), ("bad~name", lines), ("{me}2 --partitions 0", lines),
        ]
    ],
    *[
        Row(f"--alter --topic {words}", f"topics alter {words}", nothing)
        for words in ("{me} --partitions 3", "{me} --partitions 1", "no --partitions 3",
        "no --partitions 3 --if-exists")
    ],
    *[Row(f"--delete --topic {words}", f"topics delete {words}", nothing) for words in ("{me}", "no",
    "no --if-exists")],
]  # fmt: skip
CONFIGS: Final = [
    *rows(
        "--describe", "configs describe", "--entity-type topics", "--entity-type topics --entity-name orders --all",
        "--topic orders", "--entity-type brokers", "--broker 1",
        "--entity-type brokers --entity-default", "--broker-defaults", "", "--entity-type nope",
    ),
    *rows(
        "--alter", "configs alter",
        "--entity-type topics --entity-name orders --add-config retention.ms=12345,cleanup.policy=[compact,delete]",
        "--topic orders --delete-config cleanup.policy", "--topic orders --add-config nope=1", "--topic orders",
        "--topic orders --add-config retention.ms=x", "--topic no --add-config retention.ms=1",
        "--broker 1 --add-config log.cleaner.threads=2", "--broker 1 --add-config broker.id=2",
        "--broker-defaults --add-config log.cleaner.threads=2",
    ),
    *rows("--describe", "configs describe", "--entity-type brokers", "--broker 1", "--broker-defaults",
    "--topic orders"),
    *rows(
        "--alter", "configs alter", "--broker 1 --delete-config log.cleaner.threads",
        "--broker-defaults --delete-config log.cleaner.threads", "--topic orders --add-config retention.ms=-1",
        "--entity-type groups --entity-name g --add-config consumer.session.timeout.ms=46000",
        "--entity-type client-metrics --entity-name cm --add-config interval.ms=5000,metrics=[a.b,c.d]",
        "--user bob --add-config SCRAM-SHA-512=[iterations=8192,password=x]",
        "--user {me} --add-config producer_byte_rate=5,request_percentage=2.5",
        "--user {me} --delete-config producer_byte_rate,request_percentage", "--user bob --add-config nope=1",
        "--ip 10.0.0.1 --add-config connection_creation_rate=5",
        "--ip no-such-host --add-config connection_creation_rate=5",
    ),
    *rows(
        "--describe", "configs describe", "--entity-type groups", "--group g", "--entity-type client-metrics",
        "--client-metrics cm", "--entity-type broker-loggers --entity-name 1",
    ),
]  # fmt: skip
QUOTAS: Final = [
    row
    for command in ("configs describe", "quotas describe")
    for row in rows(
        "--describe", command, "--entity-type users", "--entity-type clients",
        "--entity-type users --entity-type clients",
        "--entity-type ips", "--ip 10.0.0.1", "--user alice", "--user-defaults --client-defaults", "--user nobody",
        "--entity-type users --entity-name alice --entity-type clients --entity-name loader", fix=quotas,
    )
]  # fmt: skip
CLIENT_METRICS: Final = [
    Row(f"--{words}", f"client-metrics {words}", lines)
    for words in (
        "alter --name lat --metrics org.a,org.b --interval 5000 --match client_id=x", "list", "describe",
        "describe --name lat", "describe --name no", "alter --name lat --interval x", "alter --name lat --interval 10",
        "delete", "delete --name lat", "delete --name lat",
    )
]  # fmt: skip
ACLS: Final = [
    Row(f"--{words}", f"acls {words}", acls)
    for words in (
        "add --allow-principal User:bob --operation Read --topic orders", "list", "list --topic orders",
        "add --allow-principal User:bob --allow-host 10.0.0.1 --operation Read --operation Write --topic pay "
        "--resource-pattern-type prefixed",
        "add --allow-principal User:bob --deny-principal User:eve --deny-host 1.2.3.4 --operation All --cluster",
        "add --allow-principal User:prod --producer --topic orders --idempotent --transactional-id t1",
        "add --allow-principal User:cons --consumer --topic orders --group g",
        "add --allow-principal User:x --operation CreateTokens --user-principal User:y",
        "add --allow-principal User:x --operation Describe --delegation-token tok",
        "add --allow-principal User:cons --consumer --topic orders", "add --operation Read --topic orders",
        "add --allow-principal User:x --operation Nope --topic orders", "add --allow-principal x --topic orders",
        "add --allow-principal User:x --operation Write --group g",
        "list", "list --principal User:bob --principal User:x", "list --cluster", "list --topic orders --group g",
        "list --topic paying --resource-pattern-type match", "list --topic pay --resource-pattern-type any",
        "remove --force --allow-principal User:bob --operation Read --topic orders",
        "remove --force --producer --allow-principal User:prod --topic orders",
        "remove --force --topic pay --resource-pattern-type prefixed", "list", "remove --force",
        "remove --force --cluster", "remove --force --group g", "remove --force --topic orders",
        "remove --force --transactional-id t1", "remove --force --user-principal User:y",
        "remove --force --delegation-token tok", "list",
    )
]  # fmt: skip
OFFSETS: Final = rows(
    "", "get-offsets", "", "--topic or.*|pay --partitions 0,2", "--topic-partitions orders:1-,pay", "--time earliest",
    "--topic-partitions :0", "--topic-partitions orders:0-2", "--topic-partitions orders:x", "--time -3", "--time nope",
    "--time 2500 --topic orders", "--time -4", "--time latest-tiered", "--exclude-internal-topics", "--topic no",
    "--topic orders --topic-partitions x",
)  # fmt: skip
LOG_DIRS: Final = [
    Row(f"--describe {words}", f"log dirs --json {words}", document)
    for words in (
        "",
        "--topic-list orders,pay",
        "--broker-list 1,3",
        "--broker-list 1 --topic-list orders",
        "--topic-list no",
    )
]
FEATURES: Final = [
    Row(words, f"features {words}", settled)
    for words in (
        "describe", "upgrade --feature group.version=1 --dry-run", "upgrade --feature nope=1 --dry-run",
        "downgrade --metadata 3.9-IV0 --dry-run", "downgrade --unsafe --metadata 3.9-IV0 --dry-run",
        "disable --feature share.version --dry-run", "version-mapping", "version-mapping --release-version 4.0",
        "version-mapping --release-version 9.9", "feature-dependencies --feature eligible.leader.replicas.version=1",
        "feature-dependencies --feature transaction.version=2", "feature-dependencies --feature group.version=7",
    )
]  # fmt: skip
ELECTIONS: Final = rows(
    "", "leader-election", "--election-type preferred --topic orders --partition 0", "--topic orders --partition 0",
    "--election-type unclean --topic orders --partition 0", "--election-type preferred --topic orders",
    "--election-type preferred --topic no --partition 0", "--election-type nope --all-topic-partitions",
)  # fmt: skip
TRANSACTIONS: Final = [
    Row(words, f"transactions {words}", transactions)
    for words in (
        "list", "list --duration-filter 600000", "list --transactional-id-pattern op.*",
        "describe --transactional-id open",
        "describe --transactional-id no", "describe-producers --topic orders --partition 0",
        "describe-producers --topic orders --partition 0 --broker-id 1",
        "describe-producers --topic orders", "abort --topic orders --partition 0",
        "abort --topic orders --partition 0 --start-offset 999", "forceTerminateTransaction --transactional-id no",
    )
] + [
    Row(f"find-hanging {words}", f"transactions find-hanging {words}", nothing)
    for words in ("--broker-id 1", "--topic orders", "--topic orders --partition 0")
]  # fmt: skip
QUORUM: Final = [
    *rows("describe", "quorum describe", "--status", fix=quorum),
    *rows(
        "describe", "quorum describe", "--replication", "--replication --human-readable", "--status --replication",
        fix=replicas_of_metadata,
    ),
    *rows(
        "remove-controller", "quorum remove-controller",
        "--controller-id 9 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ", "--controller-id 9", fix=nothing,
    ),
]  # fmt: skip
GROUPS: Final = [
    *rows("--list", "groups list", "", "--state", "--state stable,empty", "--type", "--type consumer", "--state nope"),
    *[
        Row(f"--describe {which} {what}", f"groups describe {which} {what}", fix)
        for which in ("--group empty", "--all-groups")
        for what, fix in [
            ("", table), ("--members", filled_table), ("--state", table), ("--members --verbose", filled_table),
            ("--state --verbose", table), ("--offsets --verbose", table),
        ]
    ],
    *[
        Row(f"--reset-offsets --group empty {words}", f"groups reset-offsets --group empty {words}", table)
        for scope in ("--topic orders:0", "--all-topics")
        for words in [
            f"{scope} {target}"
            for target in (
                "--to-earliest", "--to-latest", "--to-current", "--to-offset 1", "--to-offset 99", "--shift-by -1",
                "--by-duration PT1H", "--to-datetime 1970-01-01T00:00:03.000", "--to-earliest --export",
            )
        ]
    ],
    *[
        Row(f"--{words}", f"groups {words}", table)
        for words in (
            "reset-offsets --group {me} --topic orders --to-earliest --execute",
            "reset-offsets --group {me} --to-earliest",
            "delete-offsets --group {me} --topic orders:1",
        )
    ],
    Row("--delete --group {me}", "groups delete --group {me}", nothing),
]  # fmt: skip


def test_topics(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-topics", TOPICS, tool)


def test_configs(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-configs", CONFIGS, tool)
    assert not pair.differences("kafka-configs", QUOTAS, tool)


def test_client_metrics(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-client-metrics", CLIENT_METRICS, tool)


def test_acls(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-acls", ACLS, tool)


def test_offsets_and_directories(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-get-offsets", OFFSETS, tool)
    assert not pair.differences("kafka-log-dirs", LOG_DIRS, tool)


def test_features_and_elections(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-features", FEATURES, tool)
    assert not pair.differences("kafka-leader-election", ELECTIONS, tool)


def test_quorum(pair: Pair, tool: Tool) -> None:
    assert not pair.differences("kafka-metadata-quorum", QUORUM, tool)


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
        assert not pair.differences("kafka-consumer-groups", GROUPS, tool)
    finally:
        for member in members:
            member.close()


def test_transactions(pair: Pair, tool: Tool) -> None:
    producers = []
    for transactional_id in ("done", "open"):
        producer = Producer({"bootstrap.servers": pair.bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        producer.produce("orders", b"x", partition=0)
        producer.flush(TIMEOUT)
        producers.append(producer)
    producers[0].commit_transaction(TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while "CompleteCommit" not in tool.ok("transactions", "list"):  # the markers are written after the answer
        assert time.monotonic() < deadline
    assert not pair.differences("kafka-transactions", TRANSACTIONS, tool)
    producers[1].abort_transaction(TIMEOUT)


def test_records_are_deleted(pair: Pair, tool: Tool, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    row = Row("--offset-json-file {file}", "delete-records --yes --offset-json-file {file}", lines)
    wrong = row._replace(fix=nothing)
    for text, rows_of_text in [
        ('{"partitions": [{"topic": "orders", "partition": 1, "offset": 1}], "version": 1}', row),
        ('{"partitions": [{"topic": "orders", "partition": 1, "offset": -1}], "version": 1}', row),
        ('{"partitions": [{"topic": "orders", "partition": 1, "offset": 1}] * 2}', wrong),
        ("{", wrong),
    ]:
        file.write_text(text)
        assert not pair.differences("kafka-delete-records", [rows_of_text], tool, file=file)


@pytest.mark.parametrize("pair", [OURS], indirect=True)
def test_partitions_move(pair: Pair, tool: Tool, tmp_path: Path) -> None:
    """Each tool begins a move with a throttle, which the other one follows to its end and then lifts."""
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
    said = []
    for begin, follow in ((theirs, ours), (ours, theirs)):
        placed = [[3, 1], [1, 2]] if begin is theirs else [[1, 2], [2, 3]]
        partitions = [{"topic": "moves", "partition": number, "replicas": to} for number, to in enumerate(placed)]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        begun = begin["execute"](*file, "--throttle", "10000000")
        assert begun.status == 0, begun
        deadline = time.monotonic() + TIMEOUT
        while "in progress" in (verified := follow["verify"](*file)).out:
            assert time.monotonic() < deadline, verified
        said.append(
            [re.sub(r"(?<=\[)[\d,]*(?=\])|--verify|/\S*", "", text).split() for text in (begun.out, verified.out)]
        )
        described = json.loads(tool.ok("topics", "describe", "moves", "--json"))[0]
        assert not any(name.endswith("throttled.replicas") for name in described["configs"])
        assert [partition["replicas"] for partition in described["partitions"]] == placed
    assert said[0][1] == said[1][1]
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


def test_printed_records_and_latency(pair: Pair, tool: Tool) -> None:
    shown = [f"print.{part}=true" for part in ("timestamp", "partition", "offset", "headers", "key")]
    asked = [word for part in shown for word in ("--formatter-property", part)]
    asked += ["--partition", "2", "--offset", "earliest", "--max-messages", "2"]
    where = ("--bootstrap-server", pair.bootstrap)
    theirs = pair.kafkas("kafka-console-consumer", *where, "--topic", "orders", *asked)
    assert theirs.out == tool.ok("consume", "orders", *asked) and theirs.out
    tool.ok("topics", "create", "latency")
    measure = ("--topic", "latency", "--num-records", "5", "--producer-acks", "all", "--record-size", "50")
    printed = [pair.kafkas("kafka-e2e-latency", *where, *measure).out, tool.ok("perf", "end-to-end", *measure)]
    assert len({re.sub(r"[\d.]+(?=\b)", "N", text) for text in printed}) == 1, printed
    tool("produce", "measured", stdin="coffee\n" * 10)
    read = Row("--topic measured --num-records 10", "perf consume --topic measured --num-records 10 --csv", measured)
    assert not pair.differences("kafka-consumer-perf-test", [read], tool)


def test_kafkas_other_tools_know_our_nodes(cluster: MixedCluster, kafkas: ToolSession) -> None:
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
    """Those of a node are formatted already, and are left alone unless they are another cluster's."""
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
        said = kafkas("kafka-storage", *words)
        status = run(["storage", *words])
        printed = capfdbinary.readouterr().out.decode()
        assert bool(status) == bool(said.status), (words, said, printed)
        assert ("already formatted" in printed) == ("already formatted" in said.out), (words, said, printed)
    assert run(["storage", "random-uuid"]) == 0
    for made in (kafkas("kafka-storage", "random-uuid").out, capfdbinary.readouterr().out.decode()):
        assert re.fullmatch(r"[\w-]{22}\n", made)


@pytest.mark.parametrize("pair", [OURS], indirect=True)
def test_reports_show_what_a_stopped_node_lacks(pair: Pair, tool: Tool, cluster: MixedCluster) -> None:
    """Last: a node stops, and is the preferred leader again when it is back."""
    tool.ok("topics", "create", "led", "--replica-assignment", "2:3:1")
    cluster.wait_until_in_sync("led")
    node = cluster.nodes[2]
    node.end()
    deadline = time.monotonic() + TIMEOUT
    while "led\tPartition: 0" not in tool.ok("topics", "describe", "led", "--under-replicated-partitions"):
        assert time.monotonic() < deadline
    filters = ("--under-replicated-partitions", "--at-min-isr-partitions", "--unavailable-partitions")
    reports = [Row(f"--describe --topic led {one}", f"topics describe led {one}", lines) for one in filters]
    assert not pair.differences("kafka-topics", reports, tool)
    asked = "--election-type preferred --topic led --partition 0"
    election = Row(asked, f"leader-election {asked}", nothing)
    assert not pair.differences("kafka-leader-election", [election], tool)
    node.start()
    node.wait_until_listening()
    cluster.wait_until_in_sync("led")
    # The in-sync set that the wait saw may be from before the end of the node.
    while not (done := tool(*election.ours.split())).out.startswith("Successfully completed"):
        assert time.monotonic() < deadline + TIMEOUT, done
    assert not pair.differences("kafka-leader-election", [election._replace(fix=lines)], tool)
    assert cluster.leaders("led") == [2]
