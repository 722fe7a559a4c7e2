"""``__consumer_offsets``: Kafka and its tools read the group records of our broker, and the reverse.

The groups have both protocols, static members, offsets with metadata and leader epochs, removed members, removed
offsets, and some groups are deleted.
"""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.interop import jvm
from tests.interop.groups import GROUPS, PARTITIONS, TIMEOUT, at, member, seen, serves, together, write_groups
from tests.interop.test_log_dump import kafkas_dump, our_dump, segments
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import until
from triokafka import Consumer, TopicPartition
from triokafka.coordinator.group.records import CommittedOffset, GroupChange, OffsetChange, decode
from triokafka.protocol.stored.group_metadata import GroupMetadataValue

pytestmark = pytest.mark.interop

Node = Callable[[Path], AbstractContextManager[str]]
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
WRITTEN = (*GROUPS, "gone")


@contextmanager
def ours(directory: Path) -> Iterator[str]:
    broker = BrokerProcess(directory / "data", settings=SETTINGS)
    try:
        yield broker.start()
        assert broker.stop() == 0
    finally:
        broker.close()


@contextmanager
def apache(directory: Path) -> Iterator[str]:
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with jvm.apache_kafka(directory, port=None, **settings) as bootstrap:
        yield bootstrap


def formatted(bootstrap: str, formatter: str) -> list[dict[str, Any]]:
    """Return the output of ``kafka-console-consumer`` for the topic with one of Kafka's formatters."""
    tool = [
        "java",
        *jvm.QUICK_START,
        "-Xmx256m",
        "-cp",
        f"{jvm.jars()}/*",
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
    ]
    options = ["--bootstrap-server", bootstrap, "--topic", "__consumer_offsets", "--from-beginning"]
    options += ["--formatter", f"org.apache.kafka.tools.consumer.{formatter}", "--timeout-ms"]
    text = errors = ""
    # The tool ends after a time without records; on a busy machine it may not even have joined its group by then.
    for patience_ms in ("5000", "60000"):
        done = subprocess.run([*tool, *options, patience_ms], capture_output=True, text=True, timeout=120, check=False)
        text, errors = done.stdout.lstrip(), done.stderr
        if text:
            break
    assert text, errors[-3000:]
    decoder, found = json.JSONDecoder(), []
    while text:
        record, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        # The tool's own group has records in the topic, too.
        if record["key"]["data"]["group"] in WRITTEN:
            found.append(record)
    return found


def offset_json(change: OffsetChange, version: int) -> dict[str, Any]:
    key = {"group": change.key.group_id, "topic": change.key.topic, "partition": change.key.partition}
    value: CommittedOffset | None = change.value
    shown: dict[str, Any] | None = None
    if value is not None:
        data: dict[str, Any] = {
            "offset": value.offset,
            "leaderEpoch": value.leader_epoch,
            "metadata": value.metadata,
            "commitTimestamp": value.commit_timestamp,
        }
        if version >= 4:
            data["topicId"] = urlsafe_b64encode(value.topic_id.bytes).decode().rstrip("=")
        shown = {"version": version, "data": data}
    return {"key": {"type": 1, "data": key}, "value": shown}


def group_json(change: GroupChange, version: int) -> dict[str, Any]:
    value: GroupMetadataValue | None = change.value
    shown: dict[str, Any] | None = None
    if value is not None:
        members = [
            {
                "memberId": one.member_id,
                "groupInstanceId": one.group_instance_id,
                "clientId": one.client_id,
                "clientHost": one.client_host,
                "rebalanceTimeout": one.rebalance_timeout,
                "sessionTimeout": one.session_timeout,
                "subscription": b64encode(one.subscription).decode(),
                "assignment": b64encode(one.assignment).decode(),
            }
            for one in value.members
        ]
        data = {
            "protocolType": value.protocol_type,
            "generation": value.generation,
            "protocol": value.protocol,
            "leader": value.leader,
            "currentStateTimestamp": value.current_state_timestamp,
            "members": members,
        }
        shown = {"version": version, "data": data}
    return {"key": {"type": 2, "data": {"group": change.group_id}}, "value": shown}


async def decoded(bootstrap: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return our reading of the topic's records in the format of Kafka's formatters: offsets, and classic groups."""
    offsets, groups = [], []
    async with Consumer(bootstrap_servers=bootstrap) as consumer:
        partitions = [TopicPartition("__consumer_offsets", number) for number in range(4)]
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        while any([await consumer.position(one) < ends[one] for one in partitions]):
            for records in (await consumer.poll(timeout_ms=100)).values():
                for record in records:
                    change = decode(record.key, record.value)
                    version = int.from_bytes((record.value or b"")[:2], "big")
                    if isinstance(change, OffsetChange) and change.key.group_id in WRITTEN:
                        offsets.append(offset_json(change, version))
                    elif isinstance(change, GroupChange) and change.group_id in WRITTEN:
                        groups.append(group_json(change, version))
    return offsets, groups


def in_order(records: list[dict[str, Any]]) -> list[str]:
    """Return the records sorted: the tool reads the partitions in any order."""
    return sorted(json.dumps(record, sort_keys=True) for record in records)


def shown(text: str) -> list[tuple[Any, ...]]:
    """Return the key and value of every record in a dump."""
    found: list[tuple[Any, ...]] = []
    for key, payload in re.findall(r"^\| offset: .* key: (\{.*\}) payload: (.*)$", text, re.MULTILINE):
        value = None if payload in ("<DELETE>", "null") else json.loads(payload)
        # Kafka's tool decodes the client's own metadata.
        for one in () if value is None else value["data"].get("members", ()):
            del one["subscription"], one["assignment"]
        found.append((json.loads(key), value))
    return found


@pytest.mark.parametrize("node", [ours, apache])
async def test_kafkas_tools_print_every_record_as_ours_do(node: Node, tmp_path: Path) -> None:
    """This compares Kafka's formatters of the console consumer, and the decoders of both dump tools."""
    jvm.require("mvn", "java")
    with node(tmp_path) as bootstrap:
        write_groups(bootstrap)
        offsets, groups = await decoded(bootstrap)
        assert in_order(formatted(bootstrap, "OffsetsMessageFormatter")) == in_order(offsets)
        assert in_order(formatted(bootstrap, "GroupMetadataMessageFormatter")) == in_order(groups)
    assert any(record["value"] is None for record in offsets), "there is a removed position"
    assert any(record["value"] is None for record in groups), "there is a removed group"
    metadata = [record["value"]["data"] for record in groups if record["value"]]
    assert {"one", "two", "removed", None} <= {m["groupInstanceId"] for data in metadata for m in data["members"]}

    files = [file for number in range(4) for file in segments(tmp_path / "data" / f"__consumer_offsets-{number}")]
    theirs = shown(kafkas_dump("--offsets-decoder", "--files", ",".join(files)))
    assert shown(our_dump("--offsets-decoder", *files)) == theirs
    assert {key["type"] for key, _ in theirs} == {"1", "2", "3", "5", "6", "7", "8"}


@pytest.mark.parametrize(("first", "second"), [(ours, apache), (apache, ours)], ids=["ours-first", "theirs-first"])
def test_groups_move_with_the_data_directory_and_back(first: Node, second: Node, tmp_path: Path) -> None:
    """States, members, assignments and offsets are equal; returning members get their partitions; deleted groups stay
    deleted.
    """
    jvm.require("mvn", "java")
    with first(tmp_path) as bootstrap:
        write_groups(bootstrap)
        before = seen(bootstrap)
    with second(tmp_path) as bootstrap:
        until(lambda: serves(bootstrap), "the coordinator has read its log")
        assert seen(bootstrap) == before
        for group, protocol in (("classic", "classic"), ("modern", "consumer")):
            members = [member(bootstrap, group, instance, protocol) for instance in ("one", "two")]
            together(members)
            mine = {one: sorted(p.partition for p in one.assignment()) for one in members}
            had = {instance: partitions for instance, _, _, partitions in before[group][3]}
            assert [mine[one] for one in members] == [had["one"], had["two"]]
            for one in members:
                one.commit(offsets=[at(p, 4) for p in mine[one]], asynchronous=False)
                one.close()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_consumer_groups(["by hand"])["by hand"].result(TIMEOUT)
        after = seen(bootstrap, without=("by hand",))
        assert [position[1] for position in after["classic"][4]] == [4] * PARTITIONS
    with first(tmp_path) as bootstrap:
        until(lambda: serves(bootstrap, without=("by hand",)), "the coordinator has read its log")
        assert seen(bootstrap, without=("by hand",)) == after
