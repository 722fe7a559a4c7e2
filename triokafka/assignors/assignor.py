"""What an assignor is: the strategy by which the leader of a group deals partitions to members.

Lives here: the interface, its value types, the order of members, and how the option
``partition_assignment_strategy`` is turned into objects. An assignor never talks to a broker and never sees a clock.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from triokafka.errors import ConfigurationError, IllegalStateError
from triokafka.structs import TopicPartition

ENTRY_POINT_GROUP = "triokafka.assignors"


class MemberSubscription(NamedTuple):
    """What one member said when it joined.

    ``owned_partitions`` is what it held then (empty under the eager protocol), ``generation`` the generation in which
    it got them (-1 unknown); ``user_data`` belongs to the assignor.
    """

    topics: Collection[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    group_instance_id: str | None = None
    generation: int = -1
    rack_id: str | None = None


class Assignment(NamedTuple):
    """What one member gets: its partitions, and the assignor's own data for it."""

    partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None


Members = Mapping[str, MemberSubscription]
"""Member id to subscription."""

PartitionRacks = Mapping[str, Sequence[frozenset[str]]]
"""Topic to the racks of the replicas of each of its partitions, by number; what is missing is in no known rack."""

NO_RACKS: Final[PartitionRacks] = MappingProxyType({})


class PartitionAssignor(ABC):
    """A strategy under its wire name. Give an instance, the class, or the name of an entry point in
    ``triokafka.assignors`` as ``partition_assignment_strategy``.

    One instance serves one consumer, so it may remember its own assignment; `assign` runs at the leader alone and must
    give the same result for the same arguments wherever it runs.
    """

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False
    """Whether members keep what they hold while they rejoin (KIP-429)."""

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Bytes to send along with the subscription when joining."""
        return None

    @abstractmethod
    def assign(
        self, members: Members, partitions: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> dict[str, Assignment]:
        """Deal out all partitions.

        Runs in a thread where there is much to deal; no other method is called meanwhile. A consumer that is closed
        does not wait for it.

        Args:
            members: every member of the group with its subscription.
            partitions: topic to number of partitions; topics that do not exist are missing.
            racks: where the partitions' replicas are, as far as brokers say (KIP-881); empty when no member says in
                which rack it is itself.

        Returns:
            One entry for each member, possibly without partitions.
        """

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Note that this member got ``assignment`` in ``generation``. Nothing to note by default."""
        return


def check_dealt(assignor: PartitionAssignor, members: Members, dealt: Mapping[str, Assignment]) -> None:
    """See that an assignor kept its promises: what it got wrong would be read by two members at a time, or by none.

    Raises:
        IllegalStateError: it left members out, gave a partition to two, or, if it is cooperative, gave one away that
            another member still holds.
    """
    problem = f"assignor {assignor.name!r}"
    if missing := sorted(set(members).difference(dealt)):
        raise IllegalStateError(f"{problem} returned nothing for the members {missing}")
    if strangers := sorted(set(dealt).difference(members)):
        raise IllegalStateError(f"{problem} returned shares for {strangers}, which are not in the group")
    owners: dict[TopicPartition, str] = {}
    for member_id, assignment in dealt.items():
        for partition in assignment.partitions:
            if owners.setdefault(partition, member_id) != member_id:
                raise IllegalStateError(f"{problem} gave {partition} to {owners[partition]!r} and to {member_id!r}")
    if not assignor.cooperative:
        return
    for member_id, member in members.items():
        for partition in member.owned_partitions:
            owner = owners.get(partition, member_id)
            # Two may say that they hold it; then one of them is not up to date.
            if owner != member_id and partition not in members[owner].owned_partitions:
                raise IllegalStateError(
                    f"{problem} is cooperative, but gave {partition} to {owner!r} before {member_id!r} has given it up"
                )


Strategy = PartitionAssignor | type[PartitionAssignor] | str


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does (by UTF-16 code unit), so that leaders in both languages agree."""
    return text.encode("utf-16-be", "surrogatepass")


def in_member_order(members: Members) -> list[str]:
    """Member ids in the order of dealing: static members by instance id, then the rest by member id."""

    def key(member_id: str) -> tuple[bool, bytes]:
        instance = members[member_id].group_instance_id
        return (True, java_order(member_id)) if instance is None else (False, java_order(instance))

    return sorted(members, key=key)


def subscribers(members: Members, partitions: Mapping[str, int]) -> dict[str, list[str]]:
    """Topic to the members subscribed to it, both in order; topics without partitions or subscribers are left out."""
    found: dict[str, list[str]] = {}
    for member_id in in_member_order(members):
        for topic in dict.fromkeys(members[member_id].topics):
            if partitions.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member_id)
    return {topic: found[topic] for topic in sorted(found, key=java_order)}


def resolve_assignors(
    strategies: PartitionAssignor
    | type[PartitionAssignor]
    | str
    | Iterable[PartitionAssignor | type[PartitionAssignor] | str],
) -> list[PartitionAssignor]:
    """Turn the option ``partition_assignment_strategy`` into assignors, in order of preference.

    Each is a `PartitionAssignor`, a subclass of it, one of the built-in names, a Java class name of one of those, or
    the name of an entry point in the group ``triokafka.assignors``.

    Raises:
        ConfigurationError: an unknown name, two strategies of one name, or none at all.
    """
    if isinstance(strategies, str):
        wanted: list[Strategy] = [part.strip() for part in strategies.split(",") if part.strip()]
    elif isinstance(strategies, (PartitionAssignor, type)):
        wanted = [strategies]
    else:
        wanted = list(strategies)
    found = [_resolve(strategy) for strategy in wanted]
    names = [assignor.name for assignor in found]
    if not found:
        raise ConfigurationError("partition_assignment_strategy: give at least one assignor")
    if len(set(names)) != len(names):
        raise ConfigurationError(f"partition_assignment_strategy: two assignors have the same name in {names}")
    return found


def _resolve(strategy: Strategy) -> PartitionAssignor:
    if isinstance(strategy, PartitionAssignor):
        return strategy
    if isinstance(strategy, type) and issubclass(strategy, PartitionAssignor):
        return strategy()
    if not isinstance(strategy, str):
        raise ConfigurationError(f"partition_assignment_strategy: {strategy!r} is neither a name nor an assignor")
    from triokafka.assignors import BUILT_IN, JAVA_NAMES

    built_in = BUILT_IN.get(JAVA_NAMES.get(strategy, strategy))
    if built_in is not None:
        return built_in()
    from importlib.metadata import entry_points

    plugged_in = entry_points(group=ENTRY_POINT_GROUP)
    for entry_point in plugged_in.select(name=strategy):
        try:
            plugged: object = entry_point.load()
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"entry point {strategy!r} in {ENTRY_POINT_GROUP} cannot be loaded from {entry_point.value!r}: {error}"
            ) from error
        if isinstance(plugged, PartitionAssignor):
            try:
                return copy.deepcopy(plugged)  # each consumer has its own, which may remember what it was given
            except Exception as error:
                raise ConfigurationError(
                    f"entry point {strategy!r} in {ENTRY_POINT_GROUP} is an object that cannot be copied for each"
                    f" consumer: {error}. Let it name the class instead"
                ) from error
        if isinstance(plugged, type) and issubclass(plugged, PartitionAssignor):
            return plugged()
        raise ConfigurationError(f"entry point {strategy!r} in {ENTRY_POINT_GROUP} is {plugged!r}, not an assignor")
    import difflib

    known = list(dict.fromkeys((*BUILT_IN, *plugged_in.names)))
    near = difflib.get_close_matches(strategy, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    raise ConfigurationError(f"partition_assignment_strategy: there is no assignor {strategy!r}; {hint}")
