"""The stored form of a classic group in ``__consumer_offsets``: GroupMetadataKey and GroupMetadataValue.

The record is written when a group is created, when the leader's assignment arrives, when the group becomes empty, and
when a static member is replaced. Everything else (rebalance state, waiting requests, timers) is soft state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.member import Member, MemberProtocol
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.records import GroupChange
from triokafka.protocol.stored.group_metadata import GroupMetadataValue, MemberMetadata

NEEDS_REBALANCE: Final = 0
"""A state timestamp that marks a classic group that must rebalance, which it starts when a broker loads it."""


def group_change(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupChange:
    """Return the change that stores the group's current state, with the given assignment per member."""
    protocol = group.protocol
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol) if protocol is not None else b"",
                assignment=assignments.get(member.member_id, b""),
            )
            for member in (group.members.values() if protocol is not None else ())
        ],
    )
    return GroupChange(group.group_id, value)


def group_removal(group_id: str) -> GroupChange:
    """Return the change that removes a group."""
    return GroupChange(group_id, None)


def restore_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Rebuild a group from its record: Stable when it has members, else Empty."""
    state = GroupState.STABLE if value.members else GroupState.EMPTY
    group = ClassicGroup(group_id, state=state, state_timestamp_ms=value.current_state_timestamp)
    group.generation = value.generation
    protocol_type = value.protocol_type or None
    for stored in value.members:
        member = Member(
            stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout,
            rebalance_timeout_ms=(
                stored.rebalance_timeout if stored.rebalance_timeout != -1 else stored.session_timeout
            ),
            # Only the metadata of the selected protocol is stored; a rejoin brings the others.
            protocols=(MemberProtocol(value.protocol or "", bytes(stored.subscription)),),
            assignment=bytes(stored.assignment),
        )
        group.add(member, protocol_type or "")
    group.protocol_type = protocol_type
    group.protocol = value.protocol
    group.leader_id = value.leader
    if group.leader_id not in group.members:
        group.leader_id = next(iter(group.members), None)
    group.refresh_subscription()
    return group
