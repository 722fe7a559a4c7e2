"""The task that waits until a member's next heartbeat is due, and checks that its user keeps asking for records."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.client.consumer.membership.poll_interval import PollInterval
from triokafka.hooks import HookChain
from triokafka.world import World

logger = logging.getLogger(__name__)


class HeartbeatProtocol(Protocol):
    """The part of heartbeats that differs between the two group protocols."""

    @property
    def heartbeats(self) -> bool:
        """Whether the coordinator expects heartbeats now."""

    @property
    def is_member(self) -> bool:
        """Whether a user who is too slow makes the member leave the group."""

    def due_at(self, now: float) -> float:
        """When the next heartbeat is due, on the world's clock."""

    async def beat(self) -> None:
        """Send one heartbeat and process the response."""


class HeartbeatLoop:
    """Has heartbeats sent while the member is in the group.

    ``leave`` leaves it after ``max_poll_interval_ms``.
    ``progress`` returns a number that changes with every call for records, which shows that the user is alive (KIP-62).
    """

    def __init__(
        self,
        protocol: HeartbeatProtocol,
        leave: Callable[[], Awaitable[None]],
        clock: HeartbeatClock,
        poll_interval: PollInterval,
        status: MembershipStatus,
        world: World,
        hooks: HookChain,
        failures: FailureTracker,
        progress: Callable[[], int],
    ) -> None:
        self._protocol = protocol
        self._leave = leave
        self._clock = clock
        self._poll_interval = poll_interval
        self._status = status
        self._world = world
        self._hooks = hooks
        self._failures = failures
        self._progress = progress

    def enter_call(self) -> None:
        """Note that the user waits for records; this time does not count as the user's."""
        self._poll_interval.enter_call(self._world.now())

    def leave_call(self) -> None:
        """Note that the user's wait is over."""
        self._poll_interval.leave_call(self._world.now())

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        protocol, poll_interval, status = self._protocol, self._poll_interval, self._status
        while True:
            status.changed = trio.Event()
            if not protocol.heartbeats:
                self._failures.succeeded(status.heartbeat_activity)
                await status.changed.wait()
                continue
            now = self._world.now()
            poll_interval.note_progress(self._progress(), now)
            if poll_interval.expired(now) and protocol.is_member:
                await self._leave_after_max_poll_interval(now)
                continue
            until = protocol.due_at(now)
            if protocol.is_member:
                until = min(until, poll_interval.expires_at)
            if until > now:
                await self._wait_until(until)
            else:
                await protocol.beat()

    async def _leave_after_max_poll_interval(self, now: float) -> None:
        """Leave the group because the program asks for no records, so that other members can read (KIP-62)."""
        error = self._poll_interval.error(self._status.group_id, now)
        self._status.error = error
        logger.warning("%s", error)
        await self._leave()
        self._status.on_change()

    async def _wait_until(self, until: float) -> None:
        """Wait for a change, at most until then."""
        with trio.move_on_after(max(0.0, until - self._world.now())):
            await self._status.changed.wait()
        late = self._world.now() - until
        if late > self._clock.interval:
            # Heartbeats are late because no task ran: some task of the program blocks the event loop.
            logger.warning(
                "group %r: a heartbeat is %.1f s late because the Trio loop was blocked; the group may have given this"
                " member's partitions away. Run code that blocks in a thread (trio.to_thread.run_sync)",
                self._status.group_id,
                late,
            )
            if self._hooks:
                self._hooks.on_heartbeat_late(self._status.group_id, late)
            # A missing response during that time reveals nothing about the coordinator.
            self._clock.reset(self._world.now() - self._clock.interval)
