"""Members of the simulated world, each a process that reads its partitions, commits, and records its observations.

`ClassicMember` implements the classic protocol itself; `RealMember` is our `Consumer`. Members of the new protocol are
in `modern`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

import triokafka
from tests.group_kills.history import Attempt, History, Outcome
from tests.group_kills.wire import NoAnswerError, Wire
from triokafka import errors
from triokafka.assignors import BUILT_IN, Assignment, MemberSubscription, PartitionAssignor
from triokafka.client.consumer.membership.consumer_protocol_member import ConsumerProtocolMember, Partitions
from triokafka.client.consumer.membership.consumer_protocol_membership import ConsumerProtocolMembership
from triokafka.client.consumer.membership.payloads import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from triokafka.errors import KafkaError
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.testing import SimulatedWorld

BROKER = ("broker", 9092)
TOPIC = "orders"
CLASSIC, MODERN, PLAIN = "classic", "modern", "plain"
"""The groups: one of each protocol, and one without members."""
SESSION = 6.0
REBALANCE = 10.0
HEARTBEAT = 1.0
REQUEST = 3.0
"""The time limit in seconds of a request, unless it waits for other members."""

_REFUSALS = frozenset(
    error.code
    for error in (
        errors.IllegalGenerationError,
        errors.UnknownMemberIdError,
        errors.StaleMemberEpochError,
        errors.RebalanceInProgressError,
        errors.CoordinatorLoadInProgressError,
        errors.FencedInstanceIdError,
        errors.FencedMemberEpochError,
        errors.GroupIdNotFoundError,
    )
)
"""Errors after which a position is certainly not stored."""
LOST = frozenset(
    error.code
    for error in (
        errors.IllegalGenerationError,
        errors.UnknownMemberIdError,
        errors.FencedInstanceIdError,
        errors.FencedMemberEpochError,
        errors.GroupIdNotFoundError,
    )
)
"""Errors after which the member owns no partition."""
REBALANCING = errors.RebalanceInProgressError.code


@dataclass(frozen=True)
class Seat:
    """The place of a member in its own view. ``confirmed_at`` is when the coordinator last agreed."""

    epoch: int
    numbers: frozenset[int]
    confirmed_at: float


@dataclass(frozen=True)
class Part:
    """One member of the test's plan: its host's name, its group, and its instance id if it is static."""

    host: str
    group: str
    instance: str | None
    protocol: str


@dataclass
class Stage:
    """The common state of all members of a run. ``ends`` are the ends of the topic's partitions, by number."""

    history: History
    ends: Mapping[int, int]
    seats: dict[str, Seat] = field(default_factory=dict)
    """Instance ids by host, of static members."""

    def who(self, part: Part, world: SimulatedWorld) -> str:
        """Return the name of a member: that of the instance, or of the process."""
        return part.instance or f"{part.host}.{world.incarnation}"


class Process(ABC):
    """One process of a member."""

    def __init__(self, stage: Stage, part: Part, world: SimulatedWorld) -> None:
        self.stage = stage
        self.part = part
        self.world = world
        self.history = stage.history
        self.who = stage.who(part, world)
        self.pace = world.random.choice([0.3, 0.5, 0.8])
        self.bite = world.random.choice([3, 8])

    @abstractmethod
    async def run(self) -> None:
        """Run the member until cancelled."""

    def sit(self, epoch: int, numbers: Iterable[int], confirmed_at: float) -> None:
        """Note the member's place."""
        self.stage.seats[self.part.host] = Seat(epoch, frozenset(numbers), confirmed_at)

    def stand_up(self) -> None:
        """Note that the member has no place."""
        self.stage.seats.pop(self.part.host, None)

    async def pause(self) -> None:
        """Wait a little before the next attempt."""
        await trio.sleep(self.world.random.uniform(0.05, 0.4))


class RawProcess(Process):
    """The common part of members without a client: they hold partitions at positions, fetch them and commit them."""

    def __init__(self, stage: Stage, part: Part, world: SimulatedWorld) -> None:
        super().__init__(stage, part, world)
        self.wire = Wire(world, *BROKER, client_id=part.host)
        self.member_id = ""
        self.epoch = -1
        self.held: set[int] = set()
        self.positions: dict[int, int] = {}

    def take(
        self, numbers: Iterable[int], *, sent_at: float, patience: float, assigned_at: float | None = None
    ) -> None:
        """Note the assignment from the coordinator."""
        self.held = set(numbers)
        self.positions = {number: at for number, at in self.positions.items() if number in self.held}
        self.history.granted(self.who, self.part.group, self.epoch, self.held, assigned_at=assigned_at)
        self.confirm(sent_at, patience)

    def confirm(self, sent_at: float, patience: float) -> None:
        """Note that the coordinator has answered a request sent then."""
        self.history.heard_of(self.who, self.part.group, sent_at=sent_at, patience=patience)
        self.sit(self.epoch, self.held, sent_at)

    def give_up(self, numbers: Iterable[int] | None = None) -> None:
        """Drop these partitions; None: all."""
        going = set(self.held if numbers is None else numbers)
        self.history.gave_up(self.who, self.part.group, None if numbers is None else going)
        self.held -= going
        for number in going:
            self.positions.pop(number, None)
        if numbers is None:
            self.stand_up()

    def is_bold(self) -> bool:
        """Return whether the member commits although it had no answer for a while, and may have been removed."""
        return bool(self.positions) and self.world.random.random() < 0.3

    async def look_up(self, *, member_id: str | None, epoch: int) -> int:
        """Look up positions of partitions without one; return the error. Raises `NoAnswerError`."""
        wanted = sorted(self.held - self.positions.keys())
        if not wanted:
            return 0
        since = self.history.clock()
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=wanted)]
        group = OffsetFetchRequestGroup(
            group_id=self.part.group, member_id=member_id, member_epoch=epoch, topics=topics
        )
        answer = (await self.wire.ask(OffsetFetchRequest(groups=[group]), 9, timeout=REQUEST)).groups[0]
        if answer.error_code:
            return answer.error_code
        for found in answer.topics[0].partitions:
            offset, number = found.committed_offset, found.partition_index
            self.history.read(self.part.group, number, offset, found.metadata or "", since=since)
            self.positions[number] = max(offset, 0)
        return 0

    async def handle_some(self) -> int:
        """Handle a few records of every partition, and commit. Return the response's error. Raises `NoAnswerError`."""
        if not self.positions:
            return 0
        for number, position in self.positions.items():
            end = min(position + self.bite, self.stage.ends[number])
            self.history.handled(self.part.group, number, range(position, end))
            self.positions[number] = end
        return await self.commit()

    async def commit(self) -> int:
        """Commit all positions; return the worst error of the response. Raises `NoAnswerError`."""
        if not self.positions:
            return 0
        await self.world.pass_door()  # while frozen it sends nothing
        attempt = self.history.commit(self.who, self.part.group, self.epoch, self.positions)
        request = OffsetCommitRequest(
            group_id=self.part.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.part.instance,
            topics=[commit_topic(attempt)],
        )
        try:
            answer = await self.wire.ask(request, 9, timeout=REQUEST)
        except BaseException:
            attempt.done(Outcome.UNKNOWN)
            raise
        worst = 0
        for answered in answer.topics[0].partitions:
            code = answered.error_code
            outcome = Outcome.ACKNOWLEDGED if not code else Outcome.REFUSED if code in _REFUSALS else Outcome.UNKNOWN
            attempt.done(outcome, answered.partition_index)
            worst = code or worst
        return worst


def commit_topic(attempt: Attempt) -> OffsetCommitRequestTopic:
    """Return the positions of an attempt for a request."""
    return OffsetCommitRequestTopic(
        name=TOPIC,
        partitions=[
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=commit.offset, committed_metadata=attempt.tag
            )
            for number, commit in attempt.commits.items()
        ],
    )


class ClassicMember(RawProcess):
    """JoinGroup, SyncGroup, Heartbeat, OffsetFetch and OffsetCommit, one after the other."""

    patience = min(SESSION, REBALANCE)

    def __init__(self, stage: Stage, part: Part, world: SimulatedWorld) -> None:
        super().__init__(stage, part, world)
        self.assignor: PartitionAssignor = BUILT_IN[part.protocol]()

    async def run(self) -> None:
        while True:
            try:
                if await self._join():
                    await self._work()
            except NoAnswerError:
                await self.pause()
            if not self.assignor.cooperative:
                self.give_up()
            self.stand_up()

    async def _join(self) -> bool:
        subscription = MemberSubscription((TOPIC,), self.assignor.user_data([TOPIC]), self._owned(), None, self.epoch)
        request = JoinGroupRequest(
            group_id=self.part.group,
            session_timeout_ms=round(SESSION * 1000),
            rebalance_timeout_ms=round(REBALANCE * 1000),
            member_id=self.member_id,
            group_instance_id=self.part.instance,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=self.assignor.name, metadata=encode_subscription(subscription))],
        )
        self.history.note("joins", self.part.group, self.who, self.member_id)
        joined = await self.wire.ask(request, 9, timeout=REBALANCE + 5)
        if joined.error_code:
            await self._refused(joined.error_code, joined.member_id)
            return False
        self.member_id, self.epoch = joined.member_id, joined.generation_id
        must_assign = joined.leader == joined.member_id and not joined.skip_assignment
        sent_at = self.history.clock()
        request_sync = SyncGroupRequest(
            group_id=self.part.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.part.instance,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor.name,
            assignments=self._assign(joined) if must_assign else [],
        )
        synced = await self.wire.ask(request_sync, 5, timeout=REBALANCE + 5)
        if synced.error_code:
            await self._refused(synced.error_code, self.member_id)
            return False
        assignment = decode_assignment(synced.assignment)
        self.assignor.on_assignment(assignment, self.epoch)
        numbers = {partition.partition for partition in assignment.partitions}
        gone = self.held - numbers
        self.give_up(gone)
        self.take(numbers, sent_at=sent_at, patience=self.patience)
        return not gone  # revoked partitions go to others in another round

    def _owned(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number in sorted(self.held)]

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = {
            member.member_id: decode_subscription(member.metadata)._replace(group_instance_id=member.group_instance_id)
            for member in joined.members
        }
        assigned: Mapping[str, Assignment] = self.assignor.assign(members, {TOPIC: len(self.stage.ends)})
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(assignment))
            for member_id, assignment in assigned.items()
        ]

    async def _refused(self, code: int, member_id: str) -> None:
        """Handle the response to a join or sync: note the member's new place, and return whether to wait."""
        if code == errors.MemberIdRequiredError.code:
            self.member_id = member_id
            return
        if code in LOST:
            self._forget(code)
        elif code != REBALANCING:
            await self.pause()

    def _forget(self, code: int) -> None:
        self.history.note("is-out", self.part.group, self.who, errors.for_code(code).__name__)
        self.give_up()
        self.epoch = -1
        if code != errors.IllegalGenerationError.code:
            self.member_id = ""

    async def _work(self) -> None:
        """Handle records and send heartbeats until the next join."""
        beat_at = 0.0
        while True:
            try:
                if self.history.clock() >= beat_at and not self.is_bold():
                    sent_at = self.history.clock()
                    code = await self._beat()
                    if not code:
                        beat_at = sent_at + HEARTBEAT
                else:
                    code = await self.look_up(member_id=None, epoch=-1) or await self.handle_some()
            except NoAnswerError:
                await self.pause()
                beat_at = 0.0
                continue
            if code in LOST:
                self._forget(code)
                return
            if code == REBALANCING:
                return
            if code:
                await self.pause()
            else:
                await trio.sleep(self.pace)

    async def _beat(self) -> int:
        sent_at = self.history.clock()
        request = HeartbeatRequest(
            group_id=self.part.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.part.instance,
        )
        answer = await self.wire.ask(request, 4, timeout=REQUEST)
        if not answer.error_code:
            self.confirm(sent_at, self.patience)
        return answer.error_code


class RealMember(Process):
    """Our own consumer.

    Its user may be busy for seconds after the coordinator's response with an assignment, and takes the partitions over
    only then; the coordinator may have died meanwhile. A grant therefore has the time and the epoch of the response.
    """

    def __init__(self, stage: Stage, part: Part, world: SimulatedWorld) -> None:
        super().__init__(stage, part, world)
        self.positions: dict[TopicPartition, int] = {}
        self._target: Partitions | None = None
        self._answered = (-1, 0.0)
        """Return epoch and time of the last response with an assignment (`_target`), under the new protocol."""

    async def run(self) -> None:
        while True:
            try:
                await self._consume()
            except errors.FencedInstanceIdError:
                # The coordinator gave its instance a new id in a round that it did not survive. As with Kafka, such a
                # member cannot be distinguished from one that another process has replaced. It is restarted.
                self.history.note("is-fenced", self.part.group, self.who)
                self.history.gave_up(self.who, self.part.group)
                self.positions.clear()
                self.stand_up()
            if self.part.instance is None:
                raise AssertionError(f"{self.who} was fenced, and is no instance")

    async def _consume(self) -> None:
        options: dict[str, Any] = {}
        if self.part.group == MODERN:
            options["group_protocol"] = "consumer"
            options["group_remote_assignor"] = self.part.protocol
        else:
            options["partition_assignment_strategy"] = [_watched(BUILT_IN[self.part.protocol], self._granted)]
            options["session_timeout_ms"] = round(SESSION * 1000)
            options["heartbeat_interval_ms"] = round(HEARTBEAT * 1000)
        async with triokafka.Consumer(
            world=self.world,
            client_id=self.part.host,
            bootstrap_servers="{}:{}".format(*BROKER),
            group_id=self.part.group,
            group_instance_id=self.part.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_interval_ms=round(REBALANCE * 1000),
            request_timeout_ms=round(REQUEST * 1000),
            default_api_timeout_ms=300_000,
            fetch_max_wait_ms=2_000,
            hooks=_Heartbeats(self),
            **options,
        ) as consumer:
            self._consumer = consumer
            consumer.subscribe([TOPIC], listener=_Listener(self))
            while True:
                polled = await consumer.poll(timeout_ms=round(self.pace * 1000), max_records=self.bite * 2)
                for partition, records in polled.items():
                    offsets = [record.offset for record in records]
                    self.history.handled(self.part.group, partition.partition, offsets)
                    self.positions[partition] = offsets[-1] + 1
                self._look_around(consumer)
                if polled:
                    await trio.sleep(self.pace)
                await self._commit(consumer)

    def _granted(self, assignment: Assignment, generation: int) -> None:
        numbers = [partition.partition for partition in assignment.partitions]
        self.history.granted(self.who, self.part.group, generation, numbers)

    def note_target(self) -> None:
        """Note when an assignment arrives, under the new protocol: after every response, before anything else runs."""
        member = _modern_member(self._consumer)
        if member.target is not self._target:
            self._target = member.target
            self._answered = member.epoch, self.history.clock()

    def took_over(self) -> None:
        """Note that the consumer owns the coordinator's assignment, under the new protocol."""
        if not _modern_member(self._consumer).in_group:
            return
        self.note_target()  # a response that was not noted would count from now
        epoch, assigned_at = self._answered
        numbers = [partition.partition for partition in self._consumer.assignment()]
        self.history.granted(self.who, self.part.group, epoch, numbers, assigned_at=assigned_at)

    def _look_around(self, consumer: triokafka.Consumer) -> None:
        health = consumer.health()
        if health.generation < 0 or health.last_heartbeat_age is None:
            self.stand_up()
            return
        numbers = [partition.partition for partition in consumer.assignment()]
        self.sit(health.generation, numbers, self.history.clock() - health.last_heartbeat_age)

    async def _commit(self, consumer: triokafka.Consumer) -> None:
        mine = consumer.assignment()
        self.positions = {partition: at for partition, at in self.positions.items() if partition in mine}
        generation = consumer.health().generation
        if not self.positions or generation < 0:
            return
        attempt = self.history.commit(
            self.who, self.part.group, generation, {p.partition: at for p, at in self.positions.items()}
        )
        positions = {partition: OffsetAndMetadata(at, attempt.tag) for partition, at in self.positions.items()}
        outcome = Outcome.UNKNOWN
        try:
            await consumer.commit(positions, timeout_ms=4_000)
            outcome = Outcome.ACKNOWLEDGED
        except KafkaError:
            pass  # the consumer may have retried, so the outcome is unknown
        finally:
            attempt.done(outcome)

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the consumer's listener received the loss of these."""
        gone = list(partitions)
        self.history.gave_up(self.who, self.part.group, [partition.partition for partition in gone])
        for partition in gone:
            self.positions.pop(partition, None)


def _modern_member(consumer: triokafka.Consumer) -> ConsumerProtocolMember:
    membership = consumer._engine.membership
    assert membership is not None and isinstance(membership._protocol, ConsumerProtocolMembership)
    return membership._protocol.member


class _Heartbeats(triokafka.Hooks):
    def __init__(self, member: RealMember) -> None:
        self._member = member

    def on_heartbeat(self, group_id: str, seconds: float, error: Exception | None) -> None:
        if self._member.part.group == MODERN:
            self._member.note_target()


class _Listener(triokafka.ConsumerRebalanceListener):
    def __init__(self, member: RealMember) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        if self._member.part.group == MODERN:  # else the assignor notes it, with the right generation
            self._member.took_over()

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._member.give_up(revoked)


def _watched(kind: type[PartitionAssignor], told: object) -> PartitionAssignor:
    """An assignor that also reports every assignment, with its generation."""

    class Watched(kind):  # type: ignore[misc, valid-type]
        def on_assignment(self, assignment: Assignment, generation: int) -> None:
            super().on_assignment(assignment, generation)
            told(assignment, generation)  # type: ignore[operator]

    watched: PartitionAssignor = Watched()
    return watched
