"""The members of a group under either protocol, and early expiry of a session; for tests and tools."""

from __future__ import annotations

from typing import NamedTuple

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.consumer_group import timers
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.runtime.timer_queue import TimerKey
from triokafka.errors import UnknownMemberIdError


class KnownMember(NamedTuple):
    """A member as the coordinator knows it; ``instance_id`` is None for a dynamic member."""

    member_id: str
    client_id: str
    instance_id: str | None


def known_members(shard: GroupShard, group_id: str) -> list[KnownMember]:
    """Return the members of a group, sorted by member id."""
    classic, consumer = shard.groups.get(group_id), shard.consumer_groups.get(group_id)
    found = []
    if classic is not None:
        found = [KnownMember(m.member_id, m.client_id, m.instance_id) for m in classic.members.values()]
    elif consumer is not None:
        found = [KnownMember(name, p.client_id, p.instance_id) for name, p in consumer.profiles.items()]
    return sorted(found, key=lambda member: member.member_id)


def end_session(shard: GroupShard, group_id: str, member_id: str, effects: GroupEffects) -> None:
    """Move the member's session deadline to now; the session timer then fires as usual.

    Raises:
        UnknownMemberIdError: the group has no such member.
    """
    for kind in (rebalance.SESSION, timers.SESSION):
        key = TimerKey(kind, group_id, member_id)
        if key in effects.timers:
            effects.timers.schedule(key, effects.at.now)
            return
    raise UnknownMemberIdError(f"group {group_id!r} has no member {member_id!r}")
