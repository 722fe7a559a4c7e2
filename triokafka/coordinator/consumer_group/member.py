"""One member of a consumer group: what it said about itself, and how far it has come towards what it is to own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

JOINING: Final = 0
"""Member epoch of one that has nothing yet, or starts anew."""
LEAVING: Final = -1
"""Member epoch in the last heartbeat of one that goes for good."""
LEAVING_FOR_NOW: Final = -2
"""Member epoch of a static member that is away and will come back."""

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Numbers of partitions by topic id; no topic is there without a partition."""

NO_PARTITIONS: Final[Partitions] = {}


def partitions_of(pairs: Iterable[tuple[UUID, Iterable[int]]]) -> Partitions:
    """Collect partitions by topic; a topic that is named twice gets the partitions of both."""
    found: dict[UUID, set[int]] = {}
    for topic_id, numbers in pairs:
        known = found.get(topic_id)
        if known is None:
            found[topic_id] = set(numbers)
        else:
            known.update(numbers)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items() if numbers}


class MemberState(IntEnum):
    """Where a member stands, as it is stored."""

    STABLE = 0
    """It owns what it is to own."""
    UNREVOKED_PARTITIONS = 1
    """It has been told to give up partitions, and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others still own."""
    UNKNOWN = 127
    """Written by a newer coordinator: the member must start anew."""


class ClassicTraits(NamedTuple):
    """Of a member that still speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each protocol that it offers, the one it likes best first."""


class MemberProfile(NamedTuple):
    """What a member said about itself.

    ``topic_names`` are the topics that it wants by name, ``pattern`` those that it wants by regular expression (empty
    for none). ``rebalance_timeout_ms`` is how long it may take to give up partitions.
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

    def wants_the_same(self, other: MemberProfile) -> bool:
        """Whether both ask for the same topics, so that one in the place of the other changes no assignment."""
        return self.topic_names == other.topic_names and self.pattern == other.pattern


class Progress(NamedTuple):
    """How far a member has come: its epoch, what it owns, and what it still has to give up.

    ``assigned`` maps topic id to partition to the member's epoch when it got that partition: a commit of an older epoch
    is still the owner's when it is no older than that (KIP-1251). ``epoch`` is expected in its next heartbeat;
    ``previous_epoch`` is taken as well, since the answer with the new one may have been lost.
    """

    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Mapping[UUID, Mapping[int, int]] = MappingProxyType({})
    revoking: Mapping[UUID, Mapping[int, int]] = MappingProxyType({})

    @property
    def assigned_partitions(self) -> Partitions:
        """What it may use."""
        return {topic_id: frozenset(numbers) for topic_id, numbers in self.assigned.items()}

    def held(self) -> Iterable[tuple[UUID, int]]:
        """Every partition that nobody else may have yet: what it owns, and what it has not given up."""
        for partitions in (self.assigned, self.revoking):
            for topic_id, numbers in partitions.items():
                for number in numbers:
                    yield topic_id, number

    @property
    def held_partitions(self) -> Partitions:
        """The same by topic."""
        return partitions_of((topic_id, (number,)) for topic_id, number in self.held())

    def is_at(self, epoch: int) -> bool:
        """Whether it owns exactly what it is to own under this epoch's assignment."""
        return self.state is MemberState.STABLE and self.epoch == epoch
