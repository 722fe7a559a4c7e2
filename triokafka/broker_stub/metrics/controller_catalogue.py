"""The metrics of a node's controller role, with Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator

from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.controller.controller_metrics import count_partitions
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.broker_stub.raft.raft_client import RaftClient


def controller_samples(controller: Controller) -> Iterator[Sample]:
    """Yield the current value of every metric of a controller, active or not."""
    image, queue = controller.image, controller.queue.metrics
    partitions = count_partitions(image)
    fenced = sum(broker.fenced for broker in image.brokers.values())
    active = controller.is_active
    prefix = "kafka.controller:type=KafkaController,name="
    for name, value in (
        ("ActiveControllerCount", int(active)),
        ("ActiveBrokerCount", len(image.brokers) - fenced),
        ("FencedBrokerCount", fenced),
        ("ControlledShutdownBrokerCount", sum(one.in_controlled_shutdown for one in image.brokers.values())),
        ("GlobalTopicCount", len(image.topics)),
        ("GlobalPartitionCount", partitions.total),
        ("OfflinePartitionsCount", partitions.offline),
        ("PreferredReplicaImbalanceCount", partitions.imbalanced),
        ("LastAppliedRecordOffset", image.offset),
        ("TimedOutBrokerHeartbeatCount", queue.timed_out_heartbeats),
        ("EventQueueOperationsStartedCount", queue.waited.count),
        ("EventQueueOperationsTimedOutCount", queue.timed_out.total()),
        ("NewActiveControllersCount", controller.terms),
    ):
        yield Sample(prefix + name, {}, value)
    if active:
        now = controller.world.now()
        for broker_id, at in sorted(controller.state.cluster.sessions.last_contacts().items()):
            yield Sample(f"{prefix}TimeSinceLastHeartbeatReceivedMs", {"broker": str(broker_id)}, (now - at) * 1000)
    stats = "kafka.controller:type=ControllerStats,name="
    elections = controller.elections
    yield Sample(f"{stats}UncleanLeaderElectionsPerSec", {}, elections.unclean, "Count")
    yield Sample(f"{stats}ElectionFromEligibleLeaderReplicasPerSec", {}, elections.from_eligible_replicas, "Count")
    for name, durations in (("EventQueueTimeMs", queue.waited), ("EventQueueProcessingTimeMs", queue.processed)):
        full = f"kafka.controller:type=ControllerEventManager,name={name}"
        yield Sample(full, {}, durations.count, "Count")
        yield Sample(full, {}, durations.total * 1000, "Sum")
        yield Sample(full, {}, durations.most * 1000, "Max")


def raft_samples(raft: RaftClient) -> Iterator[Sample]:
    """Yield the state of a node of the metadata quorum; -1 stands for an unknown leader or high watermark."""
    for name, value in (
        ("current-leader", -1 if raft.leader.leader_id is None else raft.leader.leader_id),
        ("current-epoch", raft.leader.epoch),
        ("high-watermark", raft.high_watermark),
        ("log-end-offset", raft.end_offset),
        ("log-end-epoch", raft.end_epoch),
        ("number-of-voters", len(raft.voters)),
    ):
        yield Sample(f"kafka.server:type=raft-metrics,name={name}", {}, value)
    leader = -1 if raft.leader.leader_id is None else raft.leader.leader_id
    yield Sample("kafka.server:type=MetadataLoader,name=CurrentControllerId", {}, leader)
