"""The user's side of a rebalance under the classic protocol: commit, revoke, join, take over. No I/O, no `await`."""

from __future__ import annotations

import enum
import logging

from triokafka.assignors import Assignment
from triokafka.client.consumer.committer import Committer
from triokafka.client.consumer.membership.classic_join import ClassicJoin
from triokafka.client.consumer.membership.classic_member import NO_GENERATION, ClassicMember
from triokafka.client.consumer.membership.classic_membership import ClassicMembership
from triokafka.client.consumer.membership.leader_assignment import LeaderAssignment
from triokafka.client.consumer.rebalance.partition_handover import PartitionHandover
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.structs import TopicPartition, first_names

logger = logging.getLogger(__name__)


class _Phase(enum.Enum):
    IDLE = "nothing to prepare"
    COMMITTING = "committing finished records"
    REVOKING = "calling the listener for revoked partitions, then joining"


class ClassicRebalance:
    """Keeps the assignment in step with the group."""

    def __init__(
        self,
        subscription: SubscriptionState,
        member: ClassicMember,
        membership: ClassicMembership,
        join: ClassicJoin,
        leader: LeaderAssignment,
        committer: Committer,
        handover: PartitionHandover,
    ) -> None:
        self._subscription = subscription
        self._member = member
        self._membership = membership
        self._join = join
        self._leader = leader
        self._committer = committer
        self._handover = handover
        self._phase = _Phase.IDLE
        self._revoking: tuple[TopicPartition, ...] = ()
        self._incoming: tuple[int, Assignment] | None = None

    @property
    def is_settling(self) -> bool:
        """Whether partitions are about to be revoked, so that none of their records may be returned."""
        return self._phase is _Phase.COMMITTING

    @property
    def begins_to_join(self) -> bool:
        """Whether the next step begins a rebalance. Lost partitions are dropped at once, before that."""
        member = self._member
        if member.needs_rejoin is None or self._membership.is_joining or self._join.has_assignment:
            return False
        if member.lost:
            return self._phase is _Phase.REVOKING and not self._subscription.assignment
        return self._phase is _Phase.IDLE

    def subscription_changed(self) -> None:
        """Request a rebalance if other topics match now, or if partitions were added."""
        member, leader = self._member, self._leader
        if self._subscription.topics or member.generation != NO_GENERATION:
            member.subscription_changed(self._subscription.topics)
        assigned = leader.assigned_layout
        # `_receive` compares an assignment that waits.
        settled = not (self._membership.is_joining or self._join.has_assignment)
        if assigned is not None and settled and assigned != leader.layout():
            leader.assigned_layout = None
            member.request_rejoin("topics or partitions were added or removed, or moved to other racks")

    def advance(self) -> bool:
        """Do the next possible step; return False if there is none before something else happens."""
        member = self._member
        if self._phase is _Phase.COMMITTING:
            if self._committer.commits_before_rebalance:
                return False
            self._phase = _Phase.REVOKING
            call = bool(self._revoking) or not member.cooperative
            self._handover.begin_revocation(self._revoking, lost=member.lost, call=call)
            return True
        assignment = self._join.take_assignment()
        if assignment is not None:
            self._receive(assignment)
        elif member.needs_rejoin is None or self._membership.is_joining:
            return False
        elif self._phase is _Phase.IDLE or (member.lost and self._subscription.assignment):
            self._leader.assigned_layout = None
            self._handover.timing.started(member.needs_rejoin)
            self._begin_revocation(self._to_revoke())
        else:
            self._join.start()
            return False
        return True

    # ---------------------------------------------------------------- revoke

    def _to_revoke(self) -> tuple[TopicPartition, ...]:
        """The partitions to revoke before joining."""
        held = self._subscription.assignment
        if self._member.lost or not self._member.cooperative:
            return held
        topics = frozenset(self._subscription.topics)
        return tuple(partition for partition in held if partition.topic not in topics)

    def _begin_revocation(self, revoking: tuple[TopicPartition, ...]) -> None:
        """Commit finished records, then call the listener for the partitions, and only then drop them."""
        self._revoking = revoking
        self._phase = _Phase.COMMITTING
        self._handover.timing.revoking()
        if self._member.generation != NO_GENERATION:
            self._committer.start_commit_before_rebalance()

    def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Join, or take over the assignment, because the partitions in its way were dropped."""
        if self._incoming is None:
            return
        (generation, incoming), self._incoming = self._incoming, None
        if generation == self._member.generation and not self._is_outdated(incoming):
            self._take_over(incoming)
        else:
            self._phase = _Phase.IDLE

    # ---------------------------------------------------------------- take over

    def _receive(self, assignment: Assignment) -> None:
        member, leader = self._member, self._leader
        assigned = leader.assigned_layout
        if assigned is not None and assigned != leader.layout():
            # Partitions were added or removed during the rebalance: join once more, without revoking twice.
            leader.assigned_layout = None
            member.request_rejoin("topics or partitions changed during the rebalance")
            return
        if self._is_outdated(assignment):
            self._phase = _Phase.IDLE
            return
        wanted = frozenset(assignment.partitions)
        gone = tuple(partition for partition in self._subscription.assignment if partition not in wanted)
        if gone and member.cooperative:
            # Other members get them in a second rebalance, which begins once they are revoked (KIP-429).
            self._incoming = (member.generation, assignment)
            member.request_rejoin("partitions were given up for another member")
            self._begin_revocation(gone)
        else:
            self._take_over(assignment)

    def _is_outdated(self, assignment: Assignment) -> bool:
        """Whether the assignment is for an earlier subscription, and the member will join with the present one."""
        topics = frozenset(self._subscription.topics)
        changes = self._member.needs_rejoin is not None
        return changes and any(partition.topic not in topics for partition in assignment.partitions)

    def _take_over(self, assignment: Assignment) -> None:
        member = self._member
        wanted = tuple(assignment.partitions)
        held = self._subscription
        added = tuple(partition for partition in wanted if partition not in held) if member.cooperative else wanted
        self._handover.take_over(wanted, added, keep=member.cooperative)
        self._phase = _Phase.IDLE
        self._committer.assignment_changed()
        group_id, names = member.config.group_id, first_names(wanted)
        logger.info("group %r, generation %d: assigned %s", group_id, member.generation, names)

    # ---------------------------------------------------------------- leave

    def abandon(self) -> None:
        """End the subscription."""
        self._incoming = None
        self._phase = _Phase.IDLE
        self._handover.abandon(lost=self._member.generation == NO_GENERATION)
