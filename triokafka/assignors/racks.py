"""The racks of members and of partition replicas, and whether they affect an assignment (KIP-881). Pure functions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from triokafka.assignors.assignor import Members, PartitionRacks

_NOWHERE: Final = frozenset[str]()


def racks_of_members(members: Members) -> dict[str, str]:
    """Return the rack by member id, for members that have one."""
    return {member_id: member.rack_id for member_id, member in members.items() if member.rack_id}


def racks_of_topic(racks: PartitionRacks, topic: str, count: int) -> list[frozenset[str]]:
    """Return the racks of the replicas of each of the topic's ``count`` partitions."""
    known = list(racks.get(topic, ()))[:count]
    return known + [_NOWHERE] * (count - len(known))


def racks_matter(of_members: Collection[str], of_partitions: Collection[frozenset[str]]) -> bool:
    """Whether racks affect the assignment: some member must share a rack with a replica, and some partition must lack a
    replica in some rack."""
    everywhere = _NOWHERE.union(*of_partitions)
    return not everywhere.isdisjoint(of_members) and any(racks != everywhere for racks in of_partitions)
