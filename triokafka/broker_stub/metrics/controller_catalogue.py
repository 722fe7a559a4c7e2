"""The metrics of a node's controller role, with Kafka's names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.controller.controller_metrics import count_partitions
from triokafka.broker_stub.metrics.sample import Sample, duration_samples
from triokafka.broker_stub.node_metadata import NodeMetadata

_FENCED: Final = 10
_SHUTTING_DOWN: Final = 20
_ACTIVE: Final = 30


class AppliedRecord(NamedTuple):
    """The last applied record of the metadata log: when it was written, in milliseconds since 1970, and how long ago.

    The active controller applies its records before it writes them: it has no lag.
    """

    timestamp_ms: int
    lag_ms: int


def controller_samples(controller: Controller, metadata: NodeMetadata, lag: AppliedRecord) -> Iterator[Sample]:
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
        ("LastAppliedRecordTimestamp", lag.timestamp_ms),
        ("LastAppliedRecordLagMs", lag.lag_ms),
        ("LastCommittedRecordOffset", metadata.raft.high_watermark - 1),
        ("MetadataErrorCount", metadata.publisher.failures),
        ("IgnoredStaticVoters", int(metadata.ignores_static_voters)),
        ("TimedOutBrokerHeartbeatCount", queue.timed_out_heartbeats),
        ("EventQueueOperationsStartedCount", queue.waited.count),
        ("EventQueueOperationsTimedOutCount", queue.timed_out.total()),
        ("NewActiveControllersCount", controller.terms),
    ):
        yield Sample(prefix + name, {}, value)
    for broker_id, broker in sorted(image.brokers.items()):
        state = _FENCED if broker.fenced else _SHUTTING_DOWN if broker.in_controlled_shutdown else _ACTIVE
        yield Sample(f"{prefix}BrokerRegistrationState", {"broker": str(broker_id)}, state)
    if active:
        now = controller.world.now()
        for broker_id, at in sorted(controller.state.brokers.sessions.last_contacts().items()):
            yield Sample(f"{prefix}TimeSinceLastHeartbeatReceivedMs", {"broker": str(broker_id)}, (now - at) * 1000)
    stats = "kafka.controller:type=ControllerStats,name="
    elections = controller.elections
    yield Sample(f"{stats}UncleanLeaderElectionsPerSec", {}, elections.unclean, "Count")
    yield Sample(f"{stats}ElectionFromEligibleLeaderReplicasPerSec", {}, elections.from_eligible_replicas, "Count")
    for name, durations in (("EventQueueTimeMs", queue.waited), ("EventQueueProcessingTimeMs", queue.processed)):
        yield from duration_samples(f"kafka.controller:type=ControllerEventManager,name={name}", durations)
