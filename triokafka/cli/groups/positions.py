"""Where groups are: their committed offsets beside the ends of the logs, by partition and member.

It asks as an admin client does and never joins a group, so that looking at one does not disturb it.
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


class Position(NamedTuple):
    """A partition of a group. ``committed`` is None without a commit, ``log_end_offset`` while it cannot be had."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    log_end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end of the log; None when one of them is not known."""
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset


class Found(NamedTuple):
    """What was asked for, by group, and why the rest is missing."""

    groups: dict[str, GroupDescription]
    errors: dict[str, Exception]


async def describe_all(admin: AdminClient, names: Iterable[str]) -> Found:
    """Describe groups of consumers; others, and those that do not exist, are errors."""
    from triokafka.errors import GroupIdNotFoundError, KafkaError

    asked = list(names)
    described = await admin.describe_groups(asked)
    groups: dict[str, GroupDescription] = {}
    errors: dict[str, Exception] = {}
    for name in asked:
        error = described.errors.get(name)
        if isinstance(error, GroupIdNotFoundError) or (error is None and described[name].state == _DEAD):
            errors[name] = GroupIdNotFoundError(f"there is no consumer group {name!r}")
        elif error is not None:
            errors[name] = error
        elif described[name].protocol_type not in ("consumer", ""):
            protocol = described[name].protocol_type
            errors[name] = KafkaError(f"group {name!r} is not one of consumers but of {protocol!r}")
        else:
            groups[name] = described[name]
    return Found(groups, errors)


def remarks(groups: Iterable[GroupDescription]) -> list[str]:
    """What one has to know to read what is shown of groups: at most two sentences, whatever their number."""
    shown = list(groups)
    empty = [group.group_id for group in shown if group.state == _EMPTY]
    moving = [f"{group.group_id} ({group.state})" for group in shown if group.state in _REBALANCING]
    found = []
    if empty:
        found.append(f"{named('group', empty)} {'has' if len(empty) == 1 else 'have'} no members now.")
    if moving:
        verb = "is" if len(moving) == 1 else "are"
        found.append(f"{named('group', moving)} {verb} rebalancing: who has what is about to change.")
    return found


def named(noun: str, names: list[str]) -> str:
    """``group a``, ``groups a, b``, or the first few and how many more."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{noun if len(names) == 1 else f'{noun}s'} {', '.join(names[:_NAMED])}{more}"


async def positions_of(
    admin: AdminClient, groups: Mapping[str, GroupDescription], patience_ms: float
) -> tuple[dict[str, list[Position]], dict[str, Exception], dict[TopicPartition, Exception]]:
    """The positions of groups; the groups whose offsets could not be had; the partitions without a known end.

    Partitions of members come first, those of the member with most of them before the others'; then those that have a
    committed offset and no member. ``patience_ms`` is how long to wait for leaders.
    """
    committed = await admin.list_offsets_of_groups(groups)
    known = {name: committed[name] for name in groups if name not in committed.errors}
    wanted = {partition for offsets in known.values() for partition in offsets}
    wanted |= {tp for name in known for member in groups[name].members for tp in member.assignment}
    ends = await admin.list_offsets(dict.fromkeys(sorted(wanted), "latest"), timeout_ms=patience_ms)

    def position(name: str, partition: TopicPartition, member: MemberDescription | None) -> Position:
        end = None if partition in ends.errors else ends[partition].offset
        return Position(partition, known[name].get(partition), end, member)

    found = {}
    for name in known:
        members = sorted(groups[name].members, key=lambda member: (-len(member.assignment), member.member_id))
        rows = [position(name, tp, member) for member in members for tp in sorted(member.assignment)]
        taken = {row.partition for row in rows}
        rows += [position(name, tp, None) for tp in sorted(known[name]) if tp not in taken]
        found[name] = rows
    return found, committed.errors, ends.errors
