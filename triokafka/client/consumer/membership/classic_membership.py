"""Membership under the classic protocol: refused commits, leaving. `ClassicJoin` joins; `ClassicHeartbeat` stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from triokafka import errors
from triokafka.client.consumer.group_offsets import COORDINATOR, GroupIdentity
from triokafka.client.consumer.membership.classic_join import ClassicJoin
from triokafka.client.consumer.membership.classic_member import ClassicMember, ClassicState
from triokafka.client.consumer.membership.leave_sender import LeaveRequest, LeaveSender
from triokafka.client.consumer.membership.membership_status import MembershipStatus
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.leave_group import LeaveGroupRequest
from triokafka.structs import TopicPartition

_LAST_SINGLE_LEAVE: Final = 2


class ClassicMembership:
    """Drives a `ClassicMember`, except for its join and its heartbeats."""

    def __init__(
        self,
        network: NetworkClient,
        member: ClassicMember,
        join: ClassicJoin,
        status: MembershipStatus,
        leave_sender: LeaveSender,
    ) -> None:
        self.member = member
        self._network = network
        self._join = join
        self._status = status
        self._leave_sender = leave_sender

    @property
    def is_joining(self) -> bool:
        """Whether a join is under way, or waits until the member has left."""
        return self._join.is_under_way or self._leave_sender.under_way > 0

    @property
    def settled(self) -> bool:
        return self.member.needs_rejoin is None and not self.is_joining

    @property
    def state(self) -> str:
        return self.member.state.value

    @property
    def identity(self) -> GroupIdentity:
        generation, member_id = self.member.identity
        return GroupIdentity(generation, member_id, self.member.config.group_instance_id)

    def commit_failed(self, error: errors.CommitFailedError) -> None:
        cause = error.__cause__
        if isinstance(cause, errors.UnknownMemberIdError):
            self.member.forget_membership("a commit was refused", keep_member_id=False)
        elif isinstance(cause, errors.IllegalGenerationError):
            self.member.forget_membership("a commit was refused", keep_member_id=True)
        elif self.member.state is ClassicState.STABLE:
            # While it joins or syncs, this is the rebalance in which it takes part.
            self.member.request_rejoin("a commit met a rebalance")
        self._status.notify()

    async def renew(self, identity: GroupIdentity, partitions: Iterable[TopicPartition]) -> bool:
        return False

    def rejoin(self, reason: str) -> None:
        self.member.request_rejoin(reason)
        self._status.notify()

    # ---------------------------------------------------------------- leaving

    async def leave_after_max_poll_interval(self) -> None:
        reason = "max_poll_interval_ms was exceeded"
        await self._leave_sender.send(self._leave_request(reason))
        self.member.forget_membership(reason, keep_member_id=False)

    def end(self, reason: str) -> LeaveRequest | None:
        self._join.cancel()
        self._status.error = None
        leave_request = self._leave_request(reason)
        self.member.left()
        self._status.changed.set()
        return leave_request

    def _leave_request(self, reason: str) -> LeaveRequest | None:
        if not self.member.leaves:
            return None
        build: Callable[[int], LeaveGroupRequest] = self.member.leave(reason)

        async def leave_request() -> None:
            node = await self._network.find_coordinator(self._status.group_id)
            version = _LAST_SINGLE_LEAVE if self._join.needs_old_versions else None
            await self._network.send(
                node.node_id, build, api=LeaveGroupRequest, purpose=COORDINATOR, max_version=version
            )

        return leave_request
