"""Heartbeats under the classic protocol: sends the request, and processes the answer."""

from __future__ import annotations

import logging

import trio

from triokafka import errors
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import COORDINATOR
from triokafka.client.consumer.membership.classic_member import ClassicMember, ClassicState
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.network.network_client import NetworkClient

logger = logging.getLogger(__name__)


class ClassicHeartbeat:
    """Sends the heartbeats of a `ClassicMember`."""

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        member: ClassicMember,
        clock: HeartbeatClock,
        status: MembershipStatus,
        failures: FailureTracker,
    ) -> None:
        self.member = member
        self.clock = clock
        self._network = network
        self._world = network.world
        self._status = status
        self._failures = failures
        self._retry_backoff = options.retry_backoff_ms / 1000
        self._unanswered = 0
        self._coordinator: int | None = None
        """The coordinator of the last heartbeat."""

    @property
    def heartbeats(self) -> bool:
        return self.member.heartbeats

    @property
    def is_member(self) -> bool:
        return self.member.state is ClassicState.STABLE

    def due_at(self, now: float) -> float:
        if self.clock.session_expired(now):
            silent = "it has not answered for the whole session timeout"
            logger.warning("group %r: looking for another coordinator: %s", self._status.group_id, silent)
            self._give_up_coordinator(silent)
            self.clock.reset(now)
        return self.clock.next_at

    async def beat(self) -> None:
        member = self.member
        sent_as = member.identity
        self.clock.sent(self._world.now())
        failure: errors.KafkaError | None = None
        try:
            with trio.fail_after(self._answer_limit()):
                node = await self._network.find_coordinator(self._status.group_id)
                self._coordinator = node.node_id
                response = await self._network.send(node.node_id, member.heartbeat(), purpose=COORDINATOR)
            self._unanswered = 0
            self.clock.answered(self._world.now())
            self._failures.succeeded(self._status.heartbeat_activity)
            before = member.needs_rejoin
            if not member.heartbeat_answered(response.error_code, sent_as):
                self._network.forget_coordinator(self._status.group_id)
                self.clock.failed(self._world.now(), self._retry_backoff)
            answer = errors.for_code(response.error_code)("the answer to a heartbeat") if response.error_code else None
            self._status.note_heartbeat(self.clock.last_sent, answer)
            if member.needs_rejoin is not None and before is None:
                logger.info("group %r: %s", self._status.group_id, member.needs_rejoin)
                self._status.on_change()
            return
        except trio.TooSlowError:
            self._unanswered += 1
            failure = errors.NodeNotReadyError("the coordinator did not answer a heartbeat in time")
            self._give_up_coordinator("a heartbeat is overdue")
        except errors.KafkaError as error:
            failure = error
            if not error.retriable:
                self._status.error = error
                self._status.on_change()
        self._status.note_heartbeat(self.clock.last_sent, failure)
        self._failures.failed(self._status.heartbeat_activity, failure, self._world.now())
        self._network.forget_coordinator(self._status.group_id)
        self.clock.failed(self._world.now(), self._retry_backoff)

    def _answer_limit(self) -> float:
        """Return the time limit of a heartbeat in seconds.

        A third of the session timeout, so that the next heartbeat is still in time; longer after each late response,
        for a slow coordinator.
        """
        return self.clock.session_timeout * min(1.0, (1 + self._unanswered) / 3)

    def _give_up_coordinator(self, reason: str) -> None:
        """Close the heartbeat connection, which may be dead, and look the coordinator up again."""
        if self._coordinator is not None:
            self._network.close_as_dead(self._coordinator, COORDINATOR, reason)
        self._network.forget_coordinator(self._status.group_id)
