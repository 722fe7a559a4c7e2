"""The user's side of a rebalance under the consumer protocol (KIP-848): revoke, take over. No I/O, no `await`.

The coordinator sends the target: the partitions that this member is to own. The member first commits and revokes
partitions outside the target. Then it takes the others over, and only then reports its partitions to the coordinator.
Partitions in both are read all the time.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from triokafka.client.consumer.committer import Committer
from triokafka.client.consumer.membership.consumer_protocol_member import MemberState, SubscribedTo
from triokafka.client.consumer.membership.consumer_protocol_membership import ConsumerProtocolMembership
from triokafka.client.consumer.membership.topic_names import TopicNames
from triokafka.client.consumer.rebalance.partition_handover import PartitionHandover
from triokafka.client.consumer.subscription_state import Mode, SubscriptionState
from triokafka.structs import TopicPartition, first_names

logger = logging.getLogger(__name__)


class _ReleasePhase(enum.Enum):
    IDLE = "nothing is given up"
    COMMITTING = "committing finished records"


class ConsumerProtocolRebalance:
    """Keeps the assignment in step with the coordinator's target.

    ``keep_metadata_of`` keeps the metadata of these topics.
    """

    is_settling: Final = False
    """Partitions to be revoked are held back one by one; the records of all others are returned meanwhile."""
    begins_to_join: Final = False
    """A member that sends other topics does not make other members send theirs."""

    def __init__(
        self,
        subscription: SubscriptionState,
        membership: ConsumerProtocolMembership,
        names: TopicNames,
        committer: Committer,
        handover: PartitionHandover,
        keep_metadata_of: Callable[[Iterable[str]], object],
    ) -> None:
        self._subscription = subscription
        self._membership = membership
        self._member = membership.member
        self._names = names
        self._committer = committer
        self._handover = handover
        self._keep_metadata_of = keep_metadata_of
        self._phase = _ReleasePhase.IDLE
        self._topic_ids: dict[TopicPartition, UUID] = {}
        """The ids of the topics of all assigned partitions."""
        self._taken_over = 0
        """The membership whose first assignment was taken over."""

    def subscription_changed(self) -> None:
        """Pass the present subscription to the member."""
        pattern = self._subscription.remote_pattern
        self._membership.subscribe(
            SubscribedTo(self._subscription.topics) if pattern is None else SubscribedTo((), pattern)
        )

    def advance(self) -> bool:
        """Do the next possible step; return False if there is none before something else happens."""
        member = self._member
        if member.state is MemberState.LOST:
            held = self._subscription.assignment
            self._phase = _ReleasePhase.IDLE
            if held:
                self._revoke(held, lost=True)
            else:
                member.released()
            return True
        if member.state is MemberState.OUTSIDE:
            self._handover.timing.started("joining")
            self._membership.join()
        elif member.state is MemberState.RECONCILING and member.target is not None:
            return self._reconcile()
        elif self._phase is _ReleasePhase.COMMITTING:
            # The coordinator has assigned the partitions again before they were dropped.
            self._subscription.mark_revoking(())
            self._phase = _ReleasePhase.IDLE
            self._handover.assignment_changed()
        return False

    # ---------------------------------------------------------------- reconcile

    def _reconcile(self) -> bool:
        wanted, missing = self._resolve()
        held = self._subscription.assignment
        revoking = tuple(partition for partition in held if wanted.get(partition) != self._topic_ids.get(partition))
        if revoking:
            self._subscription.mark_revoking(revoking)
            if self._phase is _ReleasePhase.IDLE:
                self._phase = _ReleasePhase.COMMITTING
                self._handover.timing.started("partitions are to be given up")
                self._handover.timing.revoking()
                self._committer.start_commit_before_rebalance()
            if self._committer.commits_before_rebalance:
                return False
            self._phase = _ReleasePhase.IDLE
            self._revoke(revoking, lost=False)
            return True
        self._subscription.mark_revoking(())
        self._phase = _ReleasePhase.IDLE
        self._names.look_up(missing)
        return self._take_over(wanted, complete=not missing)

    def _resolve(self) -> tuple[dict[TopicPartition, UUID], list[UUID]]:
        """Return the target by names, as far as they are known, and the ids of the other topics."""
        subscription = self._subscription
        by_name = subscription.mode is not Mode.REMOTE_PATTERN
        topics = frozenset(subscription.topics)
        wanted: dict[TopicPartition, UUID] = {}
        missing: list[UUID] = []
        for topic_id, numbers in (self._member.target or {}).items():
            name = self._names.name_of(topic_id)
            if name is None:
                missing.append(topic_id)
            elif not by_name or name in topics:  # else the next heartbeat ends the subscription to it
                wanted.update((TopicPartition(name, number), topic_id) for number in sorted(numbers))
        return dict(sorted(wanted.items())), missing

    def _take_over(self, wanted: dict[TopicPartition, UUID], *, complete: bool) -> bool:
        """Own ``wanted``, which includes everything that is owned. Return whether anything has changed."""
        member = self._member
        added = tuple(partition for partition in wanted if partition not in self._topic_ids)
        owned = _by_id(wanted)
        is_first = self._taken_over != member.membership
        if not (added or is_first or complete or owned != member.owned):
            return False
        self._taken_over = member.membership
        self._topic_ids = wanted
        if self._subscription.mode is Mode.REMOTE_PATTERN:
            topics = {partition.topic for partition in wanted}
            self._subscription.matched(topics)
            self._keep_metadata_of(sorted(topics))
        # At once: the coordinator can assign the released partitions to others, however long the listener takes.
        self._membership.settle(owned, complete=complete)
        self._handover.take_over(list(wanted), added, keep=True)
        self._committer.assignment_changed()
        group_id, names = member.config.group_id, first_names(wanted)
        logger.info("group %r, epoch %d: assigned %s", group_id, member.epoch, names)
        return True

    # ---------------------------------------------------------------- revoke

    def _revoke(self, revoking: tuple[TopicPartition, ...], *, lost: bool) -> None:
        self._subscription.mark_revoking(revoking)
        self._handover.begin_revocation(revoking, lost=lost)

    def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Report the dropped partitions to the coordinator."""
        for partition in partitions:
            self._topic_ids.pop(partition, None)
        if self._member.in_group:
            # Also if the coordinator has assigned them again meanwhile: they are then taken over anew.
            self._membership.settle(_by_id(self._topic_ids), complete=False)

    # ---------------------------------------------------------------- leave

    def abandon(self) -> None:
        """End the subscription."""
        self._names.look_up(())
        self._phase = _ReleasePhase.IDLE
        self._topic_ids = {}
        self._handover.abandon(lost=not self._member.in_group)


def _by_id(ids: Mapping[TopicPartition, UUID]) -> dict[UUID, frozenset[int]]:
    owned: dict[UUID, set[int]] = {}
    for partition, topic_id in ids.items():
        owned.setdefault(topic_id, set()).add(partition.partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()}
