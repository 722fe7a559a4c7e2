"""The two sticky assignors: balanced assignments that move few partitions. They differ in how members report ownership.

Under ``sticky`` (eager), a member revokes all partitions before it joins and reports its last ones in its user data.
Under ``cooperative-sticky``, it keeps its partitions while it joins. A partition that moves is left unassigned first,
so that its owner revokes it, and is assigned in the next rebalance (KIP-429).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from triokafka.assignors.assignor import NO_RACKS, Assignment, Members, PartitionAssignor, PartitionRacks
from triokafka.assignors.sticky_assignment import assign_sticky, settle_claims
from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, Struct, field
from triokafka.protocol.primitives import Array, Int32, String
from triokafka.structs import TopicPartition

_NO_GENERATION = -1


class PreviousTopic(Struct):
    """Partitions of one topic."""

    topic: str = field(String, doc="Name of the topic.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions that the member held.")


class StickyUserData(Message, versions="0-1"):
    """User data of a ``sticky`` member. The bytes carry no version: Java tries version 1, then 0."""

    previous_assignment: list[PreviousTopic] = field(Array(PreviousTopic), doc="The member's last partitions.")
    generation: int = field(
        Int32, versions="1+", default=_NO_GENERATION, doc="The generation of that assignment; -1 unknown."
    )


class CooperativeUserData(Message, versions="0-0"):
    """User data of a ``cooperative-sticky`` member; its owned partitions are in the subscription."""

    generation: int = field(Int32, default=_NO_GENERATION, doc="The generation in which it received its partitions.")


def _held_before(data: bytes | None) -> tuple[int, list[TopicPartition]]:
    if not data:
        return _NO_GENERATION, []
    for version in (1, 0):
        try:
            message = StickyUserData.decode(data, version)
        except ProtocolError:
            continue
        held = [TopicPartition(t.topic, number) for t in message.previous_assignment for number in t.partitions]
        return message.generation, held
    return _NO_GENERATION, []


class StickyAssignor(PartitionAssignor):
    """Balanced and sticky, for the eager protocol (protocol name ``sticky``)."""

    name: ClassVar[str] = "sticky"

    def __init__(self) -> None:
        self._held: Sequence[TopicPartition] | None = None
        self._generation = _NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return this member's last assignment and its generation; None before the first assignment."""
        if self._held is None:
            return None
        held: dict[str, PreviousTopic] = {}
        for topic, number in self._held:
            held.setdefault(topic, PreviousTopic(topic=topic)).partitions.append(number)
        return StickyUserData(previous_assignment=list(held.values()), generation=self._generation).encode(1)

    def assign(
        self, members: Members, partitions: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> dict[str, Assignment]:
        """Assign as `assign_sticky` does."""
        owners = settle_claims({member_id: _held_before(member.user_data) for member_id, member in members.items()})
        assigned = assign_sticky(members, partitions, owners, racks)
        return {member_id: Assignment(got) for member_id, got in assigned.items()}

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remember the assignment for the next join."""
        self._held = tuple(assignment.partitions)
        self._generation = generation


def _generation_in(data: bytes | None) -> int:
    if not data:
        return _NO_GENERATION
    try:
        return CooperativeUserData.decode(data, 0).generation
    except ProtocolError:
        return _NO_GENERATION


class CooperativeStickyAssignor(PartitionAssignor):
    """Balanced and sticky, for the cooperative protocol (protocol name ``cooperative-sticky``)."""

    name: ClassVar[str] = "cooperative-sticky"
    cooperative: ClassVar[bool] = True

    def __init__(self) -> None:
        self._generation = _NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the generation of the owned partitions."""
        return CooperativeUserData(generation=self._generation).encode(0)

    def assign(
        self, members: Members, partitions: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> dict[str, Assignment]:
        """Assign as `assign_sticky` does, without partitions that another member still owns."""
        claims = {
            member_id: (max(member.generation, _generation_in(member.user_data)), member.owned_partitions)
            for member_id, member in members.items()
        }
        assigned = assign_sticky(members, partitions, settle_claims(claims), racks)
        # Every member that claims a partition must revoke it first, even if its claim is outdated.
        holders: dict[TopicPartition, set[str]] = {}
        for member_id, (_, held) in claims.items():
            for partition in held:
                holders.setdefault(partition, set()).add(member_id)
        return {
            member_id: Assignment([partition for partition in got if not holders.get(partition, set()) - {member_id}])
            for member_id, got in assigned.items()
        }

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remember the generation for the next join."""
        self._generation = generation
