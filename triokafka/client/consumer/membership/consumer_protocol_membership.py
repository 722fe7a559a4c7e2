"""Membership under the consumer protocol (KIP-848): subscription, refused commits, leaving.

`ConsumerProtocolHeartbeat` sends the heartbeats; `ConsumerProtocolRebalance` handles the user's side.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from triokafka import errors
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import COORDINATOR, GroupIdentity
from triokafka.client.consumer.membership.consumer_protocol_heartbeat import ConsumerProtocolHeartbeat
from triokafka.client.consumer.membership.consumer_protocol_member import (
    NO_EPOCH,
    ConsumerProtocolMember,
    Partitions,
    SubscribedTo,
)
from triokafka.client.consumer.membership.leave_sender import LeaveRequest, LeaveSender
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class ConsumerProtocolMembership:
    """Drives a `ConsumerProtocolMember`, except for its heartbeats."""

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        member: ConsumerProtocolMember,
        heartbeat: ConsumerProtocolHeartbeat,
        status: MembershipStatus,
        leave_sender: LeaveSender,
        failures: FailureTracker,
    ) -> None:
        self.member = member
        self._network = network
        self._world = network.world
        self._subscription = subscription
        self._status = status
        self._leave_sender = leave_sender
        self._failures = failures
        self._heartbeat = heartbeat

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
            await self._heartbeat.beaten.wait()
        # The new owner of a partition revoked meanwhile may have committed it already.
        return same_membership() and all(partition in self._subscription for partition in partitions)

    # ---------------------------------------------------------------- leaving

    async def leave_after_max_poll_interval(self) -> None:
        leave_request = self._leave_request()
        self.member.forget_membership("max_poll_interval_ms was exceeded")
        await self._leave_sender.send(leave_request)

    def end(self, reason: str) -> LeaveRequest | None:
        self._heartbeat.cancel()
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
