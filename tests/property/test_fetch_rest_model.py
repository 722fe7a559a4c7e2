"""Fetch sessions whose idle partitions rest respond like sessions that read all partitions with every fetch.

Two brokers have the same history: one lets partitions rest, the other never does. Followers and consumers have sessions
with both, and the partitions change before and during the fetches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker_stub.log.builders import from_producer
from tests.unit.broker_stub.log.test_transactions import marker
from tests.unit.broker_stub.replica.logs import NODE, NOW_MS, batch
from triokafka import errors
from triokafka.broker_stub.api.fetch import fetch
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation, monotonic_ms
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.replica_listener import LeadershipChange
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.network.fetch_sessions.fetch_session_cache import FetchSessionCache
from triokafka.protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from triokafka.structs import TopicPartition
from triokafka.world.memory import MemoryStorage
from triokafka.world.system import RealWorld

NAMES = ("a", "b", "c", "d")
FOLLOWERS = (2, 3)
VERSION = 17
EVENTS = (
    "append", "append", "append", "records of a transaction", "end of a transaction", "records are deleted",
    "retention", "new epoch", "in-sync set", "leader", "lagging followers", "topic is deleted",
    "topic is created again", "offline", "follower registers again", "acknowledged in-sync set", "replicated",
    "replicated",
)  # fmt: skip
SESSION_ERRORS = frozenset(
    error.code for error in (errors.FetchSessionIdNotFoundError, errors.InvalidFetchSessionEpochError)
)


class Broker:
    """The leader of one partition of each topic. ``rests``: whether idle partitions rest in sessions."""

    def __init__(self, *, rests: bool) -> None:
        self.now = 1000.0
        self.world = RealWorld()
        self.world.storage = MemoryStorage(crashable=False)
        self.world.now = lambda: self.now  # type: ignore[method-assign]
        self.world.wall_ms = lambda: NOW_MS  # type: ignore[method-assign]
        self.logs = LogManager(self.world, ["/data"])
        self.logs.start()
        self.rose: list[str] = []
        self.replicas = ReplicaManager(NODE, self.logs, self.world, listener=self)
        if not rests:
            self.replicas.reads_as = lambda parameters: None
        self.sessions: FetchSessionCache[Any] = FetchSessionCache(10, SimpleNamespace(random=Random(1)))  # type: ignore[arg-type]
        self.image = MetadataImage()
        self.rested = 0

    def high_watermark_rose(self, topic_partition: TopicPartition, offset: int) -> None:
        self.rose.append(f"{topic_partition} {offset}")

    def reopened(self, change: LeadershipChange) -> None:
        pass

    def become(self, image: MetadataImage) -> None:
        before, self.image = self.image, image
        delta = MetadataDelta(before)
        delta._image = image
        delta._partitions = {topic.topic_id: dict(topic.partitions) for topic in image.topics.values()}
        delta._deleted = {i: topic for i, topic in before.topics_by_id.items() if i not in image.topics_by_id}
        self.replicas.apply(delta, image)

    async def serve(self, request: FetchRequest, while_parked: Callable[[], None], trace: list[str]) -> FetchResponse:
        """Respond to a request; ``while_parked`` is called while it waits."""

        async def park(operation: DelayedOperation) -> None:
            self.rested += sum(session.resting for session in self.sessions._sessions.values())
            while_parked()
            trace.append("woken" if operation.completed else "timed out")
            self.now += request.max_wait_ms / 1000
            self.replicas.fetch_purgatory.advance(monotonic_ms(self.world))

        services = SimpleNamespace(
            metadata=self,  # for its image
            config=SimpleNamespace(current=SimpleNamespace(fetch_max_bytes=10**6, connections_max_idle_ms=600_000)),
            quotas=SimpleNamespace(limits=lambda kind: False),
            faults=SimpleNamespace(armed=False),
            fetch_sessions=lambda: self.sessions,
            replicas=self.replicas,
            world=self.world,
            allows_all=True,
        )
        context: Any = SimpleNamespace(
            services=services,
            broker=services,
            metadata=self,
            listener="PLAINTEXT",
            header=SimpleNamespace(api_version=VERSION),
            version=VERSION,
            now=self.world.now(),
            follower=request.replica_state.replica_id >= 0,
            denied_for_cluster=lambda operation: False,
            denied=lambda *resource: False,
            yield_slot=lambda: None,
            count_towards=lambda kind, amount: 0,
            park=park,
        )
        return await fetch(request, context)


@dataclass
class Target:
    """A partition in a client's session."""

    offset: int
    topic_id: UUID
    leader_epoch: int
    start: int = -1
    last_epoch: int = -1


@dataclass
class Client:
    """A follower, or a consumer (-1), with a session; it sends only differences."""

    replica_id: int
    read_committed: bool = False
    max_bytes: int = 10**6
    session_id: int = 0
    epoch: int = 0
    broker_epoch: int = 7
    targets: dict[str, Target] = field(default_factory=dict)
    sent: dict[str, Target] = field(default_factory=dict)

    def request(self) -> FetchRequest:
        full = self.epoch == 0
        changed = {name: target for name, target in self.targets.items() if full or self.sent.get(name) != target}
        gone = [] if full else [name for name in self.sent if name not in self.targets]
        gone += [] if full else [n for n in changed if n in self.sent and self.sent[n].topic_id != changed[n].topic_id]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self.replica_id, replica_epoch=self.broker_epoch),
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=self.max_bytes,
            isolation_level=int(self.read_committed),
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=target.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=target.leader_epoch,
                            fetch_offset=target.offset,
                            partition_max_bytes=10**6,
                            last_fetched_epoch=target.last_epoch,
                            log_start_offset=target.start,
                        )
                    ],
                )
                for name, target in changed.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=self.sent[name].topic_id, partitions=[0]) for name in gone
            ],
        )
        self.sent = {name: Target(**vars(target)) for name, target in self.targets.items()}
        return request

    def answered(self, response: FetchResponse, leaders: dict[UUID, Partition]) -> None:
        if response.error_code:
            self.session_id, self.epoch = 0, 0
            assert response.error_code in SESSION_ERRORS
            return
        self.session_id, self.epoch = response.session_id, self.epoch + 1 if response.session_id else 0
        for topic in response.responses:
            leader = leaders.get(topic.topic_id)
            name = next((name for name, target in self.targets.items() if target.topic_id == topic.topic_id), None)
            if leader is None or name is None:
                continue
            target = self.targets[name]
            for data in topic.partitions:
                if data.records is not None and len(data.records):
                    end = leader.log.log_end_offset if self.replica_id >= 0 else data.last_stable_offset
                    target.offset = max(target.offset, end)
                    if self.replica_id >= 0:
                        target.last_epoch = leader.log.leader_epochs.latest
                if self.replica_id >= 0 and not data.error_code:
                    target.start = max(target.start, data.log_start_offset)
                if data.error_code == errors.OffsetOutOfRangeError.code:
                    target.offset = leader.log.log_start_offset


class Model:
    """One broker, its clients, and the events.

    The same seed produces the same events, whether partitions rest or not, as long as the broker behaves the same.
    ``trace`` has everything that it does.
    """

    def __init__(self, seed: int, *, rests: bool) -> None:
        self.chance = Random(seed)
        self.broker = Broker(rests=rests)
        self.states: dict[str, tuple[UUID, PartitionImage]] = {}
        self.epochs = {NODE: 7, 2: 7, 3: 7}
        self.sequences: dict[tuple[UUID, int], int] = {}
        self.topics = 0
        self.trace = self.broker.rose
        for name in NAMES:
            self.create(name)
        self.become()
        self.clients = [Client(2), Client(3), Client(-1), Client(-1, read_committed=True), Client(-1, max_bytes=100)]

    def create(self, name: str) -> None:
        self.topics += 1
        state = PartitionImage(0, (NODE, *FOLLOWERS), (NODE, *FOLLOWERS), NODE, 3, 3)
        self.states[name] = UUID(int=self.topics), state

    def become(self) -> None:
        topics = [TopicImage(name, topic_id, {0: state}) for name, (topic_id, state) in self.states.items()]
        self.broker.become(
            MetadataImage(
                offset=self.broker.image.offset + 1,
                topics={topic.name: topic for topic in topics},
                topics_by_id={topic.topic_id: topic for topic in topics},
                brokers={node: BrokerImage(node, epoch, UUID(int=node), fenced=False)
                         for node, epoch in self.epochs.items()},
            )
        )  # fmt: skip

    def change_state(self, name: str, **values: Any) -> None:
        topic_id, state = self.states[name]
        self.states[name] = topic_id, state._replace(partition_epoch=state.partition_epoch + 1, **values)
        self.become()

    def happen(self) -> None:
        """Change a partition in a random way."""
        chance, broker, replicas = self.chance, self.broker, self.broker.replicas
        name = chance.choice(NAMES)
        if name not in self.states:
            self.create(name)
            self.become()
            return
        topic_id, state = self.states[name]
        key = TopicPartition(name, 0)
        found = replicas.find(name, 0)
        event = chance.choice(EVENTS)
        self.trace.append(f"{event} {name}")
        try:
            match event:
                case "append":
                    replicas.append({key: batch(*[b"v"] * chance.randint(1, 3))}, required_acks=1)
                case "records of a transaction":
                    producer = chance.choice((1, 2))
                    sequence = self.sequences.get((topic_id, producer), 0)
                    self.sequences[topic_id, producer] = sequence + 1
                    data = from_producer(b"t", sequence=sequence, producer_id=producer, transactional=True)
                    replicas.append_internal(key, data)
                case "end of a transaction":
                    replicas.append_internal(key, marker(chance.choice((1, 2)), commit=chance.random() < 0.5))
                case "records are deleted":
                    if found is not None:
                        replicas.delete_records_before(key, int(found.high_watermark * chance.random()))
                case "retention":
                    if found is not None:
                        found.log.roll(now_ms=NOW_MS)
                        found.log.apply_retention(NOW_MS + 10**12, up_to_offset=found.high_watermark)
                case "new epoch":
                    self.change_state(name, leader_epoch=state.leader_epoch + 1)
                case "in-sync set":
                    self.change_state(name, isr=(NODE, *(node for node in FOLLOWERS if chance.random() < 0.8)))
                case "leader":
                    leader = 2 if state.leader == NODE else NODE
                    self.change_state(name, leader=leader, leader_epoch=state.leader_epoch + 1)
                case "lagging followers":
                    broker.now += chance.choice((1, 20, 40))
                    for partition in replicas.partitions():
                        proposal = partition.propose_shrink(broker.now)
                        self.trace.append(str(proposal))
                        if proposal is not None:
                            partition.isr_refused(proposal)
                case "topic is deleted":
                    del self.states[name]
                    self.become()
                case "topic is created again":
                    self.create(name)
                    self.become()
                case "offline":
                    if chance.random() < 0.3:
                        replicas.logs_offline([key], "broken")
                case "follower registers again":
                    follower = self.clients[chance.choice((0, 1))]
                    self.epochs[follower.replica_id] += 1
                    self.become()
                    if chance.random() < 0.7:
                        follower.epoch, follower.broker_epoch = 0, self.epochs[follower.replica_id]
                case "replicated":
                    if found is not None and not found.is_leader:
                        if chance.random() < 0.4:
                            found.log.append_as_leader(batch(b"v"), leader_epoch=state.leader_epoch, now_ms=NOW_MS)
                        end = chance.randint(found.high_watermark, found.log.log_end_offset)
                        replicas._hosted.followed(found, end, chance.randint(0, end))
                case "acknowledged in-sync set":
                    self.settle_proposals()
        except errors.KafkaError as error:
            self.trace.append(str(error))

    def settle_proposals(self) -> None:
        """The controller accepts the proposals of leaders, and the broker receives the response."""
        for partition in self.broker.replicas.partitions():
            proposal = partition.isr.in_flight
            if proposal is not None:
                epoch = partition.partition_epoch + 1
                accepted = partition.isr_committed(proposal, partition_epoch=epoch, in_sync_replicas=proposal.replicas)
                self.broker.replicas._hosted.isr_changed(partition)
                self.trace.append(f"{partition.topic_partition} {sorted(proposal.replicas)} {accepted}")
                name = partition.topic_partition.topic
                topic_id, state = self.states[name]
                self.states[name] = topic_id, state._replace(isr=tuple(proposal.replicas), partition_epoch=epoch)

    def aim(self, client: Client) -> None:
        """Choose the client's partitions by its metadata, which may be old."""
        chance = self.chance
        is_follower = client.replica_id >= 0
        for name in NAMES:
            known = client.targets.get(name)
            if name not in self.states:
                if known is not None and chance.random() < 0.5:
                    del client.targets[name]
                continue
            topic_id, state = self.states[name]
            if known is None or known.topic_id != topic_id:
                if chance.random() < 0.5:
                    client.targets[name] = Target(0, topic_id, state.leader_epoch, 0 if is_follower else -1)
            elif known.leader_epoch != state.leader_epoch and chance.random() < 0.7:
                known.leader_epoch = state.leader_epoch
            elif chance.random() < 0.01:
                del client.targets[name]
            elif not is_follower and chance.random() < 0.01:
                known.offset = 0

    async def fetch(self) -> None:
        """A client fetches, and changes may happen while the fetch waits."""
        chance = self.chance
        client = chance.choice(self.clients)
        self.aim(client)
        if not client.targets and not client.epoch:
            return
        self.broker.now += chance.choice((0.1, 0.5, 5))
        events = chance.choice((0, 0, 0, 1, 1, 3))

        def while_parked() -> None:
            for _ in range(events):
                self.happen()

        response = await self.broker.serve(client.request(), while_parked, self.trace)
        self.trace.append(
            f"{client.replica_id} {response.session_id} {response.error_code} "
            f"{[(topic.topic_id, [_text(data) for data in topic.partitions]) for topic in response.responses]}"
        )
        client.answered(response, {p.topic_id: p for p in self.broker.replicas.partitions()})

    async def run(self, steps: int) -> list[str]:
        for _ in range(steps):
            if self.chance.random() < 0.35:
                self.happen()
            else:
                await self.fetch()
        return self.trace


def _text(data: PartitionData) -> str:
    assert data.records is not None
    leader, diverging = data.current_leader, data.diverging_epoch
    return (
        f"{data.partition_index} {data.error_code} {data.high_watermark} {data.last_stable_offset} "
        f"{data.log_start_offset} {len(data.records)} {len(data.aborted_transactions or ())} "
        f"{leader.leader_id} {leader.leader_epoch} {diverging.epoch} {diverging.end_offset}"
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_sessions_with_resting_partitions_respond_like_sessions_that_read_everything(seed: int) -> None:
    resting, reading = Model(seed, rests=True), Model(seed, rests=False)
    for one, other in zip(trio.run(resting.run, 120), trio.run(reading.run, 120), strict=True):
        assert one == other


def test_partitions_rest_most_of_the_time() -> None:
    model = Model(1, rests=True)
    trio.run(model.run, 200)
    assert model.broker.rested > 50
