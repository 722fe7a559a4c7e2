"""A broker's metrics by partition and topic, and the positions of groups with their lag.

The lag has the names of kafka_exporter. A broker knows the offsets of the groups that it coordinates. It gives the lag
in the partitions of which it has a replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.metrics.sample import Sample
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.broker_stub.replica.partition import Partition
    from triokafka.broker_stub.request.services import BrokerServices

_LATE_MS: Final = 5 * 60_000
PUSHED: Final = "kafka_client:type="
"""Prefix of the names of pushed metrics: ``kafka_client_producer_record_send_total`` in the text."""


class _Totals:
    """Numbers of partitions, summed up in the one pass over all of them.

    A transaction is late when its producer wrote nothing for ``transaction.max.timeout.ms`` and five minutes more
    (KIP-664).
    """

    def __init__(self, services: BrokerServices) -> None:
        self._latest = services.world.wall_ms() - services.config.current.transaction_max_timeout_ms - _LATE_MS
        self._counts = dict.fromkeys(
            (
                "LeaderCount", "UnderReplicatedPartitions", "UnderMinIsrPartitionCount", "AtMinIsrPartitionCount",
                "ReassigningPartitions", "ProducerIdCount", "PartitionsWithLateTransactionsCount",
            ),
            0,
        )  # fmt: skip

    def add(self, partition: Partition) -> None:
        counts, producers = self._counts, partition.log.producers
        counts["ProducerIdCount"] += len(producers)
        if partition.is_leader:
            counts["LeaderCount"] += 1
            counts["UnderReplicatedPartitions"] += len(partition.in_sync_replicas) < len(partition.replicas)
            counts["UnderMinIsrPartitionCount"] += partition.under_min_isr
            counts["AtMinIsrPartitionCount"] += partition.at_min_isr
            counts["ReassigningPartitions"] += bool(partition.adding_replicas)
            last = producers.last_of_oldest_transaction()
            counts["PartitionsWithLateTransactionsCount"] += last is not None and last < self._latest

    def samples(self) -> Iterator[Sample]:
        for name, count in self._counts.items():
            yield Sample(f"kafka.server:type=ReplicaManager,name={name}", {}, count)


def partition_samples(services: BrokerServices) -> Iterator[Sample]:
    """Yield the metrics of every partition that the broker has a replica of, and their totals."""
    totals = _Totals(services)
    for partition in list(services.replicas.partitions()):
        topic, number = partition.topic_partition
        tags = {"topic": topic, "partition": str(number)}
        log = partition.log
        totals.add(partition)
        for name, value in (
            ("NumLogSegments", len(log.segments)),
            ("LogStartOffset", log.log_start_offset),
            ("LogEndOffset", log.log_end_offset),
            ("Size", log.size),
        ):
            yield Sample(f"kafka.log:type=Log,name={name}", tags, value)
        yield from _replication(partition, tags)
    yield from totals.samples()


def _replication(partition: Partition, tags: dict[str, str]) -> Iterator[Sample]:
    leads = partition.is_leader
    in_sync = len(partition.in_sync_replicas) if leads else 0
    replicas = len(partition.replicas) if leads else 0
    stable = partition.last_stable_offset if leads else partition.high_watermark
    for name, value in (
        ("UnderReplicated", int(leads and in_sync < replicas)),
        ("UnderMinIsr", int(leads and partition.under_min_isr)),
        ("AtMinIsr", int(leads and partition.at_min_isr)),
        ("InSyncReplicasCount", in_sync),
        ("ReplicasCount", replicas),
        ("LastStableOffsetLag", max(0, partition.high_watermark - stable)),
    ):
        yield Sample(f"kafka.cluster:type=Partition,name={name}", tags, value)


def topic_samples(services: BrokerServices) -> Iterator[Sample]:
    """Yield the traffic by topic, without replication; topics that no longer exist are forgotten."""
    topics, traffic = services.metadata.image.topics, services.replicas.traffic.topics
    for gone in [topic for topic in traffic if topic not in topics]:
        del traffic[gone]
    for topic, counts in sorted(traffic.items()):
        for name, count in (
            ("BytesInPerSec", counts.bytes_in),
            ("MessagesInPerSec", counts.records_in),
            ("BytesOutPerSec", counts.bytes_out),
            ("TotalProduceRequestsPerSec", counts.produces),
            ("FailedProduceRequestsPerSec", counts.failed_produces),
            ("TotalFetchRequestsPerSec", counts.fetches),
            ("FailedFetchRequestsPerSec", counts.failed_fetches),
        ):
            yield Sample(f"kafka.server:type=BrokerTopicMetrics,name={name}", {"topic": topic}, count, "Count")


def client_samples(services: BrokerServices) -> Iterator[Sample]:
    """Yield the last values that clients pushed (KIP-714), with the client's ids as tags."""
    instances = services.telemetry.instances
    yield Sample("kafka.server:type=client-metrics,name=instance-count", {}, len(instances))
    name = "kafka.server:type=client-metrics,name=unknown-subscription-request-count"
    yield Sample(name, {}, services.telemetry.unknown_subscriptions)
    for instance_id, instance in list(instances.items()):
        ids = {"client_id": instance.facts.client_id, "client_instance_id": str(instance_id)}
        for (metric, attributes), value in list(instance.series.items()):
            short = metric.removeprefix("org.apache.kafka.")
            yield Sample(f"{PUSHED}{short}", {**ids, **dict(attributes)}, value)


def _of_led_partitions(services: BrokerServices) -> Iterator[Sample]:
    for partition in list(services.replicas.partitions()):
        if not partition.is_leader:
            continue
        topic, number = partition.topic_partition
        tags = {"topic": topic, "partition": str(number)}
        in_sync = len(partition.in_sync_replicas)
        for name, value in (
            ("leader", services.node_id),
            ("leader_is_preferred", int(partition.replicas[0] == services.node_id)),
            ("replicas", len(partition.replicas)),
            ("in_sync_replica", in_sync),
            ("under_replicated_partition", int(in_sync < len(partition.replicas))),
        ):
            yield Sample(f"kafka_exporter:type=topic_partition_{name}", tags, value)


def group_lag_samples(services: BrokerServices) -> Iterator[Sample]:
    """Yield offsets, lag and members of the groups of this broker, and the offsets of its partitions."""
    ends: dict[TopicPartition, int] = {}
    for partition in list(services.replicas.partitions()):
        topic, number = partition.topic_partition
        ends[partition.topic_partition] = partition.high_watermark
        if partition.is_leader:
            tags = {"topic": topic, "partition": str(number)}
            yield Sample("kafka_exporter:type=topic_partition_current_offset", tags, partition.high_watermark)
            yield Sample("kafka_exporter:type=topic_partition_oldest_offset", tags, partition.log.log_start_offset)
    for topic, image in sorted(services.metadata.image.topics.items()):
        yield Sample("kafka_exporter:type=topic_partitions", {"topic": topic}, len(image.partitions))
    yield from _of_led_partitions(services)
    brokers = sum(not broker.fenced for broker in services.metadata.image.brokers.values())
    yield Sample("kafka_exporter:type=brokers", {}, brokers)
    for group in services.groups.coordinator.group_positions():
        yield Sample("kafka_exporter:type=consumergroup_members", {"consumergroup": group.group_id}, group.members)
        for topic, offsets in sorted(group.offsets.items()):
            total, lags = 0, 0
            for number, offset in sorted(offsets.items()):
                tags = {"consumergroup": group.group_id, "topic": topic, "partition": str(number)}
                yield Sample("kafka_exporter:type=consumergroup_current_offset", tags, offset)
                total += offset
                end = ends.get(TopicPartition(topic, number))
                if end is not None:
                    lags += max(0, end - offset)
                    yield Sample("kafka_exporter:type=consumergroup_lag", tags, max(0, end - offset))
            tags = {"consumergroup": group.group_id, "topic": topic}
            yield Sample("kafka_exporter:type=consumergroup_current_offset_sum", tags, total)
            yield Sample("kafka_exporter:type=consumergroup_lag_sum", tags, lags)
