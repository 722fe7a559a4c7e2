"""The user's side of the consumer protocol, step by step in the task that asks for records: give up, take over, join.

The coordinator says what this member is to own. What is not in it any more is committed and given up first; then the
rest is taken over, and only then does the coordinator hear what is owned now. Partitions that stay are read all along.
Each step can be cancelled, and is taken up again by the next call. Nothing here waits for a broker.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from triokafka.client.consumer.commits import Committer
from triokafka.client.consumer.listener import PendingCallbacks
from triokafka.client.consumer.membership.consumer_protocol_member import State, Wants
from triokafka.client.consumer.membership.consumer_protocol_membership import ConsumerProtocolMembership
from triokafka.client.consumer.membership.topic_names import TopicNames
from triokafka.client.consumer.subscription import Mode, SubscriptionState
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class _Phase(enum.Enum):
    IDLE = "nothing is given up"
    COMMITTING = "committing what is finished"
    TELLING = "telling the listener"


class ConsumerProtocolRebalance:
    """Keeps the assignment in step with what the coordinator says. Stands where a `ClassicRebalance` would.

    ``on_assignment`` is called whenever the assignment was changed.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        membership: ConsumerProtocolMembership,
        names: TopicNames,
        committer: Committer,
        on_assignment: Callable[[], None],
    ) -> None:
        self.listener: object = None
        self.fresh_after = -1
        """Version of the metadata that is too old to match patterns with."""
        self._network = network
        self._subscription = subscription
        self._membership = membership
        self._names = names
        self._committer = committer
        self._on_assignment = on_assignment
        self._phase = _Phase.IDLE
        self._going: tuple[TopicPartition, ...] = ()
        self._going_is_lost = False
        self._ids: dict[TopicPartition, UUID] = {}  # of what is assigned
        self._greeted = 0  # the membership whose first assignment was taken over
        self._callbacks = PendingCallbacks()

    @property
    def settling(self) -> bool:
        """Partitions that are about to go are held back one by one; the others are handed out all along."""
        return False

    @property
    def telling(self) -> bool:
        """Whether the listener has still something to hear."""
        return bool(self._callbacks)

    async def step(self) -> None:
        """Do what can be done now. Afterwards the assignment may be used, whatever it is.

        Waits for the listener's methods only. If cancelled, the next call goes on from there.
        """
        if self._network.metadata.version <= self.fresh_after:
            return
        self._watch_subscription()
        while True:
            await self._callbacks.drain()
            if self._phase is _Phase.TELLING:
                self._drop_going()
            elif not self._advance():
                return

    def _watch_subscription(self) -> None:
        subscription = self._subscription
        if subscription.pattern is not None and self._network.metadata.version:
            subscription.match(self._network.cluster.topics)
        if subscription.remote_pattern is not None:
            self._membership.want(Wants((), subscription.remote_pattern))
        else:
            self._membership.want(Wants(subscription.topics))

    def _advance(self) -> bool:
        """Go one step further; False when there is nothing to do now."""
        member = self._membership.member
        if member.state is State.LOST:
            if self._subscription.assignment:
                self._give_up("on_partitions_lost", self._subscription.assignment)
            else:
                self._phase = _Phase.IDLE
                member.released()
            return True
        if member.state is State.OUTSIDE:
            self._membership.timing.started("joining")
            self._membership.join()
        elif member.state is State.RECONCILING and member.target is not None:
            return self._reconcile()
        elif self._phase is _Phase.COMMITTING:
            # What was to go has been given back before anything happened.
            self._subscription.mark_going(())
            self._phase = _Phase.IDLE
            self._on_assignment()
        return False

    # ---------------------------------------------------------------- reconcile

    def _reconcile(self) -> bool:
        wanted, missing = self._resolve()
        held = self._subscription.assignment
        going = tuple(partition for partition in held if wanted.get(partition) != self._ids.get(partition))
        if going:
            self._subscription.mark_going(going)
            if self._phase is _Phase.IDLE:
                self._phase = _Phase.COMMITTING
                self._membership.timing.started("partitions are to be given up")
                self._membership.timing.giving_up()
                self._committer.flush()
            if self._committer.flushing:
                return False
            self._give_up("on_partitions_revoked", going)
            return True
        self._subscription.mark_going(())
        self._phase = _Phase.IDLE
        self._names.want(missing)
        return self._take_over(wanted, complete=not missing)

    def _resolve(self) -> tuple[dict[TopicPartition, UUID], list[UUID]]:
        """The target by names, as far as they are known, and the ids of the other topics."""
        subscription = self._subscription
        by_name = subscription.mode is not Mode.REMOTE_PATTERN
        wanted: dict[TopicPartition, UUID] = {}
        missing: list[UUID] = []
        for topic_id, numbers in (self._membership.member.target or {}).items():
            name = self._names.name_of(topic_id)
            if name is None:
                missing.append(topic_id)
            elif not by_name or name in subscription.topics:  # else the coordinator is about to hear of it
                wanted.update((TopicPartition(name, number), topic_id) for number in sorted(numbers))
        return dict(sorted(wanted.items())), missing

    def _take_over(self, wanted: dict[TopicPartition, UUID], *, complete: bool) -> bool:
        """Own ``wanted``; nothing of what is held is missing in it. Returns whether anything has changed."""
        member = self._membership.member
        added = tuple(partition for partition in wanted if partition not in self._ids)
        owned = _by_id(wanted)
        is_first = self._greeted != member.membership
        if not (added or is_first or complete or owned != member.owned):
            return False
        self._greeted = member.membership
        self._ids = wanted
        if self._subscription.mode is Mode.REMOTE_PATTERN:
            topics = {partition.topic for partition in wanted}
            self._subscription.matched(topics)
            self._network.metadata.set_topics(sorted(topics))
        self._subscription.assign_from_group(list(wanted), keep=True)
        # The coordinator may give away what was given up, however long the listener takes with what has come.
        self._membership.settle(owned, complete=complete)
        self._membership.timing.assigned(added)
        self._callbacks.add(self.listener, "on_partitions_assigned", added)
        logger.info(
            "group %r, epoch %d: assigned %s", self._membership.group_id, member.epoch, ", ".join(map(str, wanted))
        )
        self._committer.assignment_changed()
        self._on_assignment()
        return True

    # ---------------------------------------------------------------- give up

    def _give_up(self, method: str, going: tuple[TopicPartition, ...]) -> None:
        """Tell the listener, and only then drop the partitions."""
        self._subscription.mark_going(going)
        self._going = going
        self._going_is_lost = method == "on_partitions_lost"
        self._phase = _Phase.TELLING
        self._membership.timing.giving_up()
        self._callbacks.add(self.listener, method, going)

    def _drop_going(self) -> None:
        self._subscription.revoke(self._going)
        self._membership.timing.gone(self._going, lost=self._going_is_lost)
        for partition in self._going:
            self._ids.pop(partition, None)
        self._going = ()
        self._phase = _Phase.IDLE
        if self._membership.member.in_group:
            # Also when the coordinator has given them back meanwhile: then they are taken over anew.
            self._membership.settle(_by_id(self._ids), complete=False)
        self._on_assignment()

    # ---------------------------------------------------------------- leave

    def abandon(self) -> None:
        """The subscription ends: what is held goes, the listener hears of it on the next `step` or `drain`."""
        held = self._subscription.assignment
        self._names.want(())
        self._phase = _Phase.IDLE
        self._going = ()
        self._ids = {}
        self._membership.timing.abandoned()
        if held:
            lost = not self._membership.member.in_group
            self._membership.timing.gone(held, lost=lost)
            self._callbacks.end(self.listener, "on_partitions_lost" if lost else "on_partitions_revoked", held)

    async def drain(self) -> None:
        """Tell the listener what it has not heard yet."""
        await self._callbacks.drain()


def _by_id(ids: Mapping[TopicPartition, UUID]) -> dict[UUID, frozenset[int]]:
    owned: dict[UUID, set[int]] = {}
    for partition, topic_id in ids.items():
        owned.setdefault(topic_id, set()).add(partition.partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()}
