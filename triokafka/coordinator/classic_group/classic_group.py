"""One consumer group under the classic protocol: its members, its generation, and the votes for its protocol.

A plain object. It checks transitions and member identity. `rebalance`, `join`, `sync`, `leaving` and `expired_members`
decide when to rebalance and which requests to answer. Timers live in the shard's queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.coordinator.classic_group.member import Member, MemberProtocol
from triokafka.coordinator.classic_group.state import PREDECESSORS, GroupState
from triokafka.coordinator.classic_group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    IllegalStateError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.join_group import JoinGroupResponse


class ClassicGroup:
    """One classic group. ``state_timestamp_ms`` is the wall-clock time of the last transition; -1 when unknown.

    ``pending_members`` are member ids that were handed out and have not joined yet (KIP-394). ``pending_syncs`` are
    members of the new generation that have not sent SyncGroup. ``storing_generation`` is the generation whose
    assignment is being appended to the log. All three are soft state, as are the replies inside the members.
    """

    def __init__(self, group_id: str, *, state: GroupState = GroupState.EMPTY, state_timestamp_ms: int = -1) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = state
        self.state_timestamp_ms = state_timestamp_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, None] = {}
        self.pending_syncs: dict[str, None] = {}
        self.storing_generation: int | None = None
        self.initial_delay: tuple[int, int] | None = None
        """During the initial rebalance delay of an empty group (KIP-134): the current delay and the remainder (ms)."""
        self.member_arrived = False
        """Whether a member joined since the initial rebalance delay was last extended."""
        self.subscription: frozenset[str] | None = None
        """Topics that the members subscribe to; None when the metadata is unreadable."""
        self.joins_waiting = 0
        """The number of members that have rejoined in this rebalance."""
        self._supporters: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<ClassicGroup {self.group_id!r} {self.state.value} generation={self.generation}>"

    # --- states ---

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        """Enter a state. Raises `IllegalStateError` for an illegal transition."""
        if self.state not in PREDECESSORS[state]:
            raise IllegalStateError(f"group {self.group_id!r} cannot go from {self.state.value} to {state.value}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = wall_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can start in this state."""
        return self.state in PREDECESSORS[GroupState.PREPARING_REBALANCE]

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are consumers, whose metadata names their topics."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout: the largest among the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_have_joined(self) -> bool:
        """Whether every member has rejoined and no member id is pending."""
        return self.joins_waiting == len(self.members) and not self.pending_members

    def next_generation(self, wall_ms: int) -> None:
        """Close the join phase: increment the generation, select the protocol, and enter CompletingRebalance, or Empty
        without members."""
        self.generation += 1
        self.pending_syncs.clear()
        self.storing_generation = None
        self.initial_delay = None
        self.member_arrived = False
        if self.members:
            self.protocol = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol = None
            self.transition_to(GroupState.EMPTY, wall_ms)
        self.refresh_subscription()

    # --- protocols ---

    def supports(self, protocol_type: str, protocols: Sequence[MemberProtocol]) -> bool:
        """Whether a member with these protocols may join: same protocol type, and one protocol that all support."""
        if self.state is GroupState.EMPTY or not self.members:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supporters.get(protocol.name, 0) == len(self.members) for protocol in protocols)

    def select_protocol(self) -> str:
        """Return the candidate protocol with the most votes; on a tie, the one that was voted for first."""
        candidates = {name for name, supporters in self._supporters.items() if supporters == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        if not votes:
            raise IllegalStateError(f"group {self.group_id!r} has no members to select a protocol")
        return max(votes, key=lambda name: votes[name])

    def refresh_subscription(self) -> None:
        """Recompute the topics that the members subscribe to."""
        if not self.uses_consumer_protocol:
            self.subscription = None
        elif not self.members:
            self.subscription = frozenset()
        elif self.protocol is None:
            self.subscription = None
        else:
            protocol = self.protocol
            self.subscription = subscribed_topics([m.metadata(protocol) for m in self.members.values()])

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member subscribes to ``topic``. True for every topic when a consumer's metadata is unreadable."""
        if self.subscription is not None:
            return topic in self.subscription
        return self.uses_consumer_protocol

    # --- members ---

    def member_for(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that a request names.

        Raises:
            UnknownMemberIdError: the group has no such member or instance.
            FencedInstanceIdError: another member now has the instance id.
        """
        if instance_id is not None:
            owner = self.static_members.get(instance_id)
            if owner is None:
                raise UnknownMemberIdError(f"group {self.group_id!r} has no instance {instance_id!r}")
            if owner != member_id:
                raise FencedInstanceIdError(
                    f"instance {instance_id!r} of group {self.group_id!r} is now member {owner}, not {member_id}"
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"group {self.group_id!r} has no member {member_id!r}")
        return member

    def member_of_generation(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return the member as `member_for` does; raises `IllegalGenerationError` for another generation."""
        member = self.member_for(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGenerationError(
                f"group {self.group_id!r} is in generation {self.generation}; the request is from {generation}"
            )
        return member

    def add(self, member: Member, protocol_type: str, reply: Reply[JoinGroupResponse] | None = None) -> None:
        """Add a member. The first member sets the protocol type and becomes the leader."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count_protocols(member, 1)
        self.pending_members.pop(member.member_id, None)
        if reply is not None:
            self.park_join(member, reply)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending member id. The caller answers the removed member's replies."""
        self.pending_members.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count_protocols(member, -1)
        if member.join_reply is not None:
            self.joins_waiting -= 1
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def update(
        self,
        member: Member,
        *,
        protocols: tuple[MemberProtocol, ...],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Store the protocols and timeouts of a member that rejoins."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def rename_static(self, member: Member, member_id: str) -> None:
        """Give a static member's place, leadership included, to the new member id of its restarted process."""
        if member.instance_id is None:
            raise IllegalStateError(f"member {member.member_id} is not static")
        old_id = member.member_id
        # Rebuilt in order, so that the next leader and the votes do not depend on which member restarted.
        self.members = {member_id if key == old_id else key: value for key, value in self.members.items()}
        self.static_members[member.instance_id] = member_id
        if old_id in self.pending_syncs:
            self.pending_syncs = {member_id if key == old_id else key: None for key in self.pending_syncs}
        if self.leader_id == old_id:
            self.leader_id = member_id
        member.member_id = member_id

    def elect_joined_leader(self) -> bool:
        """Make a member that has rejoined the leader, unless the leader has. Returns False when no member rejoined."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.awaits_join:
            return True
        for member in self.members.values():
            if member.awaits_join:
                self.leader_id = member.member_id
                return True
        return False

    def park_join(self, member: Member, reply: Reply[JoinGroupResponse]) -> Reply[JoinGroupResponse] | None:
        """Park a JoinGroup until the rebalance completes. Returns the older request that it replaces, if any."""
        older = member.join_reply
        if older is None:
            self.joins_waiting += 1
        member.join_reply = reply
        return older

    def take_join(self, member: Member) -> Reply[JoinGroupResponse] | None:
        """Remove and return the member's parked JoinGroup, for the caller to answer."""
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self.joins_waiting -= 1
        return reply

    def _count_protocols(self, member: Member, by: int) -> None:
        for name in {protocol.name: None for protocol in member.protocols}:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
