"""The members of the group benchmark, for the classic protocol and for KIP-848.

Every member of a `ClassicCrew` has a connection, because a join is answered only when the rebalance completes. The
members of a `ConsumerCrew` share connections, because heartbeats are answered at once. Both wait until the whole group
is stable.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import trio

from benchmarks.groups_wire import Wire
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from triokafka.protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from triokafka.protocol.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription

# The newest versions that all brokers support.
JOIN: Final = 5
SYNC: Final = 3
HEARTBEAT: Final = 3
LEAVE: Final = 3
CONSUMER_HEARTBEAT: Final = 1

TIMEOUT_MS: Final = 300_000
_REBALANCE_IN_PROGRESS: Final = 27
_MEMBER_ID_REQUIRED: Final = 79
_REJOIN: Final = (22, 25, _REBALANCE_IN_PROGRESS)  # illegal generation, unknown member
_AGAIN_SECONDS: Final = 0.1
_ROUND_SECONDS: Final = 0.3


class LoadError(Exception):
    """A broker's response after which the load cannot continue."""


class ClassicMember:
    """One member and its generation and assignment."""

    def __init__(self, wire: Wire, group_id: str, topic: str, partitions: int) -> None:
        self.wire = wire
        self.member_id = ""
        self.generation = -1
        self._group_id = group_id
        self._topic = topic
        self._partitions = partitions
        subscription = ConsumerProtocolSubscription(topics=[topic]).encode_versioned(1)
        self._protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription)]

    async def enter(self) -> None:
        """Join and sync until there is an assignment."""
        while True:
            joined = await self.wire.ask(
                JoinGroupRequest(
                    group_id=self._group_id,
                    session_timeout_ms=TIMEOUT_MS,
                    rebalance_timeout_ms=TIMEOUT_MS,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=self._protocols,
                ),
                JOIN,
            )
            if joined.error_code == _MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            elif joined.error_code == _REBALANCE_IN_PROGRESS:
                pass
            elif joined.error_code:
                raise LoadError(f"a join was refused with error {joined.error_code}")
            elif await self._sync(joined):
                return

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        self.member_id, self.generation = joined.member_id, joined.generation_id
        synced = await self.wire.ask(
            SyncGroupRequest(
                group_id=self._group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                assignments=self._assignments([member.member_id for member in joined.members]),
            ),
            SYNC,
        )
        if synced.error_code and synced.error_code not in _REJOIN:
            raise LoadError(f"a sync was refused with error {synced.error_code}")
        return not synced.error_code

    def _assignments(self, member_ids: Sequence[str]) -> list[SyncGroupRequestAssignment]:
        """Return the assignments of all members at the leader; a follower does not know the members."""
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=ConsumerProtocolAssignment(
                    assigned_partitions=[
                        AssignedTopic(
                            topic=self._topic, partitions=list(range(number, self._partitions, len(member_ids)))
                        )
                    ]
                ).encode_versioned(1),
            )
            for number, member_id in enumerate(member_ids)
        ]

    def heartbeat(self) -> HeartbeatRequest:
        """Send a heartbeat."""
        return HeartbeatRequest(group_id=self._group_id, generation_id=self.generation, member_id=self.member_id)

    async def rejoin(self) -> None:
        """Send heartbeats until one reports a rebalance, then join again."""
        while (await self.wire.ask(self.heartbeat(), HEARTBEAT)).error_code not in _REJOIN:
            await trio.sleep(_AGAIN_SECONDS)
        await self.enter()

    async def leave(self) -> None:
        """Leave the group."""
        identity = MemberIdentity(member_id=self.member_id)
        await self.wire.ask(LeaveGroupRequest(group_id=self._group_id, members=[identity]), LEAVE)


class ClassicCrew:
    """One classic group."""

    def __init__(self, group_id: str, topic: str, partitions: int) -> None:
        self.members: list[ClassicMember] = []
        self._made_of = (group_id, topic, partitions)

    async def form(self, wires: Sequence[Wire]) -> None:
        """Let one member for each connection join. Return when all have an assignment of one generation."""
        self.members += [ClassicMember(wire, *self._made_of) for wire in wires]
        entered: Counter[int] = Counter()
        formed = trio.Event()

        async def take_part(member: ClassicMember) -> None:
            await member.enter()
            while True:
                entered[member.generation] += 1
                if entered[member.generation] == len(self.members):
                    formed.set()
                # A member that came too late for this generation learns that only from a heartbeat.
                while (await member.wire.ask(member.heartbeat(), HEARTBEAT)).error_code not in _REJOIN:
                    with trio.move_on_after(_AGAIN_SECONDS):
                        await formed.wait()
                        return
                await member.enter()

        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(take_part, member)

    async def add(self, wire: Wire) -> None:
        """Add a member, and wait until all members have rebalanced."""
        newcomer = ClassicMember(wire, *self._made_of)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(newcomer.enter)
            for member in self.members:
                nursery.start_soon(member.rejoin)
        self.members.append(newcomer)

    async def remove(self) -> None:
        """Remove the newest member, and wait until the others have rebalanced."""
        await self.members.pop().leave()
        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(member.rejoin)


class ConsumerMember:
    """One member under the protocol of KIP-848."""

    def __init__(self, group_id: str, topic: str) -> None:
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: dict[UUID, list[int]] = {}
        self.is_settled = False
        """Whether its last heartbeat changed nothing."""
        self._group_id = group_id
        self._topic = topic
        self._says_owned = True

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat: the first one has all fields, others only the changed ones."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names = TIMEOUT_MS, [self._topic]
        if self._says_owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in self.owned.items()
            ]
        return request

    async def beat(self, wire: Wire) -> None:
        """Send a heartbeat and apply the response."""
        answer = await wire.ask(self.heartbeat(), CONSUMER_HEARTBEAT)
        if answer.error_code:
            raise LoadError(f"a heartbeat was refused with error {answer.error_code}: {answer.error_message}")
        self.is_settled = answer.member_epoch == self.epoch and answer.assignment is None
        self.epoch = answer.member_epoch
        self._says_owned = answer.assignment is not None
        if answer.assignment is not None:
            self.owned = {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}

    @property
    def count(self) -> int:
        """The number of owned partitions."""
        return sum(map(len, self.owned.values()))


class ConsumerCrew:
    """One group under the protocol of KIP-848. ``beats`` counts heartbeats."""

    def __init__(self, group_id: str, topic: str, partitions: int, wires: Sequence[Wire]) -> None:
        self.members: list[ConsumerMember] = []
        self.beats = 0
        self._group_id = group_id
        self._topic = topic
        self._partitions = partitions
        self._wires = wires

    async def form(self, count: int) -> None:
        """Let ``count`` members join. Return when each owns its target assignment."""
        self.members += [ConsumerMember(self._group_id, self._topic) for _ in range(count)]
        await self._converge(0)

    async def add(self) -> None:
        """Add a member."""
        epoch = self.members[0].epoch
        self.members.append(ConsumerMember(self._group_id, self._topic))
        await self.members[-1].beat(self._wires[0])
        await self._converge(epoch)

    async def remove(self) -> None:
        """Remove the newest member."""
        member, epoch = self.members.pop(), self.members[0].epoch
        member.epoch = -1
        await self._wires[0].ask(member.heartbeat(), CONSUMER_HEARTBEAT)
        await self._converge(epoch)

    async def _converge(self, epoch: int) -> None:
        """Send heartbeats at a steady pace until all members are in one later epoch and no partition moves."""
        while not self._has_converged(epoch):
            due = trio.current_time() + _ROUND_SECONDS
            async with trio.open_nursery() as nursery:
                for number, wire in enumerate(self._wires):
                    nursery.start_soon(self._beat_all, wire, self.members[number :: len(self._wires)])
            await trio.sleep_until(due)

    async def _beat_all(self, wire: Wire, members: Sequence[ConsumerMember]) -> None:
        for member in members:
            await member.beat(wire)
        self.beats += len(members)

    def _has_converged(self, epoch: int) -> bool:
        members = self.members
        counts = [member.count for member in members]
        return (
            members[0].epoch > epoch
            and all(member.is_settled and member.epoch == members[0].epoch for member in members)
            and sum(counts) == self._partitions
            and max(counts) - min(counts) <= 1
        )
