"""A random schedule of a cluster as the active controller sees it: brokers with logs that crash, restart, and stop.

The brokers follow the protocol: leaders propose in-sync sets with the epochs that they know, records are committed once
every in-sync replica and every proposed one has them, and a crash loses unflushed records.
"""

from __future__ import annotations

import random  # the seed is the example
import uuid
from collections.abc import Iterator
from typing import Any

from tests.support.in_steps import done
from tests.support.log_replay import replayed_batches
from tests.unit.broker_stub.clusters import CONFIG, creation, wanted
from triokafka import errors
from triokafka.broker_stub.controller.activation_records import initial_records
from triokafka.broker_stub.controller.alter_partition import alter_partition
from triokafka.broker_stub.controller.broker_control import BrokerControl
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.controller.directory_assignment import assign_replicas_to_directories
from triokafka.broker_stub.controller.elect_leaders import elect_leaders
from triokafka.broker_stub.controller.leader_balancing import preferred_leaders
from triokafka.broker_stub.controller.offline_partition_elections import unclean_leaders
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.reassignments import alter_reassignments
from triokafka.broker_stub.controller.session_fencing import fence_stale
from triokafka.broker_stub.controller.topic_control import TopicControl
from triokafka.broker_stub.metadata import EndpointImage, features
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.features import (
    DEPENDENCIES,
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    SUPPORTED,
)
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, PartitionImage, TopicImage
from triokafka.broker_stub.metadata.lifecycle_values import BrokerHeartbeat, BrokerRegistration
from triokafka.broker_stub.metadata.records import decode_batches, encode_records
from triokafka.protocol.api.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from triokafka.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from triokafka.protocol.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from triokafka.protocol.api.assign_replicas_to_dirs import DirectoryData as AssignedData
from triokafka.protocol.api.assign_replicas_to_dirs import PartitionData as AssignedPartitionData
from triokafka.protocol.api.assign_replicas_to_dirs import TopicData as AssignedTopicData
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.protocol.api.elect_leaders import ElectLeadersRequest
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord, PartitionChangeRecord

BROKERS = (1, 2, 3, 4)
SESSION = CONFIG.broker_session_timeout_ms / 1000
TOPICS = ("a", "b")
LEVELS = SUPPORTED[METADATA_VERSION]
"""The lowest and the highest level of ``metadata.version``."""

Key = tuple[uuid.UUID, int]


class Process:
    """The process of one broker: its logs by partition, and the flushed part of each."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.incarnation: uuid.UUID | None = None
        self.epoch = -1
        self.clean_epoch = -1
        self.fence = self.stop = False
        self.directories = [uuid.UUID(int=1000 * broker_id + number) for number in (100, 200)]
        self.offline: list[uuid.UUID] = []
        self.logs: dict[Key, list[int]] = {}
        self.flushed: dict[Key, int] = {}

    @property
    def alive(self) -> bool:
        return self.incarnation is not None


class Proposal:
    """An AlterPartition request in flight to the controller."""

    def __init__(self, key: Key, leader: int, partition: PartitionImage, request: AlterPartitionRequest) -> None:
        self.key, self.leader, self.leader_epoch, self.request = key, leader, partition.leader_epoch, request
        self.isr = [state.broker_id for state in request.topics[0].partitions[0].new_isr_with_epochs]


class ClusterLife:
    """One schedule; ``step`` takes a random action and checks the invariants."""

    def __init__(self, seed: int, *, with_elr: bool) -> None:
        self.rng = random.Random(seed)
        self.with_elr = with_elr
        # The present level mostly; otherwise an older cluster, which is upgraded meanwhile.
        lowest = DEPENDENCIES[ELIGIBLE_LEADER_REPLICAS, 1][METADATA_VERSION] if with_elr else LEVELS[0]
        self.level = LEVELS[1] if self.rng.random() < 0.5 else self.rng.randint(lowest, LEVELS[1])
        configuration = ConfigurationControl(CONFIG)
        self.configuration = configuration
        self.replication = TopicControl(
            CONFIG,
            configuration,
            pick=self.rng.randrange,
            new_id=self._new_id,
        )
        self.image = EMPTY_IMAGE
        self.log: list[bytes] = []
        self.now = 0.0
        self.processes = {broker_id: Process(broker_id) for broker_id in BROKERS}
        self.proposals: list[Proposal] = []
        self.committed: dict[Key, list[int]] = {}
        self.clean_since: dict[Key, int] = {}
        self.next_record = 0
        self.cancelling = False
        self.steps = 0
        records = initial_records("1")
        records.append(FeatureLevelRecord(name=METADATA_VERSION, feature_level=self.level))
        if not with_elr:
            records.append(FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=0))
        self.apply(Outcome(records, None))
        self._begin()
        for process in self.processes.values():
            self._start(process)
        while any(broker.fenced for broker in self.image.brokers.values()):
            self.heartbeat()
        for _ in TOPICS:
            self.create()

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.rng.getrandbits(120) + 10_000)

    def _begin(self) -> None:
        self.control = BrokerControl(SESSION, self.configuration.effective.topic_config)
        self.control.begin(self.image, now=self.now, cluster_id="c")

    # Applying records

    def apply(self, outcome: Outcome[Any]) -> Any:
        """Append the records to the log, replay them, and check every change of a partition."""
        if outcome.records:
            base = self.image.offset + 1
            self.log.append(
                encode_records(outcome.records, base_offset=base, epoch=1, timestamp_ms=0, metadata_version=self.level)
            )
            delta = MetadataDelta(self.image)
            for record in outcome.records:
                if isinstance(record, PartitionChangeRecord) and record.isr is not None and not self.with_elr:
                    assert record.isr, "the last member is never removed"
                delta.replay(record)
            self.image = delta.image(base + len(outcome.records) - 1, 1)
            for _topic, was, now in delta.changed_partitions():
                if was is not None:
                    changes = sum(
                        isinstance(record, PartitionChangeRecord)
                        and (record.topic_id, record.partition_id) == (_topic.topic_id, now.partition)
                        for record in outcome.records
                    )
                    assert now.partition_epoch == was.partition_epoch + changes
                    assert changes <= 2
                if was is not None and was.reassigning and not now.reassigning and not self.cancelling:
                    shrinks = set(now.replicas) < set(was.replicas)
                    assert not shrinks or set(now.replicas) <= set(now.isr), f"a reassignment ended early: {was} {now}"
                if was is not None and was.reassigning and not now.reassigning and self.cancelling:
                    assert set(now.replicas) == set(was.replicas) - set(was.adding_replicas), f"{was} {now}"
                if was is not None and now.leader != was.leader and now.leader in was.eligible_leader_replicas:
                    better = [one for one in was.isr if one in now.replicas and self._may_lead(was, one)]
                    assert not better, f"{better} are in sync: {was} {now}"
                self._followed(_topic, was, now)
            for topic_id in delta.deleted_topics:
                for key in [key for key in self.committed if key[0] == topic_id]:
                    del self.committed[key]
        return outcome.response

    def _followed(self, topic: TopicImage, was: PartitionImage | None, now: PartitionImage) -> None:
        key = (topic.topic_id, now.partition)
        committed = self.committed.setdefault(key, [])
        if now.leader == -1 or (was is not None and was.leader_epoch == now.leader_epoch):
            return
        leader = self.processes[now.leader]
        log = leader.logs.setdefault(key, [])
        elected_unclean = now.leader_recovery_state == 1 and (was is None or was.leader != now.leader)
        if elected_unclean or not self.with_elr:
            del committed[_common(committed, log) :]
        # A process that ended leads nothing: it registers again first, and is then not elected if it has lost records.
        assert not leader.alive or log[: len(committed)] == committed, (
            f"leader {now.leader} of {topic.name}-{now.partition} lost records"
        )

    def _may_lead(self, partition: PartitionImage, broker_id: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker.has_online(partition.directory_of(broker_id))

    def topic_config(self) -> Any:
        return self.configuration.effective.topic_config_of(self.image)

    def partitions(self) -> Iterator[tuple[Key, TopicImage, PartitionImage]]:
        for topic, partition in self.image.partitions():
            yield (topic.topic_id, partition.partition), topic, partition

    # Brokers

    def _start(self, process: Process) -> None:
        former, process.incarnation = process.incarnation, self._new_id()
        try:
            outcome = self._register(process)
        except errors.DuplicateBrokerRegistrationError:
            process.incarnation = former
            return
        process.fence, process.stop, process.clean_epoch = False, False, -1
        process.epoch = self.apply(outcome)

    def _register(self, process: Process) -> Outcome[int]:
        assert process.incarnation is not None
        registration = BrokerRegistration(
            process.broker_id,
            process.incarnation,
            "c",
            (EndpointImage("PLAINTEXT", "h", 1),),
            SUPPORTED,
            "r" + str(process.broker_id % 2),
            tuple(directory for directory in process.directories if directory not in process.offline),
            process.clean_epoch,
        )
        return self.control.register(self.image, registration, now=self.now, next_offset=self.image.offset + 1)

    def _crash(self, process: Process) -> None:
        process.incarnation = None
        for key, log in process.logs.items():
            del log[self.rng.randint(min(process.flushed.get(key, 0), len(log)), len(log)) :]
            process.flushed[key] = len(log)

    def _beat(self, process: Process) -> None:
        offset = self.image.offset if self.rng.random() < 0.8 else process.epoch - 1
        beat = BrokerHeartbeat(
            process.broker_id, process.epoch, offset, process.fence, process.stop, tuple(process.offline)
        )
        try:
            reply = self.apply(self.control.heartbeat(self.image, beat, now=self.now))
        except (errors.BrokerIdNotRegisteredError, errors.StaleBrokerEpochError):
            self._crash(process)
            return
        process.fence = False
        assert reply.is_fenced == self.image.brokers[process.broker_id].fenced
        if reply.should_shut_down:
            process.clean_epoch = process.epoch
            process.incarnation = None
            process.flushed = {key: len(log) for key, log in process.logs.items()}

    # Actions

    def step(self) -> None:
        """Take one random action, and check the invariants."""
        actions = [
            (12, self.heartbeat), (6, self.start_process), (1, self.crash), (1, self.stop), (1, self.want_fence),
            (3, self.silence), (2, self.create), (1, self.delete), (2, self.reassign), (1, self.cancel),
            (2, self.elect), (1, self.balance), (1, self.configure), (1, self.unregister), (1, self.fail_over),
            (10, self.produce), (14, self.replicate), (3, self.flush), (4, self.bounce), (12, self.propose),
            (10, self.deliver),
            (8, self.commit), (4, self.assign), (1, self.lose_directory), (1, self.upgrade),
        ]  # fmt: skip
        self.steps += 1
        self.rng.choices([action for _, action in actions], [weight for weight, _ in actions])[0]()
        self.check()

    def _alive(self) -> list[Process]:
        return [process for process in self.processes.values() if process.alive]

    def heartbeat(self) -> None:
        self.now += self.rng.random()
        for process in self._alive():
            if self.rng.random() < 0.8:
                self._beat(process)

    def start_process(self) -> None:
        for process in self.processes.values():
            if not process.alive:
                if self.rng.random() < 0.5:
                    process.offline.clear()
                self._start(process)

    def crash(self) -> None:
        if alive := self._alive():
            self._crash(self.rng.choice(alive))

    def bounce(self) -> None:
        """Crash a process, and start it again after its session."""
        if alive := self._alive():
            process = self.rng.choice(alive)
            self._crash(process)
            broker = self.image.brokers.get(process.broker_id)
            if broker is not None and not broker.fenced and self.rng.random() < 0.5:
                self.apply(Outcome(self.control.fence(self.image, broker), None))
            self._start(process)
            if process.alive:
                self._beat(process)

    def stop(self) -> None:
        if alive := self._alive():
            self.rng.choice(alive).stop = True

    def want_fence(self) -> None:
        if alive := self._alive():
            process = self.rng.choice(alive)
            process.fence = True

    def silence(self) -> None:
        self.now += self.rng.random() * SESSION
        for process in self._alive():
            if self.rng.random() < 0.9:
                self._beat(process)
        while self.apply(fence_stale(self.control, self.image, now=self.now)) is not None:
            pass

    def fail_over(self) -> None:
        self._begin()

    def create(self) -> None:
        minimum = {"min.insync.replicas": str(self.rng.randint(1, 3))}
        request = creation(wanted(self.rng.choice(TOPICS), self.rng.randint(1, 2), self.rng.randint(1, 3), minimum))
        self.apply(done(self.replication.create_topics(self.image, request)))

    def upgrade(self) -> None:
        """Raise ``metadata.version``; running brokers register again once the metadata have their directories."""
        if self.level == LEVELS[1]:
            return
        self.level = self.rng.randint(self.level + 1, LEVELS[1])
        self.apply(Outcome([FeatureLevelRecord(name=METADATA_VERSION, feature_level=self.level)], None))
        for process in self._alive():
            broker = self.image.brokers.get(process.broker_id)
            if broker is None or broker.incarnation_id != process.incarnation or broker.directories:
                continue
            if features.assigns_directories(self.image):
                process.epoch = self.apply(self._register(process))
                assert process.epoch == broker.broker_epoch

    def delete(self) -> None:
        request = DeleteTopicsRequest(topic_names=[self.rng.choice(TOPICS)])
        self.apply(done(self.replication.delete_topics(self.image, request)))

    def _reassign(self, replicas: list[int] | None) -> None:
        wanted_partition = ReassignablePartition(partition_index=self.rng.randint(0, 1), replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=self.rng.choice(TOPICS), partitions=[wanted_partition])]
        )
        self.apply(done(alter_reassignments(self.image, request, self.topic_config())))

    def reassign(self) -> None:
        self._reassign(self.rng.sample(BROKERS, self.rng.randint(1, 3)))

    def cancel(self) -> None:
        self.cancelling = True
        self._reassign(None)
        self.cancelling = False

    def elect(self) -> None:
        # An unclean election on request loses the records that the elected replica lacks, by design.
        request = ElectLeadersRequest(election_type=self.rng.randint(0, 1), topic_partitions=None)
        self.apply(done(elect_leaders(self.image, request, self.topic_config())))

    def balance(self) -> None:
        self.apply(Outcome(preferred_leaders(self.image, self.topic_config(), percentage=10), None))
        self.apply(Outcome(unclean_leaders(self.image, self.topic_config()), None))

    def configure(self) -> None:
        name, value = self.rng.choice(
            [("min.insync.replicas", "1"), ("min.insync.replicas", "2"), ("unclean.leader.election.enable", "true"),
             ("unclean.leader.election.enable", "false")]
        )  # fmt: skip
        change = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=self.rng.choice(TOPICS), configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self.apply(done(self.configuration.incremental_alter_configs(self.image, request)))

    def unregister(self) -> None:
        from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest

        for broker in self.image.brokers.values():
            if broker.fenced and not self.processes[broker.broker_id].alive:
                self.apply(self.control.unregister(self.image, UnregisterBrokerRequest(broker_id=broker.broker_id)))
                return

    def lose_directory(self) -> None:
        if alive := self._alive():
            process = self.rng.choice(alive)
            if not process.offline:
                process.offline.append(self.rng.choice(process.directories))

    def assign(self) -> None:
        for process in self._alive():
            broker = self.image.brokers.get(process.broker_id)
            for (topic_id, number), _topic, partition in self.partitions():
                if broker is None or process.broker_id not in partition.replicas or not broker.directories:
                    continue
                if partition.directory_of(process.broker_id).int > 100:
                    continue
                data = AssignedData(
                    id=self.rng.choice(broker.directories),
                    topics=[
                        AssignedTopicData(topic_id=topic_id, partitions=[AssignedPartitionData(partition_index=number)])
                    ],
                )
                request = AssignReplicasToDirsRequest(
                    broker_id=process.broker_id, broker_epoch=process.epoch, directories=[data]
                )
                if process.epoch == broker.broker_epoch:
                    self.apply(assign_replicas_to_directories(self.image, request, self.topic_config()))
                return

    # Records

    def _led(self) -> list[tuple[Key, TopicImage, PartitionImage, Process]]:
        return [
            (key, topic, partition, self.processes[partition.leader])
            for key, topic, partition in self.partitions()
            if partition.leader != -1 and self.processes[partition.leader].alive
        ]

    def _has_log(self, process: Process, partition: PartitionImage) -> bool:
        directory = partition.directory_of(process.broker_id)
        broker = self.image.brokers.get(process.broker_id)
        return (
            process.alive and broker is not None and broker.has_online(directory) and directory not in process.offline
        )

    def produce(self) -> None:
        for key, _, _, leader in self._led():
            self.next_record += 1
            leader.logs.setdefault(key, []).append(self.next_record)

    def replicate(self) -> None:
        for key, _, partition, leader in self._led():
            source = leader.logs.setdefault(key, [])
            for replica in partition.replicas:
                process = self.processes[replica]
                if self._has_log(process, partition) and replica != partition.leader and self.rng.random() < 0.8:
                    log = process.logs.setdefault(key, [])
                    same = _common(log, source)
                    del log[same:]
                    process.flushed[key] = min(process.flushed.get(key, 0), same)
                    log += source[same : same + self.rng.randint(1, 5)]

    def flush(self) -> None:
        for process in self._alive():
            for key, log in process.logs.items():
                if self.rng.random() < 0.5:
                    process.flushed[key] = len(log)

    def propose(self) -> None:
        """Leaders propose to add replicas that have all committed records, or to remove those that are behind."""
        for (topic_id, number), _, partition, leader in self._led():
            key = (topic_id, number)
            if any(
                proposal.key == key and proposal.leader_epoch == partition.leader_epoch for proposal in self.proposals
            ):
                continue
            committed = self.committed[key]
            full = [
                replica
                for replica in partition.replicas
                if replica == partition.leader
                or (
                    self._has_log(self.processes[replica], partition)
                    and self.processes[replica].logs.get(key, [])[: len(committed)] == committed
                )
            ]
            full = [replica for replica in full if replica == partition.leader or self.rng.random() < 0.8]
            if set(full) == set(partition.isr):
                continue
            if self.rng.random() < 0.1:  # a leader with a stale image
                full.append(self.rng.choice(BROKERS))
            states = [BrokerState(broker_id=replica, broker_epoch=self.processes[replica].epoch) for replica in full]
            data = PartitionData(
                partition_index=number,
                leader_epoch=partition.leader_epoch,
                new_isr_with_epochs=states,
                partition_epoch=partition.partition_epoch,
            )
            request = AlterPartitionRequest(
                broker_id=leader.broker_id,
                broker_epoch=leader.epoch,
                topics=[TopicData(topic_id=topic_id, partitions=[data])],
            )
            self.proposals.append(Proposal(key, leader.broker_id, partition, request))

    def deliver(self) -> None:
        if not self.proposals:
            return
        proposal = self.proposals.pop(self.rng.randrange(len(self.proposals)))
        try:
            self.apply(alter_partition(self.image, proposal.request, self.topic_config()))
        except (errors.BrokerIdNotRegisteredError, errors.StaleBrokerEpochError):
            pass

    def commit(self) -> None:
        """Leaders commit records that all in-sync and all proposed replicas have, while enough are in sync."""
        for key, topic, partition, leader in self._led():
            needed = set(partition.isr)
            for proposal in self.proposals:
                if proposal.key == key and proposal.leader_epoch == partition.leader_epoch:
                    needed |= set(proposal.isr)
            minimum = self.topic_config()(topic.name).min_insync_replicas
            if len(partition.isr) < min(minimum, len(partition.replicas)):
                continue
            committed, log = self.committed[key], leader.logs.setdefault(key, [])
            end = min(_common(self.processes[replica].logs.get(key, []), log) for replica in needed)
            if all(self.processes[replica].alive for replica in needed) and end > len(committed):
                committed += log[len(committed) : end]

    # Invariants

    def check(self) -> None:
        """Check the invariants that hold after every change."""
        image = self.image
        for _, topic, partition in self.partitions():
            name = f"{topic.name}-{partition.partition}: {partition}"
            replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.eligible_leader_replicas)
            assert len(replicas) == len(partition.replicas), name
            assert len(partition.directories) == len(replicas) or not partition.directories, name  # an old cluster
            assert len(isr) == len(partition.isr) and len(elr) == len(partition.eligible_leader_replicas), name
            assert isr <= replicas and elr <= replicas and not isr & elr, name
            assert isr or elr or len(partition.last_known_elr) == 1, name
            assert partition.leader == -1 or partition.leader in isr, name
            assert set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas, name
            if partition.leader != -1:
                leader = image.brokers[partition.leader]
                assert not leader.fenced and leader.has_online(partition.directory_of(partition.leader)), name
                assert not partition.last_known_elr, name
            for member in isr:
                broker = image.brokers.get(member)
                inactive = broker is None or broker.fenced
                assert not inactive or (not self.with_elr and partition.leader == -1 and len(isr) == 1), name
            if partition.leader == -1 and self.with_elr:  # a broker in controlled shutdown is not elected
                assert not any(image.brokers[member].active for member in isr), name
            if partition.reassigning:
                target = replicas - set(partition.removing_replicas)
                # A leader elected from outside the in-sync set completes the reassignment only with its next proposal.
                assert not target <= isr or len(isr) == 1, f"the reassignment is over: {name}"
            if not self.with_elr:
                assert isr and not elr, name

    def finish(self) -> None:
        """Check that the log and its snapshots replay to the image."""
        image, _ = replayed_batches(batch for data in self.log for batch in decode_batches(data))
        assert image == self.image


def _common(one: list[int], other: list[int]) -> int:
    """Return the length of the common prefix."""
    same = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        same += 1
    return same
