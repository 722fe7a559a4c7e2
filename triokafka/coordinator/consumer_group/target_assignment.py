"""Computation of the target assignment of a consumer group (KIP-848).

The strategies are those of the classic assignors. `UNIFORM` distributes all partitions evenly and moves as few as
possible. `RANGE` co-locates partitions of equal number when members subscribe to the same topics. As in Kafka 4, both
ignore racks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from triokafka.assignors.assignor import Members, MemberSubscription
from triokafka.assignors.range import assign_range
from triokafka.assignors.stickiness import assign_sticky
from triokafka.coordinator.consumer_group.member import NO_PARTITIONS, Partitions
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.structs import TopicPartition, by_topic

UNIFORM: Final = "uniform"
RANGE: Final = "range"


Strategy = Callable[[Members, Mapping[str, int], Mapping[TopicPartition, str]], Mapping[str, list[TopicPartition]]]


def _range(
    members: Members, partitions: Mapping[str, int], _owners: Mapping[TopicPartition, str]
) -> Mapping[str, list[TopicPartition]]:
    return assign_range(members, partitions)


STRATEGIES: Final[Mapping[str, Strategy]] = {UNIFORM: assign_sticky, RANGE: _range}
"""Strategies by assignor name; the first is the default for groups whose members request none."""


def compute_target(
    strategy: str,
    wanted: Mapping[str, tuple[str | None, frozenset[str]]],
    current: Mapping[str, Partitions],
    topics: TopicsView,
) -> dict[str, Partitions]:
    """Return the target partitions of each member.

    Args:
        strategy: a name in `STRATEGIES`.
        wanted: per member, its instance id (None for a dynamic member) and the names of its subscribed topics.
        current: the previous target per member id; may include former members.
        topics: the current topic metadata.
    """
    members = {
        member_id: MemberSubscription(names, group_instance_id=instance)
        for member_id, (instance, names) in wanted.items()
    }
    names = frozenset[str]().union(*(names for _, names in wanted.values()))
    sizes = {name: topics.partition_count(name) for name in names}
    owners: dict[TopicPartition, str] = {}
    ids = {name: topic_id for name in names if (topic_id := topics.topic_id(name)) is not None}
    by_id = {topic_id: name for name, topic_id in ids.items()}
    for member_id, partitions in current.items():
        for topic_id, numbers in partitions.items():
            if topic_id in by_id:
                owners.update((TopicPartition(by_id[topic_id], number), member_id) for number in numbers)
    found = STRATEGIES[strategy](members, sizes, owners)
    return {member_id: _by_id(found.get(member_id, ()), ids) for member_id in wanted}


def _by_id(partitions: list[TopicPartition] | tuple[()], ids: Mapping[str, UUID]) -> Partitions:
    if not partitions:
        return NO_PARTITIONS
    return {ids[topic]: frozenset(found) for topic, found in by_topic(partitions).items() if topic in ids}
