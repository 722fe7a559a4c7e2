"""Where members and the replicas of partitions are, and whether that says anything about who had best read what
(KIP-881). Pure functions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from triokafka.assignors.assignor import Members, PartitionRacks

_NOWHERE: Final = frozenset[str]()


def racks_of_members(members: Members) -> dict[str, str]:
    """Member id to rack, of those members that say one."""
    return {member_id: member.rack_id for member_id, member in members.items() if member.rack_id}


def racks_of_topic(racks: PartitionRacks, topic: str, count: int) -> list[frozenset[str]]:
    """Where the replicas of each of ``count`` partitions are."""
    known = list(racks.get(topic, ()))[:count]
    return known + [_NOWHERE] * (count - len(known))


def racks_matter(of_members: Collection[str], of_partitions: Collection[frozenset[str]]) -> bool:
    """Whether it makes a difference who reads what: not where no member is in a rack with a replica, nor where every
    partition has a replica in every rack that there is."""
    everywhere = _NOWHERE.union(*of_partitions)
    return not everywhere.isdisjoint(of_members) and any(racks != everywhere for racks in of_partitions)
