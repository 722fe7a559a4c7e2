"""Membership of one consumer in one group, under either protocol.

Members are watched from two sides: the coordinator expects heartbeats, and the user must keep asking for records. The
tasks run on their own, so that a cancelled `poll` loses nothing. The listener's calls and the commits of a rebalance
run in the user's own task, see `Rebalancer`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from triokafka.client.consumer.group_offsets import GroupIdentity
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.heartbeat_loop import HeartbeatLoop
from triokafka.client.consumer.membership.leave_sender import LeaveRequest, LeaveSender
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.client.consumer.membership.poll_interval import PollInterval
from triokafka.errors import CommitFailedError
from triokafka.structs import TopicPartition


class GroupProtocol(Protocol):
    """One of the two group protocols, classic and consumer."""

    @property
    def identity(self) -> GroupIdentity:
        """The member that commits; the generation (or epoch) is -1 while it is not in the group."""

    @property
    def settled(self) -> bool:
        """Whether no rebalance is under way; the preparation of one commits everything anyway."""

    @property
    def state(self) -> str:
        """The state of the member in words."""

    def commit_failed(self, error: CommitFailedError) -> None:
        """Handle a commit's error that shows a newer generation."""

    async def renew(self, identity: GroupIdentity, partitions: Iterable[TopicPartition]) -> bool:
        """Handle a commit as ``identity`` that was refused because of a newer epoch. Waits for the next heartbeat.

        Returns whether to retry the commit: only in the same membership, and if it has all those partitions.
        """

    def rejoin(self, reason: str) -> None:
        """Have the group rebalance, if members of this protocol can."""

    async def leave_after_max_poll_interval(self) -> None:
        """Leave, and remember that the partitions were lost, not revoked."""

    def end(self, reason: str) -> LeaveRequest | None:
        """End the membership now. Return the leave request, None if the coordinator does not need one."""


class GroupMembership:
    """The membership as the engine, the committer and health use it."""

    def __init__(
        self,
        protocol: GroupProtocol,
        clock: HeartbeatClock,
        poll_interval: PollInterval,
        status: MembershipStatus,
        heartbeat_loop: HeartbeatLoop,
        leave_sender: LeaveSender,
    ) -> None:
        self.group_id = status.group_id
        self.clock = clock
        self.poll_interval = poll_interval
        self.status = status
        self.heartbeat_loop = heartbeat_loop
        self.take_error = status.take_error
        self.enter_call, self.leave_call = heartbeat_loop.enter_call, heartbeat_loop.leave_call
        self.run_heartbeats = heartbeat_loop.run
        self.commit_failed, self.renew = protocol.commit_failed, protocol.renew
        self.rejoin = protocol.rejoin
        self._protocol = protocol
        self._leave_sender = leave_sender

    @property
    def identity(self) -> GroupIdentity:
        """The member that commits; the generation (or epoch) is -1 while it is not in the group."""
        return self._protocol.identity

    @property
    def settled(self) -> bool:
        """Whether no rebalance is under way; the preparation of one commits everything anyway."""
        return self._protocol.settled

    @property
    def state(self) -> str:
        """The state of the member in words."""
        return self._protocol.state

    def started(self, now: float) -> None:
        """Start the member's deadlines, because the consumer was entered."""
        self.clock.started(now)
        self.poll_interval.started(now)

    @contextmanager
    def in_call(self) -> Iterator[None]:
        """Count the time of the block as a wait for records: the member stays in its group."""
        self.enter_call()
        try:
            yield
        finally:
            self.leave_call()

    async def leave(self, reason: str) -> None:
        """End the membership on purpose: one request, no retries."""
        await self._leave_sender.send(self._protocol.end(reason))

    def start_leaving(self, reason: str, first: Callable[[], Awaitable[None]]) -> None:
        """End the membership now; send the leave request in the background, after ``first``."""
        self._leave_sender.start(self._protocol.end(reason), first)
