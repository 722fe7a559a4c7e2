"""The tasks that keep a consumer in its group: one that joins when asked to, one that sends heartbeats.

They drive a `ClassicMember` and run on their own, so that a cancelled `poll` loses no finished join (`client/GRP-22`).
What must happen in the user's own task, callbacks and commits, is the `Rebalancer`'s business.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import trio

from triokafka.assignors import Assignment
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.group_offsets import COORDINATOR, GroupIdentity
from triokafka.client.consumer.membership.classic import ClassicMember, State, Step
from triokafka.client.consumer.membership.heartbeat import HeartbeatClock
from triokafka.client.consumer.subscription import SubscriptionState
from triokafka.client.consumer.trouble import Troubles
from triokafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaConnectionError,
    KafkaError,
    MaxPollIntervalExceededError,
    NodeNotReadyError,
    UnknownMemberIdError,
)
from triokafka.network.backoff import Backoff
from triokafka.network.cluster import NetworkClient
from triokafka.network.tasks import BackgroundTasks
from triokafka.protocol.api.leave_group import LeaveGroupRequest
from triokafka.protocol.api.sync_group import SyncGroupRequest
from triokafka.protocol.message import Request, Response

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_JOIN_GRACE_MS: Final = 5_000
"""The coordinator may hold a join for the whole rebalance timeout; its answer needs a little more."""
_LEAVE_TIMEOUT: Final = 5.0
_LAST_INFLEXIBLE_JOIN: Final = 5
_LAST_INFLEXIBLE_SYNC: Final = 3
_LAST_SINGLE_LEAVE: Final = 2
_BROKEN_MEETINGS: Final = 2
"""librdkafka's mock cluster offers newer versions of these, but cannot read them, and hangs up: after this many broken
connections the older forms are used, which every broker understands."""


class GroupMembership:
    """Membership of one consumer in one group.

    ``progress`` counts what the user has asked for so far: as long as it changes, the user is alive. ``on_change`` is
    called when the caller who waits for records should look again. ``assignment`` is what the last finished join
    brought, until the caller takes it.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        subscription: SubscriptionState,
        member: ClassicMember,
        tasks: BackgroundTasks,
        troubles: Troubles,
        *,
        progress: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self.member = member
        self.clock = HeartbeatClock(
            interval=options.heartbeat_interval_ms / 1000,
            session_timeout=options.session_timeout_ms / 1000,
            max_poll_interval=options.max_poll_interval_ms / 1000,
            now=network.world.now(),
        )
        self.group_id = member.config.group_id
        self.joined_at: float | None = None
        self.dealt_counts: dict[str, int] | None = None
        """Partition counts by topic when this member, as leader, dealt them (`client/CO-6`)."""
        self._options = options
        self._network = network
        self._world = network.world
        self._subscription = subscription
        self._tasks = tasks
        self._troubles = troubles
        self._progress = progress
        self._seen_progress = -1
        self._in_call = 0
        self._on_change = on_change
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)
        self._join_scope: trio.CancelScope | None = None
        self._assignment: Assignment | None = None
        self._error: KafkaError | None = None
        self._leaving = 0
        self._broken_meetings = 0
        self._changed = trio.Event()
        self._what = f"joining group {self.group_id!r}"
        self._beating = f"sending heartbeats to group {self.group_id!r}"

    # ---------------------------------------------------------------- what the caller asks

    @property
    def joining(self) -> bool:
        """Whether a join is under way, or has to wait until the member has left."""
        return self._join_scope is not None or self._leaving > 0

    @property
    def identity(self) -> GroupIdentity:
        """As whom this member commits."""
        generation, member_id = self.member.identity
        return GroupIdentity(generation, member_id, self.member.config.group_instance_id)

    def take_error(self) -> KafkaError | None:
        """Why the membership failed, once; afterwards joining is tried again. A fenced member stays out for good."""
        error = self._error
        if not isinstance(error, FencedInstanceIdError):
            self._error = None
        return error

    def take_assignment(self) -> Assignment | None:
        """What the last join brought, once."""
        assignment, self._assignment = self._assignment, None
        # Between the join and now the group may have gone on without this member.
        return assignment if self.member.state is State.STABLE else None

    def start_join(self) -> None:
        """Begin to join, unless that is under way."""
        if self._join_scope is None:
            self._join_scope = trio.CancelScope()
            self._assignment = None
            self._tasks.start(self._join, self._join_scope, name=f"kafka join of group {self.group_id}")

    def enter_call(self) -> None:
        """The user waits for records: however long it takes, it is not the user who is slow."""
        self._in_call += 1
        self.clock.polled(self._world.now())

    def leave_call(self) -> None:
        """The user has the records, or the wait is over."""
        self._in_call -= 1
        self.clock.polled(self._world.now())

    def commit_failed(self, error: CommitFailedError) -> None:
        """A commit found out that the group has gone on."""
        cause = error.__cause__
        if isinstance(cause, UnknownMemberIdError):
            self.member.forget_membership("a commit was refused", keep_member_id=False)
        elif isinstance(cause, IllegalGenerationError):
            self.member.forget_membership("a commit was refused", keep_member_id=True)
        else:
            self.member.request_rejoin("a commit met a rebalance")
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._on_change()

    # ---------------------------------------------------------------- join

    async def _join(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await self._join_until_done()
        except KafkaError as error:
            self._error = error
        finally:
            if self._join_scope is scope:
                self._join_scope = None
        self._tell()

    async def _join_until_done(self) -> None:
        member = self.member
        failures = 0
        step = Step.JOIN_AGAIN
        while True:
            if step is Step.FIND_COORDINATOR:
                self._network.forget_coordinator(self.group_id)
            if step in (Step.FIND_COORDINATOR, Step.BACK_OFF):
                failures += 1
                await trio.sleep(self._backoff.delay(failures, self._world.random.random()))
            try:
                step = await self._join_once()
            except KafkaError as error:
                member.interrupted()
                if not (error.retriable or isinstance(error, NodeNotReadyError)):
                    raise
                logger.debug("%s failed, trying again: %s", self._what, error)
                self._troubles.failed(self._what, error, self._world.now())
                self._network.request_metadata_update()
                step = Step.FIND_COORDINATOR
                continue
            if step is Step.DONE:
                now = self._world.now()
                self._troubles.succeeded(self._what)
                self.clock.reset(now)
                self.joined_at = now
                self._assignment = member.assignment
                return

    async def _join_once(self) -> Step:
        member = self.member
        node = await self._network.find_coordinator(self.group_id)
        timeout_ms = max(self._options.request_timeout_ms, self._options.max_poll_interval_ms + _JOIN_GRACE_MS)
        request = member.join(self._subscription.topics, self._subscription.assignment)
        logger.info("joining group %r: %s", self.group_id, request.reason)
        joined = await self._rendezvous(node.node_id, request, timeout_ms, _LAST_INFLEXIBLE_JOIN)
        step = member.joined(joined)
        if step is not Step.SYNC:
            return step
        self.clock.reset(self._world.now())
        self._changed.set()
        self.dealt_counts = None
        dealt: Mapping[str, Assignment] = {}
        if member.deals:
            dealt = await self._deal()
        sync: SyncGroupRequest = member.sync(dealt)
        synced = await self._rendezvous(node.node_id, sync, timeout_ms, _LAST_INFLEXIBLE_SYNC)
        return member.synced(synced)

    async def _rendezvous(self, node_id: int, request: Request[R], timeout_ms: float, inflexible: int) -> R:
        """Send a request that waits for all members of the group."""
        version = inflexible if self._broken_meetings >= _BROKEN_MEETINGS else None
        try:
            return await self._network.send(
                node_id, request, timeout_ms=timeout_ms, purpose=COORDINATOR, max_version=version
            )
        except KafkaConnectionError:
            self._broken_meetings += 1
            raise

    async def _deal(self) -> Mapping[str, Assignment]:
        """Find out how many partitions there are, and let the assignor deal them (`client/GRP-16`)."""
        topics = self.member.group_topics
        self._network.metadata.set_topics(topics)
        if any(topic not in self._network.cluster.topics for topic in topics):
            await self._network.refresh_metadata()
        counts = self.partition_counts(topics)
        missing = [topic for topic in topics if topic not in counts]
        if missing:
            logger.warning("group %r subscribes to topics that do not exist (yet): %s", self.group_id, missing)
        self.dealt_counts = counts
        return self.member.deal(counts)

    def partition_counts(self, topics: tuple[str, ...]) -> dict[str, int]:
        """Partition counts as the metadata has them now; unknown topics are left out."""
        cluster = self._network.cluster
        counts = {topic: cluster.partition_count(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count}

    # ---------------------------------------------------------------- heartbeats

    async def run_heartbeats(self) -> None:
        """Send heartbeats while the member is in the group, and watch both clocks, until cancelled."""
        while True:
            self._changed = trio.Event()
            if not self.member.heartbeats:
                self._troubles.succeeded(self._beating)
                await self._changed.wait()
                continue
            now = self._world.now()
            self._note_progress(now)
            if self.clock.poll_expired(now) and self.member.state is State.STABLE:
                await self._leave_slow_user(now)
                continue
            if self.clock.session_expired(now):
                logger.warning(
                    "group %r: the coordinator has not answered for the whole session timeout", self.group_id
                )
                self._network.forget_coordinator(self.group_id)
                self.clock.reset(now)
            until = self.clock.next_at
            if self.member.state is State.STABLE:
                until = min(until, self.clock.poll_expires_at)
            if until > now:
                with trio.move_on_after(until - now):
                    await self._changed.wait()
                self._notice_blocked_loop(self._world.now() - until)
                continue
            await self._beat()

    def _notice_blocked_loop(self, late: float) -> None:
        """Nothing ran for so long that heartbeats were late: code that blocks, in some task of the program."""
        if late > self.clock.interval:
            logger.warning(
                "group %r: a heartbeat is %.1f s late because the Trio loop was blocked; the group may have given this"
                " member's partitions away. Run code that blocks in a thread (trio.to_thread.run_sync)",
                self.group_id,
                late,
            )
            # The coordinator's silence in the meantime says nothing about the coordinator.
            self.clock.reset(self._world.now() - self.clock.interval)

    def _note_progress(self, now: float) -> None:
        progress = self._progress()
        if self._in_call or progress != self._seen_progress:
            self._seen_progress = progress
            self.clock.polled(now)

    async def _beat(self) -> None:
        member = self.member
        sent_as = member.identity
        self.clock.sent(self._world.now())
        failure: KafkaError | None = None
        try:
            with trio.fail_after(self.clock.session_timeout):
                node = await self._network.find_coordinator(self.group_id)
                response = await self._network.send(node.node_id, member.heartbeat(), purpose=COORDINATOR)
            self.clock.answered(self._world.now())
            self._troubles.succeeded(self._beating)
            before = member.needs_rejoin
            if not member.heartbeat_answered(response.error_code, sent_as):
                self._network.forget_coordinator(self.group_id)
                self.clock.failed(self._world.now(), self._backoff.initial)
            if member.needs_rejoin is not None and before is None:
                logger.info("group %r: %s", self.group_id, member.needs_rejoin)
                self._on_change()
            return
        except trio.TooSlowError:
            failure = NodeNotReadyError("the coordinator did not answer a heartbeat in time")
        except KafkaError as error:
            failure = error
            if not error.retriable:
                self._error = error
                self._on_change()
        self._troubles.failed(self._beating, failure, self._world.now())
        self._network.forget_coordinator(self.group_id)
        self.clock.failed(self._world.now(), self._backoff.initial)

    async def _leave_slow_user(self, now: float) -> None:
        """The user's loop is stuck: give the partitions to members that work (KIP-62)."""
        silent = now - self.clock.last_poll
        self._error = MaxPollIntervalExceededError(
            f"no records were asked for in {silent:.0f} s, more than max_poll_interval_ms="
            f"{self._options.max_poll_interval_ms}, so this member left group {self.group_id!r} and its partitions went"
            " to others. The next call joins again. Raise max_poll_interval_ms, or lower max_poll_records"
        )
        logger.warning("%s", self._error)
        if self.member.leaves:
            await self._send_leave(self.member.leave("max_poll_interval_ms was exceeded"))
        self.member.forget_membership("max_poll_interval_ms was exceeded", keep_member_id=False)
        self._on_change()

    # ---------------------------------------------------------------- leaving

    async def leave(self, reason: str) -> None:
        """End the membership on purpose: one request, no retries (`client/GRP-23`)."""
        send = self._forget_all(reason)
        if send is not None:
            await self._send_leave(send)

    def start_leaving(self, reason: str, first: Callable[[], Awaitable[None]]) -> None:
        """The same in the background, after ``first``. A join that is asked for meanwhile begins afterwards."""
        self._leaving += 1
        self._tasks.start(self._leave_later, self._forget_all(reason), first, name=f"kafka leave of {self.group_id}")

    async def _leave_later(
        self, send: Callable[[int], LeaveGroupRequest] | None, first: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await first()
            if send is not None:
                await self._send_leave(send)
        finally:
            self._leaving -= 1
        self._tell()

    def _forget_all(self, reason: str) -> Callable[[int], LeaveGroupRequest] | None:
        """Be no member from now on. Returns what builds the request that tells the coordinator, if it must be told."""
        if self._join_scope is not None:
            self._join_scope.cancel()
            self._join_scope = None
        self._assignment = self._error = None
        self._troubles.succeeded(self._what)
        send = self.member.leave(reason) if self.member.leaves else None
        self.member.left()
        self._changed.set()
        return send

    async def _send_leave(self, build: Callable[[int], LeaveGroupRequest]) -> None:
        try:
            with trio.move_on_after(_LEAVE_TIMEOUT):
                node = await self._network.find_coordinator(self.group_id)
                version = _LAST_SINGLE_LEAVE if self._broken_meetings >= _BROKEN_MEETINGS else None
                await self._network.send(
                    node.node_id, build, api=LeaveGroupRequest, purpose=COORDINATOR, max_version=version
                )
        except KafkaError as error:
            logger.info("leaving group %r failed, its session will expire instead: %s", self.group_id, error)
