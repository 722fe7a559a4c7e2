"""A partition on three brokers in one deterministic world: real logs, partitions and fetchers, no task and no socket.

Everything between the nodes is a message that the world delivers late, out of order, twice or never: fetches and their
responses, images of the metadata, AlterPartition requests and their results. Nodes die and come back, with or without
what was not synced. Some batches come from idempotent producers, which send batches again; in one scenario also from
transactional ones. `ReplicaWorld.run` takes random steps, checks the invariants after each, then heals everything and
checks that the replicas become equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

from tests.support.in_steps import done
from tests.support.replica_producers import Producers, Sequences
from tests.unit.broker_stub.clusters import broker, cluster, replayed, topic
from triokafka import errors
from triokafka.broker_stub.controller import alter_partition, broker_failover
from triokafka.broker_stub.controller.forced_leader import hand_over
from triokafka.broker_stub.controller.reassignments import alter_reassignments
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.metadata.image import MetadataImage, PartitionImage
from triokafka.broker_stub.purgatory.delayed_operation import Purgatory
from triokafka.broker_stub.replica.alter_partition_sender import PendingProposals
from triokafka.broker_stub.replica.delete_records import delete_records_before
from triokafka.broker_stub.replica.fetcher.fetcher_state import FetcherState, FetchResult
from triokafka.broker_stub.replica.fetcher.follower_log import FollowerLog, NextStep
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.replica_traffic import ReplicaTraffic
from triokafka.network.fetch_sessions.fetch_session_handler import FetchPlan
from triokafka.protocol.api.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from triokafka.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from triokafka.protocol.api.fetch import EpochEndOffset, PartitionData
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    RemoveTopicRecord,
)
from triokafka.records import encode_batch, iter_batches
from triokafka.structs import TopicPartition
from triokafka.world.memory import MemoryStorage

T0 = TopicPartition("t", 0)
NODES = (1, 2, 3)
NOW_MS = 1_700_000_000_000
LAG_SECONDS = 1.0
_FENCED, _UNFENCED = 1, -1
_CONVERGE_ROUNDS = 400
_DIRECTORY = f"/data/{T0.topic}-{T0.partition}"


@dataclass(frozen=True)
class Scenario:
    """How often each event happens. Weights are relative."""

    produce: int = 15
    fetch: int = 50
    deliver: int = 90
    metadata: int = 15
    alter: int = 10
    shrink: int = 2
    flush: int = 3
    kill: int = 0
    power: int = 0
    restart: int = 4
    fence: int = 6
    hand_over: int = 0
    delete: int = 0
    recreate: int = 0
    reassign: int = 0
    fail_over: int = 0
    end_transaction: int = 0
    unclean: bool = False
    loss: float = 0.02
    duplicates: float = 0.0
    steps: int = 320
    min_isr: int = 2


SCENARIOS: dict[str, Scenario] = {
    "the leader dies": Scenario(kill=8, restart=8, fence=12, fetch=35),
    "a follower loses its unflushed end": Scenario(power=3, flush=1),
    "logs diverge and are truncated": Scenario(kill=3, hand_over=3, metadata=8, min_isr=1),
    "leaders change fast (KIP-279)": Scenario(hand_over=12, metadata=10, produce=25),
    "the high watermark lags at a failover (KIP-101)": Scenario(kill=2, hand_over=2, fetch=40, deliver=60),
    "in-sync sets shrink and grow while AlterPartition is in flight": Scenario(kill=2, shrink=15, alter=5, loss=0.1),
    "records are deleted while followers lag": Scenario(delete=6, kill=2, fetch=15),
    "elections are unclean": Scenario(kill=5, fence=10, unclean=True, min_isr=1),
    "the topic is created again": Scenario(recreate=1, kill=1, metadata=8),
    "responses are late, lost and doubled": Scenario(loss=0.2, duplicates=0.3, hand_over=2),
    "the partition is reassigned while the controller fails over": Scenario(
        reassign=6, fail_over=6, end_transaction=6, kill=2, alter=20, metadata=25
    ),
}


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class _Checkpoint:
    """The files of a node besides its log."""

    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    topic_id: UUID | None = None


@dataclass
class _Produce:
    value: bytes
    offset: int
    epoch: int
    topic_id: UUID


class Node:
    """One broker with at most one partition."""

    def __init__(self, world: ReplicaWorld, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.storage = MemoryStorage()
        self.saved = _Checkpoint()
        self.alive = False
        self.dirty = False
        self.incarnation = 0
        self.epoch = 100 + node_id
        self.applied = 0
        self.image = MetadataImage()
        self.partition: Partition | None = None
        self.waiting: list[_Produce] = []
        self.inflight = False
        self.altering = False
        self.sequences = Sequences()

    def start(self) -> None:
        """Start the process."""
        self.alive = True
        self.incarnation += 1
        self.partition = None
        self.waiting = []
        self.inflight = self.altering = False
        self.sequences.forget()
        none = Purgatory("none", now_ms=0)
        self.proposals = PendingProposals(self.node_id)
        self.hosted = HostedPartitions(none, none, none, None, lambda: self.world.now, self.proposals.submit)
        self.state = FetcherState(max_bytes=300, backoff_seconds=0.2)
        self.data = FollowerLog(
            self.state, self.hosted, ReplicaTraffic(), node_id=self.node_id, wall_ms=lambda: self.world.wall_ms
        )
        self.apply(len(self.world.images) - 1)

    def end(self, *, power: bool) -> None:
        """End the process and, with ``power``, lose what was not synced."""
        self.alive = False
        self.storage.crash(self.world.random) if power else self.storage.kill()
        self.partition = None

    # The brokers of the cluster (`Registrations`)

    def broker_epoch(self, broker_id: int) -> int | None:
        """See `Registrations`."""
        found = self.image.brokers.get(broker_id)
        return None if found is None else found.broker_epoch

    def is_active(self, broker_id: int) -> bool:
        """See `Registrations`."""
        found = self.image.brokers.get(broker_id)
        return found is not None and found.active

    # Metadata

    def apply(self, index: int) -> None:
        """Follow an image, as `DeltaApplier` does."""
        self.applied, self.image = index, self.world.images[index]
        found = self.image.topics.get(T0.topic)
        state = self.image.partition(*T0)
        if found is None or state is None:
            self._drop()
            return
        if self.node_id not in state.replicas:
            self._drop()
            self._remove_directory()
            self.saved = _Checkpoint()
            return
        if self.partition is not None and self.partition.topic_id != found.topic_id:
            self._drop()
        if self.partition is None:
            self.partition = self._open(found.topic_id)
            self.hosted.online[T0] = self.partition
        if state.leader == self.node_id:
            self.state.remove(T0)
            was = self.partition.leader_epoch if self.partition.is_leader else -1
            self.partition.make_leader(
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                in_sync_replicas=state.isr,
                now=self.world.now,
            )
            if was != state.leader_epoch:
                self.waiting = []
            self.hosted.advance_high_watermark(self.partition)
        elif self.partition.make_follower(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
        ):
            self.waiting = []
            self.state.remove(T0)
            if state.leader >= 0:
                self.state.add(self.partition)

    def _drop(self) -> None:
        self.state.remove(T0)
        self.hosted.online.pop(T0, None)
        self.waiting = []
        self.sequences.forget()
        if self.partition is not None:
            self.partition.log.delete()
            self.partition = None

    def _remove_directory(self) -> None:
        if self.storage.is_dir(_DIRECTORY):
            self.storage.remove_tree(_DIRECTORY)

    def _open(self, topic_id: UUID) -> Partition:
        if self.saved.topic_id != topic_id:
            self._remove_directory()
            self.saved = _Checkpoint(topic_id=topic_id)
        saved = self.saved
        log = PartitionLog.open(
            self.storage,
            _DIRECTORY,
            T0,
            LogConfig(segment_bytes=2000, min_insync_replicas=self.world.scenario.min_isr),
            now_ms=self.world.wall_ms,
            recovery_point=saved.recovery_point,
            high_watermark=saved.high_watermark,
            log_start_offset=saved.log_start_offset,
            before_cut=self._before_cut,
        )
        return Partition(
            T0,
            topic_id,
            node_id=self.node_id,
            log=log,
            high_watermark=saved.high_watermark,
            registrations=self,
            lag_seconds=LAG_SECONDS,
        )

    def _before_cut(self, offset: int) -> None:
        self.sequences.truncate(offset)
        saved = self.saved
        saved.recovery_point = min(saved.recovery_point, offset)
        saved.high_watermark = min(saved.high_watermark, offset)
        saved.log_start_offset = min(saved.log_start_offset, offset)

    def flush(self) -> None:
        """Sync the log and write the checkpoints."""
        if self.partition is not None:
            log = self.partition.log
            log.flush()
            self.saved.recovery_point = log.recovery_point
            self.saved.high_watermark = self.partition.high_watermark
            self.saved.log_start_offset = log.log_start_offset


@dataclass
class _History:
    """The acknowledged and committed records, by topic id."""

    committed: dict[UUID, dict[int, bytes]] = field(default_factory=dict)
    acknowledged: dict[UUID, dict[int, bytes]] = field(default_factory=dict)
    watermarks: dict[tuple[UUID, int, int, int], int] = field(default_factory=dict)
    stable: dict[tuple[UUID, int, int, int], int] = field(default_factory=dict)


class ReplicaWorld:
    """Three nodes, the controller's decisions, and the messages between them.

    ``fetches_ahead``: whether followers send fetches before the last response is applied; ``sent_ahead`` counts these.
    """

    def __init__(self, scenario: Scenario, seed: int, *, fetches_ahead: bool = True) -> None:
        self.scenario = scenario
        self.fetches_ahead = fetches_ahead
        self.random = Random(seed)
        self.now = 0.0
        self.wall_ms = NOW_MS
        self.topic_number = 7
        self.images = [cluster(topic("t", NODES), brokers=NODES)]
        self.history = _History()
        self.messages: list[Callable[[], None]] = []
        self.produced = 0
        self.sent_ahead = 0
        self.producers = Producers(seed, transactional=scenario.end_transaction > 0)
        self.controller = 0
        self.next_epoch = 1000
        self.trace: list[str] = []
        self.nodes = {node_id: Node(self, node_id) for node_id in NODES}
        for node in self.nodes.values():
            node.start()

    # The controller

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self.images[-1]

    @property
    def partition(self) -> PartitionImage:
        """The partition's committed state."""
        found = self.image.partition(*T0)
        assert found is not None
        return found

    def config(self, name: str = "t") -> LogConfig:
        """The topic's configuration."""
        return LogConfig(
            min_insync_replicas=self.scenario.min_isr, unclean_leader_election_enable=self.scenario.unclean
        )

    def commit(self, records: list[Struct]) -> None:
        """Commit records."""
        if records:
            self.images.append(replayed(records, self.image))
            state = self.image.partition(*T0)
            if state is not None and not set(state.isr) <= set(state.replicas):
                raise Violation(f"the in-sync set is not a subset of the replicas: {state}")

    def fence(self, node: Node) -> None:
        """End the session of a dead broker."""
        known = self.image.brokers[node.node_id]
        if known.fenced:
            return
        change = BrokerRegistrationChangeRecord(broker_id=node.node_id, broker_epoch=known.broker_epoch, fenced=_FENCED)
        self.commit([change, *broker_failover.broker_fenced(self.image, node.node_id, self.config)])

    def register(self, node: Node) -> None:
        """Register a new process, and unfence it."""
        if node.dirty:
            self.commit(list(broker_failover.broker_ended_unclean(self.image, node.node_id, self.config)))
        record = broker(node.node_id, fenced=True)
        self.next_epoch += 1
        node.epoch = record.broker_epoch = self.next_epoch
        self.commit([record])
        unfence = BrokerRegistrationChangeRecord(broker_id=node.node_id, broker_epoch=node.epoch, fenced=_UNFENCED)
        self.commit([unfence])
        self.commit(list(broker_failover.broker_unfenced(self.image, node.node_id, self.config)))

    # Steps

    def run(self) -> None:
        """Take all random steps, then heal."""
        scenario = self.scenario
        choices: list[tuple[Callable[[], None], int]] = [
            (self.produce, scenario.produce),
            (self.fetch, scenario.fetch),
            (self.deliver, scenario.deliver),
            (self.metadata, scenario.metadata),
            (self.alter, scenario.alter),
            (self.shrink, scenario.shrink),
            (self.flush, scenario.flush),
            (self.kill, scenario.kill),
            (self.cut_power, scenario.power),
            (self.restart, scenario.restart),
            (self.detect, scenario.fence),
            (self.move, scenario.hand_over),
            (self.delete, scenario.delete),
            (self.recreate, scenario.recreate),
            (self.reassign, scenario.reassign),
            (self.fail_over, scenario.fail_over),
            (self.end_transaction, scenario.end_transaction),
        ]
        steps, weights = zip(*choices, strict=True)
        for _ in range(scenario.steps):
            step = self.random.choices(steps, weights)[0]
            self.trace.append(step.__name__)
            step()
            self.pass_time(self.random.random() * 0.05)
            self.check()
        self.heal()

    def pass_time(self, seconds: float) -> None:
        """Advance the clocks."""
        self.now += seconds
        self.wall_ms = NOW_MS + int(self.now * 1000)

    def _alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    def _one(self) -> Node | None:
        alive = self._alive()
        return self.random.choice(alive) if alive else None

    def _leaders(self) -> list[Node]:
        return [node for node in self._alive() if node.partition is not None and node.partition.is_leader]

    def produce(self) -> None:
        """A client writes to a broker that considers itself the leader."""
        leaders = self._leaders()
        if not leaders:
            return
        node = self.random.choice(leaders)
        partition = node.partition
        assert partition is not None
        self.produced += 1
        value = b"<%d>" % self.produced
        self.producers.retry(node.sequences, partition, self.wall_ms)
        identity = self.producers.identity(node.sequences, partition.log)
        records = [(self.wall_ms, None, value + b"." * self.random.randrange(60), ())]
        batch = bytearray(encode_batch(records, **identity))
        try:
            info = partition.append(batch, required_acks=-1, now_ms=self.wall_ms)
        except errors.NotEnoughReplicasError:
            return
        node.waiting.append(_Produce(value, info.last_offset, partition.leader_epoch, partition.topic_id))
        node.hosted.appended(partition)

    def fetch(self) -> None:
        """A follower sends a fetch."""
        node = self._one()
        if node is None or node.inflight or node.partition is None:
            return
        plan = node.state.plan(self.now)
        if plan is not None:
            self._send(node, plan)

    def _send(self, node: Node, plan: FetchPlan) -> None:
        assert node.partition is not None
        node.inflight = True
        leader = self.nodes.get(node.partition.leader_id)
        incarnation, epoch = node.incarnation, node.epoch

        def failed() -> None:
            if node.incarnation == incarnation and node.alive:
                node.inflight = False
                node.state.failed(self.now)

        def arrives(again: bool = False) -> None:
            if leader is None or not leader.alive or self.random.random() < self.scenario.loss:
                self.messages.append(failed)
                return
            data = self._serve(leader, node.node_id, epoch, plan)
            if not again and self.random.random() < self.scenario.duplicates:
                self.messages.append(lambda: arrives(True))
            self.messages.append(lambda: answered(data))

        def answered(data: PartitionData) -> None:
            if node.incarnation != incarnation or not node.alive:
                return
            node.inflight = False
            node.state.answered(0, 0)
            result = FetchResult(T0, plan.targets[T0], data)
            ahead = None
            if self.fetches_ahead and self.random.random() < 0.8:
                ahead = node.state.plan_ahead([result], self.now)
            if ahead is not None:
                self.sent_ahead += 1
                self._send(node, ahead)
                if self.random.random() < 0.1:  # the records are not applied before newer metadata
                    self.metadata()
            if node.partition is not None:
                self._apply(node, result)

        self.messages.append(arrives)

    def _serve(self, leader: Node, follower: int, epoch: int, plan: FetchPlan) -> PartitionData:
        target = plan.targets[T0]
        partition = leader.partition
        data = PartitionData(partition_index=0, records=None)
        try:
            if partition is None or partition.topic_id != target.topic_id:
                raise errors.UnknownTopicIdError
            partition.require_follower(follower, target.current_leader_epoch)
            outcome = partition.read(
                target.fetch_offset,
                target.max_bytes,
                min_one_batch=True,
                follower=True,
                current_leader_epoch=target.current_leader_epoch,
                last_fetched_epoch=target.last_fetched_epoch,
            )
            if outcome.diverging_epoch is None:
                leader.hosted.follower_fetched(
                    partition,
                    follower,
                    target.fetch_offset,
                    log_start_offset=target.log_start_offset,
                    broker_epoch=epoch,
                )
        except errors.BrokerResponseError as error:
            data.error_code = error.code
            return data
        data.high_watermark = outcome.high_watermark
        data.log_start_offset = outcome.log_start_offset
        if outcome.diverging_epoch is not None:
            data.diverging_epoch = EpochEndOffset(
                epoch=outcome.diverging_epoch.epoch, end_offset=outcome.diverging_epoch.end_offset
            )
        data.records = bytes(outcome.records)  # type: ignore[arg-type]
        return data

    def _apply(self, node: Node, result: FetchResult) -> None:
        sent = result.sent
        if node.data.apply(result, self.now) is not NextStep.LOOK_UP:
            return
        position = node.state.position(T0, sent)
        leader = self.nodes.get(position.partition.leader_id) if position is not None else None
        there = leader.partition if leader is not None and leader.alive else None
        if (
            position is None
            or there is None
            or not there.is_leader
            or there.leader_epoch != position.leader_epoch
            or there.topic_id != position.partition.topic_id
        ):
            node.state.delay(T0, self.now)
        elif node.data.needs_leader_start(position, there.log.log_end_offset):
            node.data.begin_at_leader_start(position, there.log.log_start_offset)

    def deliver(self) -> None:
        """Deliver a message."""
        if self.messages:
            self.messages.pop(self.random.randrange(min(len(self.messages), 4)))()

    def metadata(self) -> None:
        """A broker receives later metadata, sometimes several changes at once."""
        node = self._one()
        if node is not None and node.applied < len(self.images) - 1:
            node.apply(self.random.randint(node.applied + 1, min(node.applied + 3, len(self.images) - 1)))

    def alter(self) -> None:
        """A leader proposes in-sync sets."""
        node = self._one()
        if node is None or node.altering or not len(node.proposals):
            return
        request = node.proposals.next_request(node.epoch)
        if request is None:
            return
        node.altering = True
        incarnation, controller = node.incarnation, self.controller

        def arrives(request: AlterPartitionRequest = request) -> None:
            response: AlterPartitionResponse | None = None
            if self.controller == controller and self.random.random() >= self.scenario.loss:
                try:
                    outcome = alter_partition.alter_partition(self.image, request, self.config)
                except errors.BrokerResponseError:
                    pass
                else:
                    self.commit(list(outcome.records))
                    if self.random.random() >= self.scenario.loss:
                        response = outcome.response
            self.messages.append(lambda: answered(response))

        def answered(response: AlterPartitionResponse | None) -> None:
            if node.incarnation != incarnation or not node.alive:
                return
            node.altering = False
            if response is None or self.controller != controller:
                node.proposals.failed()
            else:
                node.proposals.answered(response, node.hosted.isr_changed)

        self.messages.append(arrives)

    def shrink(self) -> None:
        """A leader looks for followers that lag."""
        node = self._one()
        if node is not None and node.partition is not None:
            node.hosted.shrink_lagging(node.partition)
            self.pass_time(0.3)

    def flush(self) -> None:
        """A log is synced."""
        node = self._one()
        if node is not None:
            node.flush()

    def kill(self) -> None:
        """A process dies; its disk keeps everything."""
        node = self._one()
        if node is not None and len(self._alive()) > (0 if self.scenario.unclean else 1):
            node.end(power=False)

    def cut_power(self) -> None:
        """A machine loses unsynced data while another in-sync replica is up and stays in sync.

        A proposal in flight may leave the node alone in the in-sync set. Its unsynced records would then be lost, as in
        Kafka: these topics have no eligible leader replicas (KIP-966).
        """
        node = self._one()
        if node is None or node.altering or any(other.dirty for other in self.nodes.values()):
            return
        others = [self.nodes[replica] for replica in self.partition.isr if replica != node.node_id]
        if any(other.alive for other in others):
            node.end(power=True)
            node.dirty = True

    def restart(self) -> None:
        """A dead broker comes back; the controller has noticed its death."""
        dead = [node for node in self.nodes.values() if not node.alive]
        if dead:
            node = self.random.choice(dead)
            self.fence(node)
            self.register(node)
            node.start()

    def detect(self) -> None:
        """The controller notices a dead broker."""
        for node in self.nodes.values():
            if not node.alive:
                self.fence(node)

    def move(self) -> None:
        """Leadership moves to another replica in sync."""
        able = [replica for replica in self.partition.isr if self.image.brokers[replica].active]
        if able:
            self.commit(list(hand_over(self.image, "t", 0, self.random.choice(able)).records))

    def delete(self) -> None:
        """A client deletes records."""
        for node in self._alive():
            partition = node.partition
            if partition is not None and partition.is_leader and partition.high_watermark:
                try:
                    delete_records_before(partition, self.random.randint(0, partition.high_watermark))
                except errors.BrokerResponseError:
                    pass
                return

    def recreate(self) -> None:
        """The topic is deleted, and created again."""
        self.commit([RemoveTopicRecord(topic_id=self.image.topics["t"].topic_id)])
        self.topic_number += 1
        active = [node_id for node_id in NODES if self.image.brokers[node_id].active]
        if active:
            isr, leader = active, active[0]
            self.commit(topic("t", NODES, number=self.topic_number, isr=isr, leader=leader))
        else:
            self.commit(topic("t", NODES, number=self.topic_number))

    def reassign(self) -> None:
        """A client asks for other replicas. A controller that fails over loses the request."""
        target, controller = self.random.sample(NODES, self.random.choice((2, 3))), self.controller

        def arrives() -> None:
            if self.controller != controller or self.random.random() < self.scenario.loss:
                return
            wanted = ReassignablePartition(partition_index=0, replicas=target)
            request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[wanted])])
            self.commit(list(done(alter_reassignments(self.image, request, self.config)).records))

        self.messages.append(arrives)

    def fail_over(self) -> None:
        """Another controller goes on with the committed metadata; requests and answers in flight are lost."""
        self.controller += 1

    def end_transaction(self) -> None:
        """A transaction coordinator commits or aborts."""
        leaders = self._leaders()
        if leaders:
            node = self.random.choice(leaders)
            assert node.partition is not None
            self.producers.end_transaction(node.sequences, node.partition, self.wall_ms)
            node.hosted.appended(node.partition)

    # Invariants

    def check(self) -> None:
        """Check the invariants that hold at any time."""
        history = self.history
        for node in self._alive():
            partition = node.partition
            if partition is None:
                continue
            log = partition.log
            if not log.log_start_offset <= partition.high_watermark <= log.log_end_offset:
                raise Violation(f"high watermark {partition.high_watermark} outside of {log}")
            node.sequences.refresh(log)
            if not partition.is_leader:
                continue
            key = (partition.topic_id, node.node_id, node.incarnation, partition.leader_epoch)
            before = history.watermarks.get(key, 0)
            if partition.high_watermark < before:
                raise Violation(f"the high watermark fell from {before} to {partition.high_watermark}")
            history.watermarks[key] = partition.high_watermark
            stable = partition.last_stable_offset
            if not history.stable.get(key, 0) <= stable <= partition.high_watermark:
                raise Violation(f"the last stable offset was {history.stable.get(key, 0)}, and is {stable}: {log}")
            history.stable[key] = stable
            if not partition.isr.maximal <= set(partition.replicas):
                raise Violation(f"in sync {sorted(partition.isr.maximal)}, but replicas {partition.replicas}")
            if not self.scenario.unclean:
                self._check_committed(partition)
            still = []
            for produce in node.waiting:
                if partition.high_watermark > produce.offset:
                    if partition.enough_replicas and produce.epoch == partition.leader_epoch:
                        history.acknowledged.setdefault(produce.topic_id, {})[produce.offset] = produce.value
                else:
                    still.append(produce)
            node.waiting = still

    def _check_committed(self, partition: Partition) -> None:
        committed = self.history.committed.setdefault(partition.topic_id, {})
        known = max(committed, default=-1) + 1
        for offset, data in batches_of(partition.log, max(known, partition.log.log_start_offset)):
            if offset < partition.high_watermark:
                committed[offset] = data

    def heal(self) -> None:
        """End all faults; the replicas become equal, and have everything that was acknowledged."""
        self.scenario = replace(self.scenario, loss=0.0, duplicates=0.0)
        for node in self.nodes.values():
            if not node.alive:
                self.fence(node)
        for node in self.nodes.values():
            if not node.alive:
                self.register(node)
                node.start()
        for _ in range(_CONVERGE_ROUNDS):
            for node in self.nodes.values():
                if node.applied < len(self.images) - 1:
                    node.apply(len(self.images) - 1)
            self.fetch()
            self.alter()
            while self.messages:
                self.messages.pop(0)()
            self.pass_time(0.1)
            self.check()
            if self._is_healed():
                break
        else:
            raise Violation(f"the replicas do not become equal: {self.partition} {self._describe()}")
        self.check_end()

    def _is_healed(self) -> bool:
        ends = {node.partition.log.log_end_offset for node in self.nodes.values() if node.partition is not None}
        state = self.partition
        everybody = not state.reassigning and set(state.isr) == set(state.replicas)
        watermarks = {node.partition.high_watermark for node in self.nodes.values() if node.partition is not None}
        return everybody and len(ends) == 1 and watermarks == ends

    def _describe(self) -> list[str]:
        return [f"{node.partition!r} {node.partition.log!r}" for node in self.nodes.values() if node.partition]

    def check_end(self) -> None:
        """Check the invariants that hold after all faults have ended."""
        partitions = [node.partition for node in self.nodes.values() if node.partition is not None]
        start = max(partition.log.log_start_offset for partition in partitions)
        contents = [dict(batches_of(partition.log, start)) for partition in partitions]
        if any(content != contents[0] for content in contents):
            raise Violation("logs of replicas in sync differ")
        if self.scenario.unclean:
            return
        topic_id = partitions[0].topic_id
        for offset, data in self.history.committed.get(topic_id, {}).items():
            if offset >= start and contents[0].get(offset) != data:
                raise Violation(f"the committed batch at {offset} is lost or another")
        for offset, value in self.history.acknowledged.get(topic_id, {}).items():
            if offset >= start and value not in contents[0].get(offset, b""):
                raise Violation(f"the acknowledged record at {offset} is lost")


def batches_of(log: PartitionLog, start: int) -> list[tuple[int, bytes]]:
    """Return all batches from an offset on, by base offset."""
    found: list[tuple[int, bytes]] = []
    offset = start
    while offset < log.log_end_offset:
        records = log.read(offset, 1 << 20).records
        if not len(records):
            break
        for info in iter_batches(records):
            found.append((info.base_offset, bytes(memoryview(records)[info.position : info.end])))
            offset = info.next_offset
    return found


def run(name: str, seed: int, *, fetches_ahead: bool = True) -> ReplicaWorld:
    """Run one example of a scenario."""
    world = ReplicaWorld(SCENARIOS[name], seed, fetches_ahead=fetches_ahead)
    world.run()
    return world
