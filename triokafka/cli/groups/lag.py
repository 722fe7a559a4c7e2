"""Committed offsets, log end offsets and lag of groups, by partition and member.

It uses the admin client and never joins a group, so it never triggers a rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import GroupDescription, MemberDescription
    from triokafka.structs import OffsetAndMetadata, TopicPartition

_DEAD: Final = "Dead"
_EMPTY: Final = "Empty"
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_NAMED: Final = 5


class GroupPosition(NamedTuple):
    """A group's partition. ``committed`` is None without a commit, ``log_end_offset`` if it could not be fetched."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    log_end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the log end offset; None if one of them is unknown."""
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset


class Found(NamedTuple):
    """Results by group, and the errors of the groups without a result."""

    groups: dict[str, GroupDescription]
    errors: dict[str, Exception]


async def describe_all(admin: AdminClient, names: Iterable[str]) -> Found:
    """Describe consumer groups; other groups and missing groups are errors."""
    from triokafka.errors import GroupIdNotFoundError, KafkaError

    asked = list(names)
    described = await admin.describe_groups(asked)
    groups: dict[str, GroupDescription] = {}
    errors: dict[str, Exception] = {}
    for name in asked:
        error = described.errors.get(name)
        if isinstance(error, GroupIdNotFoundError) or (error is None and described[name].state == _DEAD):
            errors[name] = GroupIdNotFoundError(f"consumer group {name!r} does not exist")
        elif error is not None:
            errors[name] = error
        elif described[name].protocol_type not in ("consumer", ""):
            protocol = described[name].protocol_type
            errors[name] = KafkaError(f"group {name!r} is not a consumer group; its protocol type is {protocol!r}")
        else:
            groups[name] = described[name]
    return Found(groups, errors)


def remarks(groups: Iterable[GroupDescription]) -> list[str]:
    """Return notes on empty and rebalancing groups: at most two sentences for any number of groups."""
    shown = list(groups)
    empty = [group.group_id for group in shown if group.state == _EMPTY]
    moving = [f"{group.group_id} ({group.state})" for group in shown if group.state in _REBALANCING]
    found = []
    if empty:
        found.append(f"{named('group', empty)} {'has' if len(empty) == 1 else 'have'} no members now.")
    if moving:
        verb = "is" if len(moving) == 1 else "are"
        found.append(f"{named('group', moving)} {verb} rebalancing: assignments are about to change.")
    return found


def named(noun: str, names: list[str]) -> str:
    """Return ``group a``, ``groups a, b``, or the first names and the number of the others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{noun if len(names) == 1 else f'{noun}s'} {', '.join(names[:_NAMED])}{more}"


async def positions_of(
    admin: AdminClient, groups: Mapping[str, GroupDescription], patience_ms: float
) -> tuple[dict[str, list[GroupPosition]], dict[str, Exception], dict[TopicPartition, Exception]]:
    """Return positions, the groups whose offsets could not be fetched, and the partitions without an end offset.

    Assigned partitions come first, ordered by the number of partitions of their member, descending; then those with a
    committed offset and no member. ``patience_ms`` limits the wait for leaders.
    """
    committed = await admin.list_offsets_of_groups(groups)
    known = {name: committed[name] for name in groups if name not in committed.errors}
    wanted = {partition for offsets in known.values() for partition in offsets}
    wanted |= {tp for name in known for member in groups[name].members for tp in member.assignment}
    ends = await admin.list_offsets(dict.fromkeys(sorted(wanted), "latest"), timeout_ms=patience_ms)

    def position(name: str, partition: TopicPartition, member: MemberDescription | None) -> GroupPosition:
        end = None if partition in ends.errors else ends[partition].offset
        return GroupPosition(partition, known[name].get(partition), end, member)

    found = {}
    for name in known:
        members = sorted(groups[name].members, key=lambda member: (-len(member.assignment), member.member_id))
        rows = [position(name, tp, member) for member in members for tp in sorted(member.assignment)]
        taken = {row.partition for row in rows}
        rows += [position(name, tp, None) for tp in sorted(known[name]) if tp not in taken]
        found[name] = rows
    return found, committed.errors, ends.errors
