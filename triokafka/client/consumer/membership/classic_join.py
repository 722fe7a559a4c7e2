"""Joining a group under the classic protocol: the task that sends JoinGroup and SyncGroup."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeVar

import trio

from triokafka import errors
from triokafka.assignors import Assignment
from triokafka.backoff import Backoff
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import COORDINATOR
from triokafka.client.consumer.membership.classic_member import NO_GENERATION, ClassicMember, ClassicState, JoinStep
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.held_request import HeldRequest
from triokafka.client.consumer.membership.leader_assignment import LeaderAssignment
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.join_group import JoinGroupRequest
from triokafka.protocol.api.sync_group import SyncGroupRequest
from triokafka.protocol.message import Request, Response

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_NEVER: Final = float("inf")
_JOIN_GRACE_MS: Final = 5_000
"""Added to the rebalance timeout, for which the coordinator may hold a join. Kafka's own consumer adds the same
(``JOIN_GROUP_TIMEOUT_LAPSE``)."""
_LAST_INFLEXIBLE_JOIN: Final = 5
_LAST_INFLEXIBLE_SYNC: Final = 3
_NO_MEMBER_WITHOUT_ID: Final = 4
"""The first version of JoinGroup in which a join without an id creates no dynamic member."""
_MOST_BROKEN: Final = 2
_MOST_AGAIN: Final = 5
"""Joins in a row that follow each other at once; a coordinator that refuses more gets them after a back-off."""
_REBALANCE: Final = "rebalance"
"""The purpose of the connection for requests that the coordinator holds. A broker reads nothing behind a join that it
holds. On the same connection, commits of kept partitions, heartbeats and a leave request would wait for the slowest
member of the group."""


class ClassicJoin:
    """Joins in the background. The assignment of a join waits until the user's task takes it."""

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        subscription: SubscriptionState,
        member: ClassicMember,
        leader: LeaderAssignment,
        clock: HeartbeatClock,
        status: MembershipStatus,
        tasks: BackgroundTasks,
        failures: FailureTracker,
    ) -> None:
        self._options = options
        self._network = network
        self._world = network.world
        self._subscription = subscription
        self._member = member
        self._leader = leader
        self._clock = clock
        self._status = status
        self._tasks = tasks
        self._failures = failures
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)
        self._scope: trio.CancelScope | None = None
        self._one_join = trio.Lock()
        self._assignment: Assignment | None = None
        self._broken = 0
        limit_ms = options.connections_max_silence_ms
        self._patience = limit_ms / 1000 if limit_ms > 0 else _NEVER

    @property
    def needs_old_versions(self) -> bool:
        """Whether to send the versions from before flexible encoding, which every broker understands.

        librdkafka's mock cluster offers newer versions of group requests, but cannot read them, and disconnects: this
        becomes true after two broken connections.
        """
        return self._broken >= _MOST_BROKEN

    @property
    def is_under_way(self) -> bool:
        """Whether the task runs."""
        return self._scope is not None

    @property
    def has_assignment(self) -> bool:
        """Whether `take_assignment` would return an assignment."""
        return self._assignment is not None

    def take_assignment(self) -> Assignment | None:
        """Return the assignment of the last join, once."""
        assignment, self._assignment = self._assignment, None
        # Since the join the group may have removed this member.
        return assignment if self._member.state is ClassicState.STABLE else None

    def start(self) -> None:
        """Begin to join, unless a join is under way."""
        if self._scope is None:
            self._scope = trio.CancelScope()
            self._assignment = None
            self._tasks.start(self._join, self._scope, name=f"kafka join of group {self._status.group_id}")

    def cancel(self) -> None:
        """End the join, because the membership ends."""
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None
        self._assignment = None
        self._failures.succeeded(self._status.join_activity)
        self._leader.abandon()

    async def _join(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with self._one_join:
                    # A cancelled join may have left a thread running this assignor; nothing can stop it.
                    await self._leader.wait_for_thread()
                    await self._join_until_done()
        except errors.KafkaError as error:
            self._status.error = error
        finally:
            if self._scope is scope:
                self._scope = None
        self._status.notify()

    async def _join_until_done(self) -> None:
        member = self._member
        failures = again = 0
        step = JoinStep.JOIN_AGAIN
        while True:
            again = again + 1 if step is JoinStep.JOIN_AGAIN else 0
            if step is JoinStep.FIND_COORDINATOR:
                self._network.forget_coordinator(self._status.group_id)
            if again > _MOST_AGAIN or step in (JoinStep.FIND_COORDINATOR, JoinStep.BACK_OFF):
                failures += 1
                await trio.sleep(self._backoff.delay(failures, self._world.random.random()))
            try:
                step = await self._join_once()
            except errors.KafkaError as error:
                member.interrupted()
                if not (error.retriable or isinstance(error, errors.NodeNotReadyError)):
                    raise
                logger.debug("%s failed, trying again: %s", self._status.join_activity, error)
                self._failures.failed(self._status.join_activity, error, self._world.now())
                self._network.request_metadata_update()
                step = JoinStep.FIND_COORDINATOR
                continue
            if member.lost and self._subscription.assignment:
                # The group removed this member while it rejoined with partitions. Give them up as lost before it
                # becomes a member again; otherwise it would commit positions that the new owners have passed.
                return
            if step is JoinStep.DONE:
                now = self._world.now()
                self._failures.succeeded(self._status.join_activity)
                self._clock.reset(now)
                self._status.joined_at = now
                self._status.rebalances += 1
                self._assignment = member.assignment
                return

    async def _join_once(self) -> JoinStep:
        member = self._member
        node = await self._network.find_coordinator(self._status.group_id)
        timeout_ms = max(self._options.request_timeout_ms, self._options.max_poll_interval_ms + _JOIN_GRACE_MS)
        request = member.join(self._subscription.topics, self._subscription.assignment)
        logger.info("joining group %r: %s", self._status.group_id, request.reason)
        joined = await self._send_held(node.node_id, request, timeout_ms, _LAST_INFLEXIBLE_JOIN)
        step = member.joined(joined)
        if step is not JoinStep.SYNC:
            return step
        self._clock.reset(self._world.now())
        self._status.changed.set()
        self._leader.assigned_layout = None
        assignments: Mapping[str, Assignment] = {}
        if member.must_assign:
            assignments = await self._leader.compute()
        sync: SyncGroupRequest = member.sync(assignments)
        synced = await self._send_held(node.node_id, sync, timeout_ms, _LAST_INFLEXIBLE_SYNC)
        return member.synced(synced)

    async def _send_held(self, node_id: int, request: Request[R], timeout_ms: float, inflexible: int) -> R:
        """Send a request that waits for all members of the group; repeat it while its response seems to be lost."""
        now = self._world.now()
        is_join = isinstance(request, JoinGroupRequest)
        # the coordinator refuses heartbeats without a generation
        asks = is_join and self._member.generation != NO_GENERATION
        wait = HeldRequest(now, self._patience, self._options.max_poll_interval_ms / 1000, asks=asks)
        while True:
            version = inflexible if self.needs_old_versions else None
            scope = trio.CancelScope()
            self._tasks.start(
                self._watch_held,
                scope,
                wait,
                node_id,
                is_join,
                name=f"kafka rebalance request of group {self._status.group_id}",
            )
            try:
                return await self._network.send(
                    node_id, request, timeout_ms=timeout_ms, purpose=_REBALANCE, max_version=version
                )
            except errors.KafkaConnectionError:
                if not wait.sends_again:
                    self._broken += 1
                    raise
                if is_join and self._member.state is not ClassicState.JOINING:
                    raise
                if not is_join and self._member.state is not ClassicState.SYNCING:
                    raise
            finally:
                scope.cancel()
            wait.sent_again(self._world.now())

    async def _watch_held(self, scope: trio.CancelScope, wait: HeldRequest, node_id: int, is_join: bool) -> None:
        """Watch a request that waits for all members: close its connection when its response seems to be lost."""
        with scope:
            first_look = min(wait.first_look_at - self._world.now(), self._clock.session_timeout / 3)
            await trio.sleep(max(0.0, first_look))
            while True:
                # While the member waits for its assignment, the heartbeat task asks.
                if wait.asks:
                    answer = await self._ask_about_member(node_id)
                else:
                    answer = errors.NodeNotReadyError if is_join else errors.RebalanceInProgressError
                now = self._world.now()
                gone = not is_join and self._member.state is not ClassicState.SYNCING
                if gone or (wait.is_lost(now, answer) and self._may_repeat(node_id)):
                    break
                self._note_long_wait(wait, now)
                await trio.sleep(self._clock.interval)
            wait.sends_again = True
            reason = "the response that all members of the group get seems to be lost"
            self._network.disconnect(node_id, reason, purpose=_REBALANCE)

    def _may_repeat(self, node_id: int) -> bool:
        """Whether the coordinator takes a second request in place of the first.

        Before version 4 of JoinGroup each join without an id creates a member. Later versions only return an id
        (KIP-394), or replace the static member.
        """
        if self._member.member_id:
            return True
        try:
            return self._network.version_for(node_id, JoinGroupRequest, purpose=_REBALANCE) >= _NO_MEMBER_WITHOUT_ID
        except errors.KafkaError:
            return False  # without a connection nothing was sent that could be lost

    async def _ask_about_member(self, node_id: int) -> type[errors.KafkaError] | None:
        """Send a heartbeat of the present identity, and return the class of its error; `NodeNotReadyError` if the
        coordinator does not answer."""
        try:
            with trio.fail_after(self._clock.session_timeout):
                response = await self._network.send(node_id, self._member.heartbeat(), purpose=COORDINATOR)
        except (trio.TooSlowError, errors.KafkaError):
            return errors.NodeNotReadyError
        return errors.for_code(response.error_code) if response.error_code else None

    def _note_long_wait(self, wait: HeldRequest, now: float) -> None:
        """Report a wait for the group that exceeds the time limit of calls; a wait for other members is no error."""
        if now - wait.began_at >= self._options.default_api_timeout_ms / 1000:
            why = "waits for other members of the group" if wait.confirmed else "has not answered yet"
            quietly = wait.confirmed or not wait.asks  # other members may delay a first join, too
            self._failures.failed(
                self._status.join_activity,
                errors.KafkaError(f"the coordinator {why}"),
                now,
                quietly=quietly,
                since=wait.began_at,
            )
            self._status.on_change()
