"""What a consumer asks of its membership in a group, whatever the protocol, and what all protocols share.

Members are watched from two sides: the coordinator hears heartbeats, and the user must go on asking for records. The
tasks run on their own, so that a cancelled `poll` loses nothing. What must happen in the user's own
task, callbacks and commits, is the `ClassicRebalance`'s or the `ConsumerProtocolRebalance`'s business.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.group_offsets import GroupIdentity
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.rebalance_timing import RebalanceTiming
from triokafka.errors import CommitFailedError, FencedInstanceIdError, KafkaError, MaxPollIntervalExceededError
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.backoff import Backoff
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

LEAVE_TIMEOUT: Final = 5.0
"""Seconds for the one request that ends a membership; if it is lost, the session expires instead."""


class GroupMembership(ABC):
    """Membership of one consumer in one group.

    ``progress`` counts what the user has asked for so far: as long as it changes, the user is alive. ``on_change`` is
    called when the caller who waits for records should look again. ``joined_at`` is when the present assignment came.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        clock: HeartbeatClock,
        tasks: BackgroundTasks,
        failures: FailureTracker,
        *,
        progress: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        if options.group_id is None:
            raise ValueError("a membership needs a group_id")
        self.group_id: str = options.group_id
        self.clock = clock
        self.joined_at: float | None = None
        self.rebalances = 0
        """Assignments so far that were taken over in full."""
        self.timing = RebalanceTiming(self.group_id, network.world, network.hooks)
        self._options = options
        self._network = network
        self._world = network.world
        self._tasks = tasks
        self._failures = failures
        self._on_change = on_change
        self._backoff = Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000)
        self._error: KafkaError | None = None
        self._leaving = 0
        self._changed = trio.Event()
        self._beating = f"sending heartbeats to group {self.group_id!r}"
        self._what = f"joining group {self.group_id!r}"
        self._progress = progress
        self._seen_progress = -1
        self._in_call = 0

    # ---------------------------------------------------------------- what the protocol says

    @property
    @abstractmethod
    def identity(self) -> GroupIdentity:
        """As whom this member commits; the generation (or epoch) is -1 while it is not in the group."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether no rebalance is under way, in whose preparation everything will be committed anyway."""

    @property
    @abstractmethod
    def state(self) -> str:
        """What the member is doing, in words."""

    @abstractmethod
    def commit_failed(self, error: CommitFailedError) -> None:
        """A commit found out that the group has gone on."""

    async def renew(self, identity: GroupIdentity, partitions: Iterable[TopicPartition]) -> bool:
        """A commit as ``identity`` was refused because the epoch is another one by now. Waits for the next heartbeat.

        Returns whether the commit may be tried again: it is the same membership, and it has all those partitions.
        """
        return False

    @abstractmethod
    async def run_heartbeats(self) -> None:
        """Send heartbeats while the member is in the group, and watch the user, until cancelled."""

    @abstractmethod
    def _end(self, reason: str) -> Callable[[], Awaitable[None]] | None:
        """Be no member from now on. Returns what tells the coordinator, if it must be told."""

    @abstractmethod
    async def _give_up_for_slow_user(self) -> None:
        """Leave, and remember that the partitions were lost, not given up."""

    # ---------------------------------------------------------------- what the caller asks

    def take_error(self) -> KafkaError | None:
        """Why the membership failed, once; afterwards joining is tried again. A fenced member stays out for good."""
        error = self._error
        if not isinstance(error, FencedInstanceIdError):
            self._error = None
        return error

    def enter_call(self) -> None:
        """The user waits for records: however long it takes, it is not the user who is slow."""
        self._in_call += 1
        self.clock.polled(self._world.now())

    def leave_call(self) -> None:
        """The user has the records, or the wait is over."""
        self._in_call -= 1
        self.clock.polled(self._world.now())

    def _note_heartbeat(self, since: float, error: Exception | None) -> None:
        if self._network.hooks:
            self._network.hooks.on_heartbeat(self.group_id, self._world.now() - since, error)

    def _tell(self) -> None:
        self._changed.set()
        self._on_change()

    # ---------------------------------------------------------------- watching the user

    def _note_progress(self, now: float) -> None:
        progress = self._progress()
        if self._in_call or progress != self._seen_progress:
            self._seen_progress = progress
            self.clock.polled(now)

    async def _leave_slow_user(self, now: float) -> None:
        """The user's loop is stuck: give the partitions to members that work (KIP-62)."""
        silent = now - self.clock.last_poll
        self._error = MaxPollIntervalExceededError(
            f"no records were asked for in {silent:.0f} s, more than max_poll_interval_ms="
            f"{self._options.max_poll_interval_ms}, so this member left group {self.group_id!r} and its partitions went"
            " to others. The next call joins again. Raise max_poll_interval_ms, or lower max_poll_records"
        )
        logger.warning("%s", self._error)
        await self._give_up_for_slow_user()
        self._on_change()

    async def _wait_until(self, until: float) -> None:
        """Wait for news, at most until then."""
        with trio.move_on_after(max(0.0, until - self._world.now())):
            await self._changed.wait()
        late = self._world.now() - until
        if late > self.clock.interval:
            # Nothing ran for so long that heartbeats were late: code that blocks, in some task of the program.
            logger.warning(
                "group %r: a heartbeat is %.1f s late because the Trio loop was blocked; the group may have given this"
                " member's partitions away. Run code that blocks in a thread (trio.to_thread.run_sync)",
                self.group_id,
                late,
            )
            if self._network.hooks:
                self._network.hooks.on_heartbeat_late(self.group_id, late)
            # The coordinator's silence in the meantime says nothing about the coordinator.
            self.clock.reset(self._world.now() - self.clock.interval)

    # ---------------------------------------------------------------- leaving

    async def leave(self, reason: str) -> None:
        """End the membership on purpose: one request, no retries."""
        tell_coordinator = self._end(reason)
        if tell_coordinator is not None:
            await self._part(tell_coordinator)

    def start_leaving(self, reason: str, first: Callable[[], Awaitable[None]]) -> None:
        """The same in the background, after ``first``. A join that is asked for meanwhile begins afterwards."""
        self._leaving += 1
        self._tasks.start(self._leave_later, self._end(reason), first, name=f"kafka leave of {self.group_id}")

    async def _leave_later(
        self, tell_coordinator: Callable[[], Awaitable[None]] | None, first: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await first()
            if tell_coordinator is not None:
                await self._part(tell_coordinator)
        finally:
            self._leaving -= 1
        self._tell()

    async def _part(self, tell_coordinator: Callable[[], Awaitable[None]]) -> None:
        try:
            with trio.move_on_after(LEAVE_TIMEOUT):
                await tell_coordinator()
        except KafkaError as error:
            logger.info("leaving group %r failed, its session will expire instead: %s", self.group_id, error)
