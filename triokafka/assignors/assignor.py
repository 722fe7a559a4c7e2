"""The assignor interface: the strategy with which a group's leader assigns partitions to members.

Also here: its value types and the order of members. An assignor does not talk to brokers and does not read a clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from triokafka.errors import IllegalStateError
from triokafka.structs import TopicPartition


class MemberSubscription(NamedTuple):
    """The subscription that one member sent with its JoinGroup.

    ``owned_partitions`` are the partitions that the member owned then (empty under the eager protocol) and
    ``generation`` is the generation in which it received them (-1: unknown). ``user_data`` belongs to the assignor.
    """

    topics: Collection[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    group_instance_id: str | None = None
    generation: int = -1
    rack_id: str | None = None


class Assignment(NamedTuple):
    """One member's partitions, and the assignor's user data for it."""

    partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None


Members = Mapping[str, MemberSubscription]
"""Subscriptions by member id."""

PartitionRacks = Mapping[str, Sequence[frozenset[str]]]
"""Per topic, the racks of each partition's replicas, by partition number. A missing entry means no known rack."""

NO_RACKS: Final[PartitionRacks] = MappingProxyType({})


class PartitionAssignor(ABC):
    """An assignment strategy under its protocol name. ``partition_assignment_strategy`` accepts an instance, the class,
    or the name of an entry point in the group ``triokafka.assignors``.

    One instance serves one consumer, so it may remember the consumer's own assignment. `assign` runs on the leader only
    and must return the same result for the same arguments on every member.
    """

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False
    """Whether members keep their partitions while they rejoin (KIP-429)."""

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the user data to send with the subscription. The default is None."""
        return None

    @abstractmethod
    def assign(
        self, members: Members, partitions: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> dict[str, Assignment]:
        """Assign all partitions.

        For large groups this runs in a thread; no other method is called meanwhile. A consumer that is closed does not
        wait for it.

        Args:
            members: all members of the group with their subscriptions.
            partitions: the number of partitions per topic; topics that do not exist are missing.
            racks: the racks of the partitions' replicas, as far as brokers report them (KIP-881); empty when no member
                has a rack.

        Returns:
            One entry per member, possibly without partitions.
        """

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Handle this member's assignment of ``generation``. The default does nothing."""
        return


def check_assignments(assignor: PartitionAssignor, members: Members, assignments: Mapping[str, Assignment]) -> None:
    """Check an assignor's result. A wrong one would let two members read a partition, or none.

    Raises:
        IllegalStateError: the assignor omitted members, returned unknown members, assigned a partition to two members,
            or is cooperative and assigned a partition that another member still owns.
    """
    problem = f"assignor {assignor.name!r}"
    if missing := sorted(set(members).difference(assignments)):
        raise IllegalStateError(f"{problem} returned no assignment for the members {missing}")
    if strangers := sorted(set(assignments).difference(members)):
        raise IllegalStateError(f"{problem} returned assignments for {strangers}, which are not members of the group")
    owners: dict[TopicPartition, str] = {}
    for member_id, assignment in assignments.items():
        for partition in assignment.partitions:
            if owners.setdefault(partition, member_id) != member_id:
                raise IllegalStateError(f"{problem} assigned {partition} to {owners[partition]!r} and to {member_id!r}")
    if not assignor.cooperative:
        return
    for member_id, member in members.items():
        for partition in member.owned_partitions:
            owner = owners.get(partition, member_id)
            # Two members may both report the partition as owned; then one of them is out of date.
            if owner != member_id and partition not in members[owner].owned_partitions:
                raise IllegalStateError(
                    f"{problem} is cooperative, but assigned {partition} to {owner!r} while {member_id!r} still owns it"
                )


def java_order(text: str) -> bytes:
    """Return a sort key with Java's string order (by UTF-16 code unit), so that Java leaders get the same result."""
    return text.encode("utf-16-be", "surrogatepass")


def in_member_order(members: Members) -> list[str]:
    """Return the member ids in assignment order: static members by instance id, then dynamic ones by member id."""

    def key(member_id: str) -> tuple[bool, bytes]:
        instance = members[member_id].group_instance_id
        return (True, java_order(member_id)) if instance is None else (False, java_order(instance))

    return sorted(members, key=key)


def subscribers(members: Members, partitions: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the subscribed members per topic, both in order; omits topics without partitions or subscribers."""
    found: dict[str, list[str]] = {}
    for member_id in in_member_order(members):
        for topic in dict.fromkeys(members[member_id].topics):
            if partitions.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member_id)
    return {topic: found[topic] for topic in sorted(found, key=java_order)}
