"""Members of groups, as the group benchmark plays them: under the classic protocol and under that of KIP-848.

A `ClassicCrew` is one group of which every member has a connection, because a join is answered only when the round is
complete. A `ConsumerCrew` shares connections: no heartbeat waits. Both say when the whole group has arrived.
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
from triokafka.protocol.embedded import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription

# The newest versions that all the brokers have.
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
    """A broker's answer that the load cannot go on with."""


class ClassicMember:
    """One member, with what it was told."""

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
        """Join and sync, until there is an assignment."""
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
        """It is there."""
        return HeartbeatRequest(group_id=self._group_id, generation_id=self.generation, member_id=self.member_id)

    async def rejoin(self) -> None:
        """Heartbeat until that says that the group rebalances, and enter it again."""
        while (await self.wire.ask(self.heartbeat(), HEARTBEAT)).error_code not in _REJOIN:
            await trio.sleep(_AGAIN_SECONDS)
        await self.enter()

    async def leave(self) -> None:
        """Go for good."""
        identity = MemberIdentity(member_id=self.member_id)
        await self.wire.ask(LeaveGroupRequest(group_id=self._group_id, members=[identity]), LEAVE)


class ClassicCrew:
    """One classic group."""

    def __init__(self, group_id: str, topic: str, partitions: int) -> None:
        self.members: list[ClassicMember] = []
        self._made_of = (group_id, topic, partitions)

    async def form(self, wires: Sequence[Wire]) -> None:
        """One member for each connection joins; returns when all are in one generation and have its assignment."""
        self.members += [ClassicMember(wire, *self._made_of) for wire in wires]
        entered: Counter[int] = Counter()
        formed = trio.Event()

        async def take_part(member: ClassicMember) -> None:
            await member.enter()
            while True:
                entered[member.generation] += 1
                if entered[member.generation] == len(self.members):
                    formed.set()
                # Others may have come too late for this generation; only heartbeats tell.
                while (await member.wire.ask(member.heartbeat(), HEARTBEAT)).error_code not in _REJOIN:
                    with trio.move_on_after(_AGAIN_SECONDS):
                        await formed.wait()
                        return
                await member.enter()

        async with trio.open_nursery() as nursery:
            for member in self.members:
                nursery.start_soon(take_part, member)

    async def add(self, wire: Wire) -> None:
        """One more comes, and everybody else hears of it."""
        newcomer = ClassicMember(wire, *self._made_of)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(newcomer.enter)
            for member in self.members:
                nursery.start_soon(member.rejoin)
        self.members.append(newcomer)

    async def remove(self) -> None:
        """The newest goes, and everybody else hears of it."""
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
        """The first one says everything, others only what has changed."""
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
        """Heartbeat, and do as the answer says."""
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
        """How many partitions it owns."""
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
        """So many members join; returns when each has what it is to own."""
        self.members += [ConsumerMember(self._group_id, self._topic) for _ in range(count)]
        await self._converge(0)

    async def add(self) -> None:
        """One more joins."""
        epoch = self.members[0].epoch
        self.members.append(ConsumerMember(self._group_id, self._topic))
        await self.members[-1].beat(self._wires[0])
        await self._converge(epoch)

    async def remove(self) -> None:
        """The newest goes."""
        member, epoch = self.members.pop(), self.members[0].epoch
        member.epoch = -1
        await self._wires[0].ask(member.heartbeat(), CONSUMER_HEARTBEAT)
        await self._converge(epoch)

    async def _converge(self, epoch: int) -> None:
        """Heartbeat at a steady pace until everybody is in one epoch after this one and nothing moves any more."""
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
