"""Plans of reassignments: Kafka's JSON, proposals, progress, and replication throttles. Pure.

A plan names the replicas of partitions, the preferred leader first, and optionally their log directories::

    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import click

from triokafka.cli.partition_files import entries, number, read_json, text
from triokafka.structs import TopicPartition

VERSION: Final = 1
ANY_DIRECTORY: Final = "any"

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

Assignment = Mapping[TopicPartition, Sequence[int]]


class Plan(NamedTuple):
    """The wanted replicas of partitions, and the directories of those that are to be in a certain one."""

    replicas: dict[TopicPartition, list[int]]
    directories: dict[tuple[TopicPartition, int], str]


class Moving(NamedTuple):
    """The state of a partition: its replicas, those that a reassignment adds, and those that it removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def active(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas at the end of the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


def _check_version(path: str, option: str, document: Mapping[str, Any]) -> None:
    version = document.get("version", VERSION)
    if version != VERSION:
        raise click.UsageError(f"{option}: {path} has version {version!r}; only version {VERSION} is known.")


def read_plan(path: str, option: str) -> Plan:
    """Read a plan from a file. Raises `click.UsageError` with the place of the problem."""
    document = read_json(path, option)
    _check_version(path, option, document)
    plan = Plan({}, {})
    for partition, replicas, directories in entries(path, option, document, "partitions", _read_entry):
        if partition in plan.replicas:
            raise click.UsageError(f"{option}: {path} names {partition} more than once.")
        plan.replicas[partition] = replicas
        for replica, directory in zip(replicas, directories, strict=True):
            if directory != ANY_DIRECTORY:
                plan.directories[partition, replica] = directory
    return plan


def _read_entry(entry: Mapping[str, Any]) -> tuple[TopicPartition, list[int], list[str]]:
    partition = TopicPartition(text(entry, "topic"), number(entry, "partition"))
    replicas = entry.get("replicas")
    if not isinstance(replicas, list) or not replicas or not all(type(replica) is int for replica in replicas):
        raise ValueError(f'"replicas" of {partition} must be a list of broker ids')
    if len(set(replicas)) < len(replicas):
        raise ValueError(f"the replicas of {partition} name a broker twice: {replicas}")
    directories = entry.get("log_dirs", [ANY_DIRECTORY] * len(replicas))
    if not isinstance(directories, list) or not all(type(directory) is str for directory in directories):
        raise ValueError(f'"log_dirs" of {partition} must be a list of paths or "{ANY_DIRECTORY}"')
    if len(directories) != len(replicas):
        raise ValueError(f'{partition} has {len(replicas)} replicas and {len(directories)} "log_dirs"')
    if any(directory != ANY_DIRECTORY and not directory.startswith("/") for directory in directories):
        raise ValueError(f'"log_dirs" of {partition} must be absolute paths or "{ANY_DIRECTORY}"')
    return partition, replicas, directories


def read_topics(path: str, option: str) -> list[str]:
    """Read ``{"topics": [{"topic": "foo"}], "version": 1}``."""
    document = read_json(path, option)
    _check_version(path, option, document)
    topics = entries(path, option, document, "topics", lambda entry: text(entry, "topic"))
    if len(set(topics)) < len(topics):
        raise click.UsageError(f"{option}: {path} names a topic more than once.")
    return topics


def plan_json(
    assignment: Assignment, directories: Mapping[tuple[TopicPartition, int], str] = MappingProxyType({})
) -> str:
    """Return an assignment as the JSON of a plan, in one line; replicas without a known directory may be in any."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [directories.get((partition, replica), ANY_DIRECTORY) for replica in replicas],
        }
        for partition, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def propose(
    current: Assignment, brokers: Sequence[int], racks: Mapping[int, str] | None, pick: Callable[[int], int]
) -> dict[TopicPartition, list[int]]:
    """Spread topics over brokers, evenly and over racks; every topic keeps the replication factor of partition 0.

    Raises:
        click.UsageError: a topic has more replicas than there are brokers.
    """
    from triokafka.broker_stub.controller.placement import assign_replicas

    proposed: dict[TopicPartition, list[int]] = {}
    for topic in sorted({partition.topic for partition in current}):
        numbers = sorted(partition.partition for partition in current if partition.topic == topic)
        factor = len(current[TopicPartition(topic, numbers[0])])
        if factor > len(brokers):
            raise click.UsageError(
                f"--broker-list has {len(brokers)} brokers; topic {topic} has {factor} replicas of each partition."
            )
        placed = assign_replicas(
            sorted(brokers), len(numbers), factor, start_index=pick(len(brokers)), shift=pick(len(brokers)), racks=racks
        )
        proposed |= {TopicPartition(topic, n): list(replicas) for n, replicas in zip(numbers, placed, strict=True)}
    return proposed


def verify(wanted: Assignment, states: Mapping[TopicPartition, Moving]) -> tuple[list[str], bool]:
    """Return a sentence about each partition of a plan, and whether one is still in progress."""
    lines, in_progress = [], False
    for partition, replicas in sorted(wanted.items()):
        state = states.get(partition)
        if state is None:
            lines.append(f"Reassignment of partition {partition} is impossible: the partition does not exist.")
        elif state.active:
            in_progress = True
            lines.append(f"Reassignment of partition {partition} is still in progress.")
        elif list(state.replicas) == list(replicas):
            lines.append(f"Reassignment of partition {partition} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{','.join(map(str, state.replicas))} rather than {','.join(map(str, replicas))}."
            )
    return lines, in_progress


def differs(wanted: Assignment, states: Mapping[TopicPartition, Moving]) -> bool:
    """Return whether a partition that no reassignment moves has other replicas than the plan."""
    return any(
        not state.active and [*state.replicas] != [*replicas]
        for partition, replicas in wanted.items()
        if (state := states.get(partition)) is not None
    )


def throttled_replicas(wanted: Assignment, states: Mapping[TopicPartition, Moving]) -> dict[str, dict[str, str]]:
    """Return the throttled replicas of each topic: the sources as leaders, the new replicas as followers."""
    leaders: dict[str, set[tuple[int, int]]] = {}
    followers: dict[str, set[tuple[int, int]]] = {}
    for partition, replicas in wanted.items():
        state = states[partition]
        sources = set(state.replicas) - set(state.adding)
        targets = set(replicas) - sources
        if targets:
            leaders.setdefault(partition.topic, set()).update((partition.partition, one) for one in sources)
            followers.setdefault(partition.topic, set()).update((partition.partition, one) for one in targets)
    return {
        topic: {LEADER_REPLICAS: _listed(leaders[topic]), FOLLOWER_REPLICAS: _listed(followers[topic])}
        for topic in sorted(leaders)
    }


def throttled_brokers(wanted: Assignment, states: Mapping[TopicPartition, Moving]) -> list[int]:
    """Return the brokers that send or receive data of a move."""
    found: set[int] = set()
    for partition, replicas in wanted.items():
        state = states[partition]
        if set(replicas) - (set(state.replicas) - set(state.adding)):
            found |= set(state.replicas) | set(replicas)
    return sorted(found)


def _listed(replicas: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{partition}:{broker}" for partition, broker in sorted(replicas))
