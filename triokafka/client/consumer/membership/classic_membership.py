"""The tasks that keep a consumer in its group under the classic protocol: one joins, one sends heartbeats.

They drive a `ClassicMember`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import trio

from triokafka.assignors import Assignment
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import COORDINATOR, GroupIdentity
from triokafka.client.consumer.membership.classic_member import NO_GENERATION, ClassicMember, State, Step
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.held_request import HeldRequest
from triokafka.client.consumer.membership.membership import GroupMembership
from triokafka.client.consumer.membership.topic_layout import TopicLayout, TopicLayoutCache
from triokafka.client.consumer.subscription import SubscriptionState
from triokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.join_group import JoinGroupRequest
from triokafka.protocol.api.leave_group import LeaveGroupRequest
from triokafka.protocol.api.sync_group import SyncGroupRequest
from triokafka.protocol.message import Request, Response

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_NEVER: Final = float("inf")
_JOIN_GRACE_MS: Final = 5_000
"""The coordinator may hold a join for the whole rebalance timeout; its answer needs a little more."""
_LAST_INFLEXIBLE_JOIN: Final = 5
_LAST_INFLEXIBLE_SYNC: Final = 3
_LAST_SINGLE_LEAVE: Final = 2
_BROKEN_MEETINGS: Final = 2
"""librdkafka's mock cluster offers newer versions of these, but cannot read them, and hangs up: after this many broken
connections the older forms are used, which every broker understands."""
_MUCH_TO_DEAL: Final = 1_000
"""With so many members and partitions together an assignor may take longer than others should wait for the event loop:
with 1,000 and 10,000 of them, and a mixture of subscriptions, seconds."""
_MEETING: Final = "rebalance"
"""The purpose of the connection for what waits for others: brokers read nothing behind a join that they hold. Commits
of what is kept, heartbeats and a goodbye would wait for the slowest member of the group."""


class ClassicMembership(GroupMembership):
    """Membership under the classic protocol. What the last finished join brought waits until the caller takes it."""

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        subscription: SubscriptionState,
        member: ClassicMember,
        tasks: BackgroundTasks,
        failures: FailureTracker,
        *,
        progress: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        clock = HeartbeatClock(
            interval=options.heartbeat_interval_ms / 1000,
            session_timeout=options.session_timeout_ms / 1000,
            max_poll_interval=options.max_poll_interval_ms / 1000,
        )
        super().__init__(options, network, clock, tasks, failures, progress=progress, on_change=on_change)
        self.member = member
        self.dealt: TopicLayout | None = None
        """What there was when this member, as leader, dealt it."""
        self._layouts = TopicLayoutCache()
        self._subscription = subscription
        self._join_scope: trio.CancelScope | None = None
        self._one_join = trio.Lock()
        self._dealing = trio.Event()
        self._dealing.set()  # nothing is dealt in a thread
        self._in_thread = f"dealing the partitions of group {self.group_id!r}"
        self._assignment: Assignment | None = None
        self._broken_meetings = 0
        limit_ms = options.connections_max_silence_ms
        self._rendezvous_patience = limit_ms / 1000 if limit_ms > 0 else _NEVER
        self._unanswered_beats = 0
        self._beating_at: int | None = None
        """The coordinator that the last heartbeat went to."""

    # ---------------------------------------------------------------- what the caller asks

    @property
    def joining(self) -> bool:
        """Whether a join is under way, or has to wait until the member has left."""
        return self._join_scope is not None or self._leaving > 0

    @property
    def settled(self) -> bool:
        return self.member.needs_rejoin is None and not self.joining

    @property
    def state(self) -> str:
        return self.member.state.value

    @property
    def identity(self) -> GroupIdentity:
        generation, member_id = self.member.identity
        return GroupIdentity(generation, member_id, self.member.config.group_instance_id)

    @property
    def brings_assignment(self) -> bool:
        """Whether `take_assignment` has something to give."""
        return self._assignment is not None

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

    def commit_failed(self, error: CommitFailedError) -> None:
        cause = error.__cause__
        if isinstance(cause, UnknownMemberIdError):
            self.member.forget_membership("a commit was refused", keep_member_id=False)
        elif isinstance(cause, IllegalGenerationError):
            self.member.forget_membership("a commit was refused", keep_member_id=True)
        elif self.member.state is State.STABLE:
            # While it joins or syncs that is the rebalance in which it takes part.
            self.member.request_rejoin("a commit met a rebalance")
        self._tell()

    # ---------------------------------------------------------------- join

    async def _join(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with self._one_join:
                    # One that was cancelled may have left a thread, which nothing stops, dealing with this assignor.
                    await self._until_dealt()
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
                self._failures.failed(self._what, error, self._world.now())
                self._network.request_metadata_update()
                step = Step.FIND_COORDINATOR
                continue
            if member.lost and self._subscription.assignment:
                # Put out while it rejoined with partitions in hand: they are to be given up as lost before it becomes
                # a member anew, or it would commit positions that others have passed meanwhile.
                return
            if step is Step.DONE:
                now = self._world.now()
                self._failures.succeeded(self._what)
                self.clock.reset(now)
                self.joined_at = now
                self.rebalances += 1
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
        self.dealt = None
        dealt: Mapping[str, Assignment] = {}
        if member.deals:
            dealt = await self._deal()
        sync: SyncGroupRequest = member.sync(dealt)
        synced = await self._rendezvous(node.node_id, sync, timeout_ms, _LAST_INFLEXIBLE_SYNC)
        return member.synced(synced)

    async def _rendezvous(self, node_id: int, request: Request[R], timeout_ms: float, inflexible: int) -> R:
        """Send a request that waits for all members of the group, again while its answer seems to be lost."""
        now = self._world.now()
        is_join = isinstance(request, JoinGroupRequest)
        asks = is_join and self.member.generation != NO_GENERATION  # the coordinator refuses all other heartbeats
        wait = HeldRequest(now, self._rendezvous_patience, asks=asks)
        while True:
            version = inflexible if self._broken_meetings >= _BROKEN_MEETINGS else None
            scope = trio.CancelScope()
            self._tasks.start(
                self._watch_rendezvous, scope, wait, node_id, is_join, name=f"kafka rendezvous of group {self.group_id}"
            )
            try:
                return await self._network.send(
                    node_id, request, timeout_ms=timeout_ms, purpose=_MEETING, max_version=version
                )
            except KafkaConnectionError:
                if not wait.sends_again:
                    self._broken_meetings += 1
                    raise
                if is_join and self.member.state is not State.JOINING:
                    raise
                if not is_join and self.member.state is not State.SYNCING:
                    raise
            finally:
                scope.cancel()
            wait.sent_again(self._world.now())

    async def _watch_rendezvous(self, scope: trio.CancelScope, wait: HeldRequest, node_id: int, is_join: bool) -> None:
        """Look after a request that waits for all members: close its connection when its answer seems to be lost."""
        with scope:
            has_name = bool(self.member.member_id)  # sent again without one, a join would make a second member
            first_look = min(wait.first_look_at - self._world.now(), self.clock.session_timeout / 3)
            await trio.sleep(max(0.0, first_look))
            while True:
                # While the member waits for its assignment, the task that sends heartbeats asks.
                if wait.asks:
                    answer = await self._ask_about_member(node_id)
                else:
                    answer = NodeNotReadyError if is_join else RebalanceInProgressError
                now = self._world.now()
                gone = not is_join and self.member.state is not State.SYNCING
                if gone or (wait.is_lost(now, answer) and has_name):
                    break
                self._note_long_wait(wait, now)
                await trio.sleep(self.clock.interval)
            wait.sends_again = True
            reason = "the answer that all members of the group get seems to be lost"
            self._network.disconnect(node_id, reason, purpose=_MEETING)

    async def _ask_about_member(self, node_id: int) -> type[KafkaError] | None:
        """Send a heartbeat of the present identity, and return the class of its error; `NodeNotReadyError` when the
        coordinator does not answer."""
        try:
            with trio.fail_after(self.clock.session_timeout):
                response = await self._network.send(node_id, self.member.heartbeat(), purpose=COORDINATOR)
        except (trio.TooSlowError, KafkaError):
            return NodeNotReadyError
        return for_code(response.error_code) if response.error_code else None

    def _note_long_wait(self, wait: HeldRequest, now: float) -> None:
        """Report a wait for the group that takes longer than calls should; one that is in order is no error."""
        if now - wait.began_at >= self._options.default_api_timeout_ms / 1000:
            why = "waits for other members of the group" if wait.confirmed else "has not answered yet"
            quietly = wait.confirmed or not wait.asks  # a first join may be held up by others, too
            self._failures.failed(
                self._what, KafkaError(f"the coordinator {why}"), now, quietly=quietly, since=wait.began_at
            )
            self._on_change()

    async def _deal(self) -> Mapping[str, Assignment]:
        """Find out how many partitions there are, and let the assignor deal them."""
        topics = self.member.group_topics
        self._network.metadata.set_topics(topics)
        if any(topic not in self._network.cluster.topics for topic in topics):
            await self._network.refresh_metadata()
        layout = self.layout()
        missing = [topic for topic in topics if topic not in layout.counts]
        if missing:
            logger.warning("group %r subscribes to topics that do not exist (yet): %s", self.group_id, missing)
        self.dealt = layout
        deal = self.member.dealing(layout.counts, layout.racks)
        if self.member.group_size + sum(layout.counts.values()) < _MUCH_TO_DEAL:
            return deal()
        # In a task of its own: if the membership ends meanwhile, neither an outcome nor an error is about the next one.
        await trio.lowlevel.checkpoint_if_cancelled()
        outcome: list[dict[str, Assignment] | Exception] = []
        self._dealing = trio.Event()
        self._tasks.start(self._deal_in_thread, deal, outcome, name=f"kafka dealing of group {self.group_id}")
        await self._until_dealt()
        dealt = outcome[0]
        if isinstance(dealt, Exception):
            raise dealt
        return dealt

    async def _until_dealt(self) -> None:
        """An assignor that never ends is noticed by whoever waits for records."""
        if not self._dealing.is_set():
            names = [assignor.name for assignor in self.member.assignors]
            self._failures.failed(self._in_thread, KafkaError(f"{names} has not returned"), self._world.now())
        await self._dealing.wait()
        self._failures.succeeded(self._in_thread)

    async def _deal_in_thread(
        self, deal: Callable[[], dict[str, Assignment]], outcome: list[dict[str, Assignment] | Exception]
    ) -> None:
        """Closing the consumer, which ends this task, does not wait for the thread: nobody joins with it any more."""
        try:
            outcome.append(await self._world.run_in_abandonable_thread(deal))
        except Exception as error:
            outcome.append(error)
        self._dealing.set()

    def layout(self) -> TopicLayout:
        """The topics of the group as the metadata has them now; with racks if any member says in which it is."""
        member = self.member
        return self._layouts.of(self._network.cluster, member.group_topics, in_racks=member.is_in_racks)

    # ---------------------------------------------------------------- heartbeats

    async def run_heartbeats(self) -> None:
        while True:
            self._changed = trio.Event()
            if not self.member.heartbeats:
                self._failures.succeeded(self._beating)
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
                self._give_up_coordinator("it has not answered for the whole session timeout")
                self.clock.reset(now)
            until = self.clock.next_at
            if self.member.state is State.STABLE:
                until = min(until, self.clock.poll_expires_at)
            if until > now:
                await self._wait_until(until)
                continue
            await self._beat()

    async def _beat(self) -> None:
        member = self.member
        sent_as = member.identity
        self.clock.sent(self._world.now())
        failure: KafkaError | None = None
        try:
            with trio.fail_after(self._beat_limit()):
                node = await self._network.find_coordinator(self.group_id)
                self._beating_at = node.node_id
                response = await self._network.send(node.node_id, member.heartbeat(), purpose=COORDINATOR)
            self._unanswered_beats = 0
            self.clock.answered(self._world.now())
            self._failures.succeeded(self._beating)
            before = member.needs_rejoin
            if not member.heartbeat_answered(response.error_code, sent_as):
                self._network.forget_coordinator(self.group_id)
                self.clock.failed(self._world.now(), self._backoff.initial)
            answer = for_code(response.error_code)("the answer to a heartbeat") if response.error_code else None
            self._note_heartbeat(self.clock.last_sent, answer)
            if member.needs_rejoin is not None and before is None:
                logger.info("group %r: %s", self.group_id, member.needs_rejoin)
                self._on_change()
            return
        except trio.TooSlowError:
            self._unanswered_beats += 1
            failure = NodeNotReadyError("the coordinator did not answer a heartbeat in time")
            self._give_up_coordinator("a heartbeat is overdue")
        except KafkaError as error:
            failure = error
            if not error.retriable:
                self._error = error
                self._on_change()
        self._note_heartbeat(self.clock.last_sent, failure)
        self._failures.failed(self._beating, failure, self._world.now())
        self._network.forget_coordinator(self.group_id)
        self.clock.failed(self._world.now(), self._backoff.initial)

    def _beat_limit(self) -> float:
        """Seconds that a heartbeat's answer may take: a third of the session, so that the next one is still in time;
        more after each that was late, for a slow coordinator."""
        return self.clock.session_timeout * min(1.0, (1 + self._unanswered_beats) / 3)

    def _give_up_coordinator(self, reason: str) -> None:
        """Close the connection for heartbeats, which may be dead, and look the coordinator up again."""
        if self._beating_at is not None:
            self._network.close_as_dead(self._beating_at, COORDINATOR, reason)
        self._network.forget_coordinator(self.group_id)

    # ---------------------------------------------------------------- leaving

    async def _give_up_for_slow_user(self) -> None:
        reason = "max_poll_interval_ms was exceeded"
        if self.member.leaves:
            await self._part(self._leaving_with(self.member.leave(reason)))
        self.member.forget_membership(reason, keep_member_id=False)

    def _end(self, reason: str) -> Callable[[], Awaitable[None]] | None:
        if self._join_scope is not None:
            self._join_scope.cancel()
            self._join_scope = None
        self._assignment = self._error = None
        self._failures.succeeded(self._what)
        self._failures.succeeded(self._in_thread)
        tell_coordinator = self._leaving_with(self.member.leave(reason)) if self.member.leaves else None
        self.member.left()
        self._changed.set()
        return tell_coordinator

    def _leaving_with(self, build: Callable[[int], LeaveGroupRequest]) -> Callable[[], Awaitable[None]]:
        async def tell_coordinator() -> None:
            node = await self._network.find_coordinator(self.group_id)
            version = _LAST_SINGLE_LEAVE if self._broken_meetings >= _BROKEN_MEETINGS else None
            await self._network.send(
                node.node_id, build, api=LeaveGroupRequest, purpose=COORDINATOR, max_version=version
            )

        return tell_coordinator
