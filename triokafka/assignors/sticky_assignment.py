"""Balanced assignment in which members keep their partitions. Pure functions, shared by both sticky assignors."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from triokafka.assignors.assignor import NO_RACKS, Members, PartitionRacks, in_member_order, java_order, subscribers
from triokafka.assignors.exchange import Exchange
from triokafka.assignors.sharing import Shares
from triokafka.structs import TopicPartition

Claims = Mapping[str, tuple[int, Iterable[TopicPartition]]]
"""Generation and owned partitions by member id."""


def settle_claims(claims: Claims) -> dict[TopicPartition, str]:
    """Return the last owner of each partition. The newest generation wins; two claims of the same generation cancel
    each other, because neither is credible."""
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (generation, partitions) in claims.items():
        for partition in partitions:
            known = newest.get(partition)
            if known is None or generation > known[0]:
                newest[partition] = (generation, member_id)
            elif generation == known[0] and known[1] != member_id:
                newest[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in newest.items() if owner is not None}


def assign_sticky(
    members: Members,
    partitions: Mapping[str, int],
    owners: Mapping[TopicPartition, str],
    racks: PartitionRacks = NO_RACKS,
) -> dict[str, list[TopicPartition]]:
    """Assign all partitions as evenly as the subscriptions allow. Among equally even assignments, choose one with the
    most partitions in the rack of their member, and among those one with the fewest moved partitions.

    With equal subscriptions, counts differ by at most one. With different ones, no chain of moves is more even.

    Args:
        members: all members with their subscriptions.
        partitions: the number of partitions per topic.
        owners: the previous owners; see `settle_claims`.
        racks: the racks of the replicas. They take precedence over previous owners, as in Kafka (KIP-881).
    """
    consumers = subscribers(members, partitions)
    in_racks = bool(racks) and any(member.rack_id for member in members.values())
    if not in_racks and all(len(found) == len(members) for found in consumers.values()):
        return _assign_by_quota(members, consumers, partitions, owners)
    shares = Shares(members, partitions, owners, racks)
    shares.assign_evenly()
    Exchange(shares).run()
    return shares.assigned()


def _assign_by_quota(
    members: Members, topics: Iterable[str], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> dict[str, list[TopicPartition]]:
    """Assign by quota, when every member may have any partition and racks do not matter."""
    kept: dict[str, list[TopicPartition]] = {member_id: [] for member_id in in_member_order(members)}
    fresh: list[TopicPartition] = []
    for topic in topics:
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition)
            if owner in kept:
                kept[owner].append(partition)
            else:
                fresh.append(partition)
    total = len(fresh) + sum(map(len, kept.values()))
    low, over = divmod(total, len(kept)) if kept else (0, 0)
    assigned: dict[str, list[TopicPartition]] = {}
    for member_id, held in kept.items():
        quota = low
        if over and len(held) > low:
            quota, over = low + 1, over - 1
        assigned[member_id] = held[:quota]
        fresh.extend(held[quota:])
    fresh.sort(key=lambda partition: (java_order(partition.topic), partition.partition))
    # The member with the fewest partitions first, in rounds, which spreads the partitions of one topic.
    heap = [(len(held), position, member_id) for position, (member_id, held) in enumerate(assigned.items())]
    heapq.heapify(heap)
    for partition in fresh:
        count, position, member_id = heap[0]
        assigned[member_id].append(partition)
        heapq.heapreplace(heap, (count + 1, position, member_id))
    return assigned
