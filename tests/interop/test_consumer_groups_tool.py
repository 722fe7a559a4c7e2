"""Apache Kafka's kafka-consumer-groups and ``triokafka groups`` print and do the same, with both brokers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import jvm
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

TIMEOUT = 30.0
RECORDS = {("orders", 0): 10, ("orders", 1): 20, ("orders", 2): 0, ("pay", 0): 5, ("pay", 1): 7}
EPOCH = 1_700_000_000_000
"""The first record of each partition; the others are a second apart."""

Row = dict[str, str]


class ToolResult(NamedTuple):
    """The exit status and output of a tool."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[Row]:
        """Return the rows of its tables by title, sorted."""
        found: list[Row] = []
        titles: list[str] = []
        for line in self.out.splitlines():
            cells = line.split()
            if cells and cells[0] in ("GROUP", "TOPIC"):
                titles = cells
            elif titles and len(cells) == len(titles):
                found.append(dict(zip(titles, cells, strict=True)))
        return sorted(found, key=lambda row: tuple(row.values()))


class Tools:
    """Both tools, for one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def kafka(self, *arguments: str) -> ToolResult:
        """Run Apache Kafka's tool."""
        program = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        command = ["java", *jvm.QUICK_START, "-Xmx256m", "-cp", f"{jvm.jars()}/*", program]
        return self._run([*command, "--bootstrap-server", self.bootstrap, *arguments])

    def ours(self, *arguments: str) -> ToolResult:
        """Run our command."""
        command = [sys.executable, "-m", "triokafka", "groups", *arguments, "--bootstrap-server", self.bootstrap]
        return self._run(command)

    def _run(self, command: list[str]) -> ToolResult:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return ToolResult(done.returncode, done.stdout, done.stderr)

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group, read with neither tool."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False})
        try:
            found = consumer.committed([TopicPartition(*tp) for tp in RECORDS], timeout=TIMEOUT)
        finally:
            consumer.close()
        return {(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}


def broker_of_ours(_directory: Path) -> Iterator[str]:
    process = BrokerProcess(None, settings={"group.initial.rebalance.delay.ms": "0"})
    yield process.start()
    assert process.stop() == 0


def broker_of_kafka(directory: Path) -> Iterator[str]:
    with jvm.apache_kafka(directory) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module", params=[broker_of_ours, broker_of_kafka], ids=["our-broker", "apache-kafka"])
def tools(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    jvm.require("mvn", "java")
    for bootstrap in request.param(tmp_path_factory.mktemp("broker")):
        fill(bootstrap)
        yield Tools(bootstrap)


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1"}  # the records are old
    topics = [NewTopic("orders", 3, 1, config=config), NewTopic("pay", 2, 1, config=config)]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT)
    producer = Producer({"bootstrap.servers": bootstrap})
    for (topic, partition), count in RECORDS.items():
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=EPOCH + number * 1000)
    assert producer.flush(TIMEOUT) == 0


def commit(tools: Tools, group: str, **offsets: dict[int, int]) -> None:
    """Commit offsets of a group without members."""
    consumer = Consumer({"bootstrap.servers": tools.bootstrap, "group.id": group, "enable.auto.commit": False})
    positions = [TopicPartition(topic, p, offset) for topic, at in offsets.items() for p, offset in at.items()]
    for done in consumer.commit(offsets=positions, asynchronous=False):
        assert done.error is None
    consumer.close()


@contextmanager
def member(tools: Tools, group: str, *topics: str, **more: object) -> Iterator[None]:
    """Run a member that has its partitions, and commits nothing before it leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": tools.bootstrap,
            "group.id": group,
            "client.id": f"of-{group}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )
    try:
        consumer.subscribe(list(topics))
        assert consumer.poll(TIMEOUT) is not None
        yield
    finally:
        consumer.close()


def same_rows(tools: Tools, kafkas: list[str], ours: list[str]) -> list[Row]:
    """Return the rows that both tools print; fail if they differ."""
    theirs, mine = tools.kafka(*kafkas), tools.ours(*ours)
    assert mine.status == 0, mine
    assert theirs.rows, theirs
    assert mine.rows == theirs.rows, (theirs, mine)
    return mine.rows


def test_both_tools_show_the_same_groups_offsets_members_and_states(tools: Tools) -> None:
    commit(tools, "simple", orders={0: 4, 2: 0}, pay={1: 7})
    with ExitStack() as members:
        members.enter_context(member(tools, "static", "orders", "pay", group_instance_id="desk-7"))
        members.enter_context(member(tools, "modern", "orders", "pay", group_protocol="consumer"))
        commit(tools, "beside", pay={0: 3})
        members.enter_context(member(tools, "beside", "orders"))
        names = ["simple", "static", "modern", "beside"]
        listed = tools.ours("list").out.split()
        assert sorted(tools.kafka("--list").out.split()) == sorted(listed) and set(names) <= set(listed)
        rows = same_rows(tools, ["--list", "--state", "--type"], ["list", "--state", "--type"])
        assert {row["GROUP"]: (row["TYPE"], row["STATE"]) for row in rows if row["GROUP"] in names} == {
            "simple": ("Classic", "Empty"),
            "static": ("Classic", "Stable"),
            "modern": ("Consumer", "Stable"),
            "beside": ("Classic", "Stable"),
        }
        only = same_rows(
            tools, ["--list", "--state", "stable", "--type", "consumer"],
            ["list", "--state", "stable", "--type", "consumer"],
        )  # fmt: skip
        assert [row["GROUP"] for row in only] == ["modern"]
        chosen = [flag for name in names for flag in ("--group", name)]
        same_rows(tools, ["--describe", "--all-groups"], ["describe", "--all-groups"])
        rows = same_rows(tools, ["--describe", *chosen, "--verbose"], ["describe", *names, "--verbose"])
        assert [tuple(row.values())[1:7] for row in rows if row["GROUP"] == "simple"] == [
            ("orders", "0", "-", "4", "10", "6"), ("orders", "2", "-", "0", "0", "0"), ("pay", "1", "-", "7", "7", "0"),
        ]  # fmt: skip
        same_rows(tools, ["--describe", *chosen, "--state"], ["describe", *names, "--state"])
        same_rows(tools, ["--describe", *chosen, "--state", "--verbose"], ["describe", *names, "--state", "--verbose"])
        with_members = [flag for name in names[1:] for flag in ("--group", name)]
        same_rows(tools, ["--describe", *with_members, "--members"], ["members", *names[1:]])
        rows = same_rows(
            tools, ["--describe", *with_members, "--members", "--verbose"], ["members", *names[1:], "--verbose"]
        )
        (modern,) = [row for row in rows if row["GROUP"] == "modern"]
        assert modern["CURRENT-ASSIGNMENT"] == "orders:0,1,2;pay:0,1"


def test_both_tools_show_members_on_the_classic_protocol(tools: Tools) -> None:
    """KIP-848, KIP-1099."""
    options: dict[str, object] = {
        "bootstrap.servers": tools.bootstrap,
        "group.id": "mixed",
        "enable.auto.commit": False,
    }
    old = Consumer({**options, "client.id": "old"})
    new = Consumer({**options, "client.id": "new", "group.protocol": "consumer"})
    try:
        for consumer in (old, new):
            consumer.subscribe(["pay"])
            while not consumer.assignment():
                old.poll(0.1)
                new.poll(0.1)
        rows = same_rows(
            tools, ["--describe", "--group", "mixed", "--members", "--verbose"], ["members", "mixed", "--verbose"]
        )
        assert {row["CLIENT-ID"]: row["UPGRADED"] for row in rows} == {"old": "false", "new": "true"}
    finally:
        new.close()
        old.close()


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (["--to-earliest"], (0, 0, 0)),
        (["--to-latest"], (10, 20, 0)),
        (["--to-current"], (4, 20, 0)),
        (["--to-offset", "15"], (10, 15, 0)),
        (["--to-datetime", "2023-11-14T22:13:23.000"], (3, 3, 0)),
        (["--to-datetime", "2023-11-14T23:13:23.000+01:00"], (3, 3, 0)),
        (["--by-duration", "P1D"], (10, 20, 0)),
        (["--by-duration", "P18250DT1H"], (0, 0, 0)),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_both_tools_plan_the_same_reset_and_change_nothing(
    tools: Tools, way: list[str], expected: tuple[int, int, int]
) -> None:
    commit(tools, "plan", orders={0: 4})
    rows = same_rows(
        tools, ["--reset-offsets", "--group", "plan", "--topic", "orders", "--dry-run", *way],
        ["reset-offsets", "plan", "--topic", "orders", "--dry-run", *way],
    )  # fmt: skip
    assert tuple(int(row["NEW-OFFSET"]) for row in rows) == expected
    assert tools.offsets("plan") == {("orders", 0): 4}


def test_each_tool_reads_the_offsets_that_the_other_has_reset(tools: Tools, tmp_path: Path) -> None:

    def reset(*arguments: str) -> ToolResult:
        return tools.kafka("--reset-offsets", "--group", "both", *arguments)

    def our_reset(*arguments: str) -> ToolResult:
        return tools.ours("reset-offsets", "both", *arguments)

    assert our_reset("--topic", "orders", "--topic", "pay:1", "--to-latest", "--execute").status == 0
    latest = {("orders", 0): 10, ("orders", 1): 20, ("orders", 2): 0, ("pay", 1): 7}
    assert tools.offsets("both") == latest
    rows = reset("--topic", "orders:0,1", "--shift-by", "-8", "--execute").rows
    assert [row["NEW-OFFSET"] for row in rows] == ["2", "12"]
    assert our_reset("--topic", "orders:0", "--shift-by", "-8", "--execute").rows[0]["NEW-OFFSET"] == "0"
    now = {**latest, ("orders", 0): 0, ("orders", 1): 12}
    assert tools.offsets("both") == now
    current = ("--all-topics", "--to-current", "--export", "--dry-run")
    kafkas, ours = tmp_path / "kafkas.csv", tmp_path / "ours.csv"
    kafkas.write_text(reset(*current).out)
    ours.write_text(our_reset(*current).out)
    assert sorted(kafkas.read_text().split()) == sorted(ours.read_text().split())
    assert our_reset("--topic", "orders", "--to-earliest", "--execute").status == 0
    assert our_reset("--from-file", str(kafkas), "--execute").status == 0
    assert tools.offsets("both") == now
    assert reset("--topic", "orders", "--to-earliest", "--execute").status == 0
    assert len(reset("--from-file", str(ours), "--execute").rows) == len(now)
    assert tools.offsets("both") == now


def test_both_tools_refuse_to_reset_a_group_with_members(tools: Tools) -> None:
    with member(tools, "busy", "orders"), member(tools, "busy-new", "orders", group_protocol="consumer"):
        for group in ("busy", "busy-new"):
            way = ("--topic", "orders", "--to-earliest", "--execute")
            theirs = tools.kafka("--reset-offsets", "--group", group, *way)
            ours = tools.ours("reset-offsets", group, *way)
            assert theirs.rows == ours.rows == []
            assert "current state is Stable" in theirs.out
            assert ours.status == 1 and f"group '{group}' is Stable" in ours.err
            assert tools.offsets(group) == {}


def test_both_tools_delete_empty_groups_and_report_the_others(tools: Tools) -> None:
    for group in ("gone-1", "gone-2"):
        commit(tools, group, orders={0: 1})
    with member(tools, "stays", "pay"):
        theirs = tools.kafka("--delete", "--group", "gone-1", "--group", "stays", "--group", "nobody").out
        ours = tools.ours("delete", "gone-2", "stays", "nobody")
        assert re.search(r"'stays' could not be deleted due to: .*GroupNotEmptyException", theirs)
        assert re.search(r"'nobody' could not be deleted due to: .*GroupIdNotFoundException", theirs)
        assert "deleted successfully: 'gone-1'" in theirs
        assert (ours.status, ours.out) == (1, "Deleted group gone-2.\n")
        assert "group 'stays': the group still has members" in ours.err and "group 'nobody': no such group" in ours.err
    assert not {"gone-1", "gone-2"} & set(tools.ours("list").out.split())


def test_both_tools_delete_the_offsets_of_topics(tools: Tools) -> None:
    for group in ("forget-1", "forget-2"):
        commit(tools, group, orders={0: 1, 1: 2}, pay={0: 3})
    topics = ("--topic", "orders:1", "--topic", "pay", "--topic", "nowhere")
    theirs = {
        (row["TOPIC"], row["PARTITION"]): row["STATUS"] == "Successful"
        for row in tools.kafka("--delete-offsets", "--group", "forget-1", *topics).rows
    }
    ours = {
        (row["TOPIC"], row["PARTITION"]): row["STATUS"] == "Successful"
        for row in tools.ours("delete-offsets", "forget-2", *topics).rows
    }
    assert ours == theirs == {("orders", "1"): True, ("pay", "0"): True, ("pay", "1"): True}
    assert tools.offsets("forget-1") == tools.offsets("forget-2") == {("orders", 0): 1}
    with member(tools, "reads", "pay"):
        theirs_out = tools.kafka("--delete-offsets", "--group", "reads", "--topic", "pay").out
        our_result = tools.ours("delete-offsets", "reads", "--topic", "pay")
        assert theirs_out.count("GroupSubscribedToTopicException") == 2
        assert our_result.status == 1 and our_result.out.count("is subscribed to the topic") == 2


def test_neither_tool_describes_a_missing_group(tools: Tools) -> None:
    for view in ([], ["--members"], ["--state"]):
        ours = tools.ours("describe", "nobody", *view)
        assert (ours.status, ours.out) == (1, "") and "consumer group 'nobody' does not exist" in ours.err
    assert "GroupIdNotFoundException" in tools.kafka("--describe", "--group", "nobody").out
