"""Heartbeats under the consumer protocol (KIP-848): sends ConsumerGroupHeartbeat, and processes the answer."""

from __future__ import annotations

import logging
from typing import Final

import trio

from triokafka import errors
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import COORDINATOR
from triokafka.client.consumer.membership.consumer_protocol_member import (
    ConsumerProtocolMember,
    Heartbeat,
    MemberState,
    unsupported,
)
from triokafka.client.consumer.membership.leave_sender import LeaveSender
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.network.network_client import NetworkClient
from triokafka.structs import Node

logger = logging.getLogger(__name__)

_LEAST_INTERVAL: Final = 3.0
"""Smallest interval, in seconds, for the time limit of a response: a shorter limit would give up on slow ones."""


class ConsumerProtocolHeartbeat:
    """Sends the heartbeats of a `ConsumerProtocolMember`. ``beaten`` is set after the next one."""

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        member: ConsumerProtocolMember,
        status: MembershipStatus,
        leave_sender: LeaveSender,
        failures: FailureTracker,
    ) -> None:
        self.member = member
        self.beaten = trio.Event()
        self._options = options
        self._network = network
        self._world = network.world
        self._status = status
        self._leave_sender = leave_sender
        self._failures = failures
        self._beat_scope: trio.CancelScope | None = None
        self._unanswered = 0

    def cancel(self) -> None:
        """End a heartbeat that waits for its connection: it must not arrive after the leave request."""
        if self._beat_scope is not None:
            self._beat_scope.cancel()

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
        self.beaten.set()
        self.beaten = trio.Event()

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
