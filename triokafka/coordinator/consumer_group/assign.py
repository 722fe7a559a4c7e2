"""The target assignment: which member is to own which partition, computed by the coordinator (KIP-848).

The strategies are those of the classic protocol's assignors. `UNIFORM` deals all partitions evenly and leaves alone
what need not move; `RANGE` keeps partitions of equal numbers together where members want the same topics. As in Kafka
4, racks make no difference to either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from triokafka.assignors.assignor import Members, MemberSubscription
from triokafka.assignors.range import assign_range
from triokafka.assignors.stickiness import assign_sticky
from triokafka.coordinator.consumer_group.member import NO_PARTITIONS, Partitions, partitions_of
from triokafka.coordinator.topics import TopicsView
from triokafka.structs import TopicPartition

UNIFORM: Final = "uniform"
RANGE: Final = "range"


Strategy = Callable[[Members, Mapping[str, int], Mapping[TopicPartition, str]], Mapping[str, list[TopicPartition]]]


def _range(
    members: Members, partitions: Mapping[str, int], _owners: Mapping[TopicPartition, str]
) -> Mapping[str, list[TopicPartition]]:
    return assign_range(members, partitions)


STRATEGIES: Final[Mapping[str, Strategy]] = {UNIFORM: assign_sticky, RANGE: _range}
"""By the name that members ask for; the first is what a group gets of which no member asks for any."""


def compute_target(
    strategy: str,
    wanted: Mapping[str, tuple[str | None, frozenset[str]]],
    current: Mapping[str, Partitions],
    topics: TopicsView,
) -> dict[str, Partitions]:
    """What each member is to own.

    Args:
        strategy: a name in `STRATEGIES`.
        wanted: for each member its instance (None for a dynamic one) and the names of the topics that it wants.
        current: what each was to own up to now; it need not be of members only.
        topics: what topics there are.
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
    return partitions_of((ids[topic], (number,)) for topic, number in partitions if topic in ids)
