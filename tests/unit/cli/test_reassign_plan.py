from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from triokafka.cli.reassign import plan
from triokafka.cli.reassign.plan import Moving
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def read(path: Path, document: object) -> plan.Plan:
    path.write_text(json.dumps(document))
    return plan.read_plan(str(path), "--file")


def test_printed_plan_is_read_back(tmp_path: Path) -> None:
    wanted = {T0: [1, 2], T1: [2, 3]}
    assert read(tmp_path / "p", json.loads(plan.plan_json(wanted))) == plan.Plan(wanted, {})


def test_directories_other_than_any_are_moves(tmp_path: Path) -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}
    assert read(tmp_path / "p", {"version": 1, "partitions": [entry]}).directories == {(T0, 2): "/d"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"topic": "t", "partition": 0, "replicas": []}, "must be a list of broker ids"),
        ({"topic": "t", "partition": 0, "replicas": [1, 1]}, "name a broker twice"),
        ({"topic": "t", "partition": -1, "replicas": [1]}, "not negative"),
        ({"partition": 0, "replicas": [1]}, '"topic" must be a string'),
        ({"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any", "any"]}, "1 replicas and 2"),
        ({"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["here"]}, "absolute paths"),
    ],
)
def test_invalid_entries_are_refused_with_their_place(tmp_path: Path, entry: object, words: str) -> None:
    with pytest.raises(click.UsageError, match=f"entry 0 of partitions: .*{words}"):
        read(tmp_path / "p", {"version": 1, "partitions": [entry]})


def test_other_versions_empty_and_repeated_plans_are_refused(tmp_path: Path) -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [1]}
    for document, words in (
        ({"version": 2, "partitions": [entry]}, "only version 1"),
        ({"version": 1, "partitions": []}, "at least one entry"),
        ({"version": 1, "partitions": [entry, entry]}, "t-0 more than once"),
        ([], "a JSON object"),
    ):
        with pytest.raises(click.UsageError, match=words):
            read(tmp_path / "p", document)


def test_only_partitions_at_rest_differ_from_a_plan() -> None:
    assert plan.differs({T0: [1, 2]}, {T0: Moving((1, 3))})
    assert plan.differs({T0: [1, 2]}, {T0: Moving((2, 1))})
    assert not plan.differs({T0: [1, 2], T1: [5]}, {T0: Moving((1, 2, 3), (), (3,))})
    assert not plan.differs({T0: [1, 2]}, {T0: Moving((1, 2))})


def test_progress_is_reported_for_every_partition() -> None:
    states = {T0: Moving((1, 2, 3), (3,), (1,)), T1: Moving((2, 3))}
    lines, in_progress = plan.verify({T0: [2, 3], T1: [2, 3], TopicPartition("u", 0): [1]}, states)
    assert in_progress
    assert [line.split(" is ")[1] for line in lines] == [
        "still in progress.",
        "completed.",
        "impossible: the partition does not exist.",
    ]
    lines, in_progress = plan.verify({T1: [3, 2]}, states)
    assert not in_progress and "replica set is 2,3 rather than 3,2" in lines[0]


def test_throttles_hold_sources_as_leaders_and_new_replicas_as_followers() -> None:
    states = {T0: Moving((1, 2)), T1: Moving((2, 3))}
    wanted = {T0: [2, 3], T1: [3, 2]}
    assert plan.throttled_replicas(wanted, states) == {
        "t": {plan.LEADER_REPLICAS: "0:1,0:2", plan.FOLLOWER_REPLICAS: "0:3"}
    }
    assert plan.throttled_brokers(wanted, states) == [1, 2, 3]


def test_proposal_spreads_leaders_and_keeps_the_factor_and_the_racks_apart() -> None:
    current = {TopicPartition("t", number): (1, 2) for number in range(6)}
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    proposed = plan.propose(current, [1, 2, 3, 4], racks, lambda below: 0)
    assert all(len({racks[broker] for broker in replicas}) == 2 for replicas in proposed.values())
    assert {replicas[0] for replicas in proposed.values()} == {1, 2, 3, 4}
    with pytest.raises(click.UsageError, match="has 2 replicas"):
        plan.propose(current, [1], None, lambda below: 0)
