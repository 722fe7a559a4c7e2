"""The task that keeps a consumer in its group under the consumer protocol (KIP-848): it sends the heartbeats.

It drives a `ConsumerProtocolMember`; the `ConsumerProtocolRebalance` handles the user's side.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

import trio

from triokafka import errors
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import COORDINATOR, GroupIdentity
from triokafka.client.consumer.membership.consumer_protocol_member import (
    NO_EPOCH,
    ConsumerProtocolMember,
    Heartbeat,
    MemberState,
    Partitions,
    SubscribedTo,
    unsupported,
)
from triokafka.client.consumer.membership.leave_sender import LeaveRequest, LeaveSender
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.network_client import NetworkClient
from triokafka.structs import Node, TopicPartition

logger = logging.getLogger(__name__)

_LEAST_INTERVAL: Final = 3.0
"""Smallest interval, in seconds, for the time limit of a response: a shorter limit would give up on slow ones."""


class ConsumerProtocolMembership:
    """Drives a `ConsumerProtocolMember`."""

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        subscription: SubscriptionState,
        member: ConsumerProtocolMember,
        status: MembershipStatus,
        leave_sender: LeaveSender,
        failures: FailureTracker,
    ) -> None:
        self.member = member
        self._options = options
        self._network = network
        self._world = network.world
        self._subscription = subscription
        self._status = status
        self._leave_sender = leave_sender
        self._failures = failures
        self._beat_scope: trio.CancelScope | None = None
        self._beaten = trio.Event()
        self._unanswered = 0

    @property
    def identity(self) -> GroupIdentity:
        member = self.member
        epoch = member.epoch if member.in_group else NO_EPOCH
        return GroupIdentity(epoch, member.member_id, member.config.group_instance_id, member.membership)

    @property
    def settled(self) -> bool:
        return self.member.in_group

    @property
    def state(self) -> str:
        return self.member.state.value

    # ---------------------------------------------------------------- changes by the user

    def subscribe(self, wants: SubscribedTo) -> None:
        """Change the subscription; send the next heartbeat now if it differs."""
        if self.member.subscribe(wants):
            self._status.changed.set()

    def join(self) -> None:
        """Begin to join."""
        logger.info("joining group %r as member %s", self._status.group_id, self.member.member_id)
        self.member.join()
        self._status.changed.set()

    def settle(self, owned: Partitions, *, complete: bool) -> None:
        """Report the owned partitions to the coordinator with the next heartbeat."""
        self.member.settle(owned, complete=complete)
        self._status.joined_at = self._world.now()
        self._status.rebalances += complete
        self._status.changed.set()

    def commit_failed(self, error: errors.CommitFailedError) -> None:
        if isinstance(error.__cause__, errors.UnknownMemberIdError) and self.member.in_group:
            self.member.forget_membership("a commit was refused")
            self._status.notify()

    def rejoin(self, reason: str) -> None:
        """The coordinator decides on rebalances."""

    async def renew(self, identity: GroupIdentity, partitions: Iterable[TopicPartition]) -> bool:
        member = self.member

        def same_membership() -> bool:
            return member.membership == identity.membership and member.in_group

        if same_membership() and member.epoch == identity.generation:
            member.hurry()
            self._status.changed.set()
            await self._beaten.wait()
        # The new owner of a partition revoked meanwhile may have committed it already.
        return same_membership() and all(partition in self._subscription for partition in partitions)

    # ---------------------------------------------------------------- heartbeats

    @property
    def heartbeats(self) -> bool:
        member = self.member
        # The coordinator must receive the leave request of the last membership first.
        return member.heartbeats and not (member.state is MemberState.JOINING and self._leave_sender.under_way)

    @property
    def is_member(self) -> bool:
        return self.member.in_group

    def due_at(self, now: float) -> float:
        return self.member.due_at

    async def beat(self) -> None:
        with trio.CancelScope() as self._beat_scope:
            await self._beat()
        self._beat_scope = None
        self._beaten.set()
        self._beaten = trio.Event()

    async def _beat(self) -> None:
        member = self.member
        what = self._status.join_activity if member.state is MemberState.JOINING else self._status.heartbeat_activity
        before = (member.state, member.target)
        sent_at = self._world.now()
        heartbeat = member.heartbeat(sent_at)
        try:
            failure = await self._exchange(heartbeat)
        except errors.KafkaError as error:
            failure = error
            self._status.error = error
            self._failures.succeeded(what)
        else:
            if failure is not None:
                logger.info("group %r: %s", self._status.group_id, failure)
                self._failures.failed(what, failure, self._world.now())
            else:
                self._failures.succeeded(self._status.join_activity)
                self._failures.succeeded(self._status.heartbeat_activity)
        self._status.note_heartbeat(sent_at, failure)
        if member.state is MemberState.LOST:
            # Not a lasting failure: the member rejoins when the user asks for records, however late.
            self._failures.succeeded(self._status.heartbeat_activity)
        if failure is not None or (member.state, member.target) != before:
            self._status.on_change()

    async def _exchange(self, heartbeat: Heartbeat) -> errors.KafkaError | None:
        """Send a heartbeat and process the response. Return an error after which to send it again; raise all others."""
        member = self.member
        limit = self._answer_limit()
        node: Node | None = None
        try:
            with trio.fail_after(limit):
                node = await self._network.find_coordinator(self._status.group_id)
                response = await self._network.send(
                    node.node_id, heartbeat.request, min_version=heartbeat.min_version, purpose=COORDINATOR
                )
        except trio.TooSlowError:
            failure: errors.KafkaError = errors.NodeNotReadyError(
                f"the coordinator did not answer a heartbeat within {limit:g} s"
            )
            self._unanswered += 1
            if node is not None:
                self._network.close_as_dead(node.node_id, COORDINATOR, "a heartbeat is overdue")
        except errors.UnsupportedVersionError as error:
            member.unanswered(self._world.now(), self._world.random.random())
            member.refused()
            raise unsupported(self._status.group_id, str(error), pattern=heartbeat.min_version > 0) from error
        except errors.KafkaError as error:
            failure = error
        else:
            self._unanswered = 0
            answered_at, chance = self._world.now(), self._world.random.random()
            refusal = member.answered(response, heartbeat.sent_as, now=answered_at, chance=chance)
            if isinstance(refusal, (errors.NotCoordinatorError, errors.CoordinatorNotAvailableError)):
                self._network.forget_coordinator(self._status.group_id)
            return refusal
        self._network.forget_coordinator(self._status.group_id)
        self._network.request_metadata_update()
        member.unanswered(self._world.now(), self._world.random.random())
        if not (failure.retriable or isinstance(failure, errors.NodeNotReadyError)):
            member.refused()
            raise failure
        return failure

    def _answer_limit(self) -> float:
        """Return the time limit of a heartbeat in seconds: two intervals, and more after each late response."""
        limit = 2 * max(self.member.clock.interval, _LEAST_INTERVAL) * (1 + self._unanswered)
        return min(self._options.request_timeout_ms / 1000, limit)

    # ---------------------------------------------------------------- leaving

    async def leave_after_max_poll_interval(self) -> None:
        leave_request = self._leave_request()
        self.member.forget_membership("max_poll_interval_ms was exceeded")
        await self._leave_sender.send(leave_request)

    def end(self, reason: str) -> LeaveRequest | None:
        if self._beat_scope is not None:
            # A heartbeat that waits for its connection must not arrive after the leave request.
            self._beat_scope.cancel()
        leave_request = self._leave_request()
        self.member.left()
        self._status.error = None
        self._failures.succeeded(self._status.join_activity)
        self._failures.succeeded(self._status.heartbeat_activity)
        self._status.changed.set()
        return leave_request

    def _leave_request(self) -> LeaveRequest | None:
        request = self.member.leave()
        if request is None:
            return None

        async def leave_request() -> None:
            node = await self._network.find_coordinator(self._status.group_id)
            response = await self._network.send(node.node_id, request, purpose=COORDINATOR)
            logger.debug("left group %r, answer %d", self._status.group_id, response.error_code)

        return leave_request
