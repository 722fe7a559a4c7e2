"""The reports of ``triokafka topics describe``: which partitions each of them prints."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from triokafka.cli.topics.describing import _as_json, _print
from triokafka.client.admin import ConfigEntry, ConfigSource, PartitionDescription, TopicDescription
from triokafka.structs import Node

NODES = {number: Node(number, "localhost", 9090 + number) for number in (1, 2, 3)}
CONFIGS = {"min.insync.replicas": ConfigEntry("min.insync.replicas", "2", ConfigSource.DEFAULT)}


def partition(number: int, leader: int | None, *isr: int) -> PartitionDescription:
    return PartitionDescription(number, None if leader is None else NODES[leader], 0, (1, 2, 3), isr, ())


TOPIC = TopicDescription(
    "t",
    uuid.UUID(int=1),
    False,
    (
        partition(0, 1, 1, 2, 3),
        partition(1, 1, 1, 2),
        partition(2, 1, 1),
        partition(3, None, 3),
        partition(4, None),
    ),
)


@pytest.mark.parametrize(
    ("report", "printed"),
    [
        (None, [0, 1, 2, 3, 4]),
        ("under_replicated", [1, 2, 3, 4]),
        ("unavailable", [3, 4]),
        ("under_min_isr", [2, 3, 4]),
        ("at_min_isr", [1]),
        ("with_overrides", []),
    ],
)
def test_report_prints_its_partitions(
    report: str | None, printed: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    _print(TOPIC, CONFIGS, report)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("\t")]
    assert [int(line.partition("Partition: ")[2].partition("\t")[0]) for line in lines] == printed
    document: dict[str, Any] = json.loads(json.dumps(_as_json(TOPIC, CONFIGS, report)))
    assert [one["partition"] for one in document["partitions"]] == printed


def test_partition_without_a_leader_is_printed_as_kafkas_tool_does(capsys: pytest.CaptureFixture[str]) -> None:
    _print(TOPIC, CONFIGS, "unavailable")
    assert capsys.readouterr().out.splitlines()[0] == (
        "\tTopic: t\tPartition: 3\tLeader: none\tReplicas: 1,2,3\tIsr: 3\tElr: N/A\tLastKnownElr: N/A"
    )
