"""The user's side of a rebalance, step by step in the task that asks for records: commit, give up, join, take over.

Each step can be cancelled, and is taken up again by the next call. Nothing here waits for a broker.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from triokafka.assignors import Assignment
from triokafka.client.consumer.commits import Committer
from triokafka.client.consumer.listener import PendingCallbacks
from triokafka.client.consumer.membership.classic_member import NO_GENERATION
from triokafka.client.consumer.membership.classic_membership import ClassicMembership
from triokafka.client.consumer.subscription import SubscriptionState
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class _Phase(enum.Enum):
    IDLE = "nothing to prepare"
    COMMITTING = "committing what is finished"
    REVOKING = "telling the listener"
    READY = "ready to join"


class ClassicRebalance:
    """Keeps the assignment in step with the group.

    ``on_assignment`` is called whenever the assignment was changed.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        membership: ClassicMembership,
        committer: Committer,
        on_assignment: Callable[[], None],
    ) -> None:
        self.listener: object = None
        self.fresh_after = -1
        """Version of the metadata that is too old to join with (subscriptions by pattern)."""
        self._network = network
        self._subscription = subscription
        self._membership = membership
        self._committer = committer
        self._on_assignment = on_assignment
        self._phase = _Phase.IDLE
        self._going: tuple[TopicPartition, ...] = ()
        self._going_is_lost = False
        self._incoming: tuple[int, Assignment] | None = None
        self._callbacks = PendingCallbacks()

    @property
    def settling(self) -> bool:
        """Whether partitions are about to be given up, so that nothing of them may be handed out."""
        return self._phase is _Phase.COMMITTING

    @property
    def telling(self) -> bool:
        """Whether the listener has still something to hear."""
        return bool(self._callbacks)

    async def step(self) -> None:
        """Do what can be done now. Afterwards the assignment may be used, whatever it is.

        Waits for the listener's methods only. If cancelled, the next call goes on from there.
        """
        membership = self._membership
        member = membership.member
        if self._network.metadata.version <= self.fresh_after:
            return  # a stale list of topics would cause two rebalances in a row
        self.watch_topics()
        while True:
            await self.drain()
            if self._phase is _Phase.REVOKING:
                self._subscription.revoke(self._going)
                membership.timing.gone(self._going, lost=self._going_is_lost)
                self._on_assignment()
                self._phase = _Phase.READY
                if self._incoming is not None:
                    (generation, incoming), self._incoming = self._incoming, None
                    if generation == member.generation and not self._is_outdated(incoming):
                        self._take_over(incoming)
                    else:
                        self._phase = _Phase.IDLE
                continue
            if self._phase is _Phase.COMMITTING:
                if self._committer.flushing:
                    return
                self._phase = _Phase.REVOKING
                self._going_is_lost = member.lost
                if self._going or not member.cooperative:
                    self._callbacks.add(
                        self.listener, "on_partitions_lost" if member.lost else "on_partitions_revoked", self._going
                    )
                continue
            assignment = membership.take_assignment()
            if assignment is not None:
                self._receive(assignment)
            elif member.needs_rejoin is None or membership.joining:
                return
            elif self._phase is _Phase.IDLE or (member.lost and self._subscription.assignment):
                membership.dealt = None
                membership.timing.started(member.needs_rejoin)
                self._begin_to_give_up(self._leaving_us())
            else:
                membership.start_join()
                return

    def watch_topics(self) -> None:
        """Notice topics that match now, and partitions that were added."""
        membership = self._membership
        member = membership.member
        if self._subscription.pattern is not None and self._network.metadata.version:
            self._subscription.match(self._network.cluster.topics)
        if self._subscription.topics or member.generation != NO_GENERATION:
            member.subscription_changed(self._subscription.topics)
        dealt = membership.dealt
        # An assignment that waits is compared by `_receive`.
        settled = not (membership.joining or membership.brings_assignment)
        if dealt is not None and settled and dealt != membership.layout():
            membership.dealt = None
            member.request_rejoin("topics or partitions were added or removed, or moved to other racks")

    # ---------------------------------------------------------------- give up

    def _leaving_us(self) -> tuple[TopicPartition, ...]:
        member = self._membership.member
        held = self._subscription.assignment
        if member.lost or not member.cooperative:
            return held
        topics = self._subscription.topics
        return tuple(partition for partition in held if partition.topic not in topics)

    def _begin_to_give_up(self, going: tuple[TopicPartition, ...]) -> None:
        """Commit what is finished, tell the listener, and only then drop the partitions."""
        self._going = going
        self._phase = _Phase.COMMITTING
        self._membership.timing.giving_up()
        if self._membership.member.generation != NO_GENERATION:
            self._committer.flush()

    # ---------------------------------------------------------------- take over

    def _receive(self, assignment: Assignment) -> None:
        membership = self._membership
        member = membership.member
        dealt = membership.dealt
        if dealt is not None and dealt != membership.layout():
            # Partitions came or went while the group was rebalancing: once more, without revoking twice.
            membership.dealt = None
            member.request_rejoin("topics or partitions changed during the rebalance")
            return
        if self._is_outdated(assignment):
            self._phase = _Phase.IDLE
            return
        gone = tuple(p for p in self._subscription.assignment if p not in assignment.partitions)
        if gone and member.cooperative:
            # They go to others in a second rebalance, which begins once they are given up (KIP-429).
            self._incoming = (member.generation, assignment)
            member.request_rejoin("partitions were given up for another member")
            self._begin_to_give_up(gone)
        else:
            self._take_over(assignment)

    def _is_outdated(self, assignment: Assignment) -> bool:
        """Whether it was dealt for an earlier subscription, and the group is about to hear of the present one."""
        topics = self._subscription.topics
        changes = self._membership.member.needs_rejoin is not None
        return changes and any(partition.topic not in topics for partition in assignment.partitions)

    def _take_over(self, assignment: Assignment) -> None:
        membership = self._membership
        member = membership.member
        wanted = tuple(assignment.partitions)
        held = self._subscription.assignment
        added = tuple(p for p in wanted if p not in held) if member.cooperative else wanted
        self._subscription.assign_from_group(wanted, keep=member.cooperative)
        self._callbacks.add(self.listener, "on_partitions_assigned", added)
        self._phase = _Phase.IDLE
        membership.timing.assigned(added)
        logger.info(
            "group %r, generation %d: assigned %s", membership.group_id, member.generation, ", ".join(map(str, wanted))
        )
        self._committer.assignment_changed()
        self._on_assignment()

    # ---------------------------------------------------------------- leave

    def abandon(self) -> None:
        """The subscription ends: what is held goes, the listener hears of it on the next `step` or `drain`."""
        held = self._subscription.assignment
        self._membership.timing.abandoned()
        self._incoming = None
        self._phase = _Phase.IDLE
        if held:
            lost = self._membership.member.generation == NO_GENERATION
            self._membership.timing.gone(held, lost=lost)
            self._callbacks.end(self.listener, "on_partitions_lost" if lost else "on_partitions_revoked", held)

    async def drain(self) -> None:
        """Tell the listener what it has not heard yet."""
        await self._callbacks.drain()
