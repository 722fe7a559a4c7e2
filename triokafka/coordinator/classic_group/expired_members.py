"""Removal of classic members whose session has expired."""

from __future__ import annotations

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.records import GroupEffects


def session_over(group: ClassicGroup, member_id: str, config: GroupCoordinatorConfig, effects: GroupEffects) -> None:
    """Handle an expired session: remove the member, unless it waits for an answer from the coordinator."""
    if member_id in group.pending_members:
        # A pending member was in no generation: a rebalance may have waited for it, but none need start.
        rebalance.drop_member(group, member_id, effects)
        rebalance.maybe_complete_join(group, effects)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if member.is_waiting:
        rebalance.start_session(group, member, effects)
        return
    rebalance.member_gone(group, member_id, f"the session of {member_id} expired", config, effects)
