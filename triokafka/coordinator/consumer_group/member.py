"""One member of a consumer group: the profile that it reported, and its reconciliation state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

JOINING: Final = 0
"""Member epoch of a member that joins or starts over."""
LEAVING: Final = -1
"""Member epoch in the last heartbeat of a member that leaves permanently."""
LEAVING_FOR_NOW: Final = -2
"""Member epoch of a static member that has left temporarily."""

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id. Every topic has at least one partition."""

NO_PARTITIONS: Final[Partitions] = {}


def partitions_of(pairs: Iterable[tuple[UUID, Iterable[int]]]) -> Partitions:
    """Collect partitions by topic, merging topics that occur more than once."""
    found: dict[UUID, set[int]] = {}
    for topic_id, numbers in pairs:
        known = found.get(topic_id)
        if known is None:
            found[topic_id] = set(numbers)
        else:
            known.update(numbers)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items() if numbers}


class MemberState(IntEnum):
    """Reconciliation state of a member, as stored."""

    STABLE = 0
    """The member owns its target."""
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions and has not reported that it did."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members still own."""
    UNKNOWN = 127
    """A newer coordinator wrote a state that this one does not know; the member must start over."""


class ClassicTraits(NamedTuple):
    """The traits of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each supported protocol, in the member's order of preference."""


class MemberProfile(NamedTuple):
    """The facts that a member reported about itself.

    ``topic_names`` are the topics that it subscribes to by name, ``pattern`` is its regular expression (empty for
    none). ``rebalance_timeout_ms`` is the time that it may take to revoke partitions.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    pattern: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicTraits | None = None

    def has_same_subscription(self, other: MemberProfile) -> bool:
        """Whether both profiles have the same subscription, so that replacing one changes no assignment."""
        return self.topic_names == other.topic_names and self.pattern == other.pattern


class MemberProgress(NamedTuple):
    """A member's reconciliation state: its epoch, the partitions that it owns, and those that it must revoke.

    ``assigned`` maps topic id to partition to the member's epoch when it received the partition. A commit from an
    older epoch is valid if that epoch is not before this one (KIP-1251). The next heartbeat must carry ``epoch``;
    ``previous_epoch`` is accepted as well, because the response with the new epoch may have been lost.
    """

    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Mapping[UUID, Mapping[int, int]] = MappingProxyType({})
    revoking: Mapping[UUID, Mapping[int, int]] = MappingProxyType({})

    @property
    def assigned_partitions(self) -> Partitions:
        """The partitions that the member may use."""
        return {topic_id: frozenset(numbers) for topic_id, numbers in self.assigned.items()}

    def held(self) -> Iterable[tuple[UUID, int]]:
        """Iterate over the partitions that no other member may own yet: the assigned and the unrevoked ones."""
        for partitions in (self.assigned, self.revoking):
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    yield topic_id, number

    @property
    def held_partitions(self) -> Partitions:
        """The partitions of `held`, by topic."""
        return partitions_of((topic_id, (number,)) for topic_id, number in self.held())

    def is_at(self, epoch: int) -> bool:
        """Whether the member owns exactly its target of ``epoch``."""
        return self.state is MemberState.STABLE and self.epoch == epoch
