"""The catalogue of a node's metrics: MBean, kind, unit and meaning.

A ``meter`` counts since the start (Kafka's ``Count``; readers compute rates). A ``histogram`` has count, sum, maximum
and quantiles of the last requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.named_tuple import NamedTuple


class DeclaredMetric(NamedTuple):
    """Kind (``gauge``, ``meter`` or ``histogram``), unit and meaning of a metric."""

    kind: str
    unit: str
    meaning: str


def _of(mbean: str, **metrics: tuple[str, str, str]) -> dict[str, DeclaredMetric]:
    return {f"{mbean},name={name.replace('_', '-')}": DeclaredMetric(*one) for name, one in metrics.items()}


def _meter(unit: str, meaning: str) -> tuple[str, str, str]:
    return "meter", unit, meaning


def _gauge(unit: str, meaning: str) -> tuple[str, str, str]:
    return "gauge", unit, meaning


def _times(meaning: str, unit: str = "ms") -> tuple[str, str, str]:
    return "histogram", unit, meaning


_NETWORK: Final = {
    **_of(
        "kafka.network:type=RequestMetrics",
        RequestsPerSec=_meter("requests", "Answered requests by API and version."),
        ErrorsPerSec=_meter("errors", "Errors in responses by API and error; NONE is success."),
        RequestQueueTimeMs=_times("Wait of a request for a handler slot."),
        LocalTimeMs=_times("Processing of a request."),
        RemoteTimeMs=_times("Wait of a request for replication, for data, or for group members."),
        ThrottleTimeMs=_times("Delay of a connection because of quotas."),
        ResponseQueueTimeMs=_times("Wait of a response to be sent."),
        ResponseSendTimeMs=_times("Sending of a response."),
        TotalTimeMs=_times("Time from receiving a request to sending its response."),
        RequestBytes=_times("Size of a request.", "bytes"),
    ),
    **_of(
        "kafka.network:type=RequestChannel",
        RequestQueueSize=_gauge("requests", "Requests that wait for a handler slot."),
    ),
    **_of(
        "kafka.network:type=SocketServer",
        MemoryPoolUsed=_gauge("bytes", "Memory of requests that are being received or handled."),
        MemoryPoolDepletedWaiting=_gauge("connections", "Connections that wait for request memory."),
    ),
    **_of(
        "kafka.server:type=socket-server-metrics",
        connection_count=_gauge("connections", "Open connections by listener."),
    ),
    **_of(
        "kafka.server:type=KafkaRequestHandlerPool",
        RequestHandlerAvgIdlePercent=_gauge("ratio", "Share of time in which handler slots were free since the start."),
    ),
}
_QUOTAS: Final = {
    **_of(
        "kafka.server:type=Produce",
        byte_rate=_gauge("bytes per second", "Rate of Produce requests with a quota, by user and client id."),
        throttle_time=_gauge("ms", "Average throttle time because of the quota."),
    ),
    **_of(
        "kafka.server:type=Fetch",
        byte_rate=_gauge("bytes per second", "Rate of fetched records with a quota, by user and client id."),
        throttle_time=_gauge("ms", "Average throttle time because of the quota."),
    ),
    **_of(
        "kafka.server:type=Request",
        request_time=_gauge("%", "Time of requests with a quota, in percent of one thread."),
        throttle_time=_gauge("ms", "Average throttle time because of the quota."),
    ),
}
_PURGATORY: Final = {
    **_of(
        "kafka.server:type=DelayedOperationPurgatory",
        PurgatorySize=_gauge("operations", "Watched keys of delayed operations."),
        NumDelayedOperations=_gauge("operations", "Delayed operations that wait."),
    ),
    **{
        f"kafka.server:type=Delayed{kind}Metrics,name=ExpiresPerSec": DeclaredMetric(
            "meter", "operations", f"Delayed operations of kind {kind} that ended by time."
        )
        for kind in ("Produce", "Fetch", "DeleteRecords")
    },
    **_of(
        "kafka.server:type=FetchSessionCache",
        NumIncrementalFetchSessions=_gauge("sessions", "Incremental fetch sessions."),
        NumIncrementalFetchPartitionsCached=_gauge("partitions", "Partitions in incremental fetch sessions."),
        IncrementalFetchSessionEvictionsPerSec=_meter("sessions", "Fetch sessions that made room for others."),
    ),
}
_REPLICAS: Final = {
    **_of(
        "kafka.server:type=ReplicaManager",
        PartitionCount=_gauge("partitions", "Replicas on this broker."),
        LeaderCount=_gauge("partitions", "Partitions that this broker leads."),
        OfflineReplicaCount=_gauge("partitions", "Replicas in data directories that failed."),
        UnderReplicatedPartitions=_gauge("partitions", "Led partitions with replicas that are not in sync."),
        UnderMinIsrPartitionCount=_gauge("partitions", "Led partitions below min.insync.replicas."),
        AtMinIsrPartitionCount=_gauge("partitions", "Led partitions at min.insync.replicas."),
        ReassigningPartitions=_gauge("partitions", "Led partitions that are being reassigned."),
        ProducerIdCount=_gauge("producers", "Producer ids that the logs of this broker remember."),
        PartitionsWithLateTransactionsCount=_gauge("partitions", "Led partitions with a transaction that is late."),
        IsrShrinksPerSec=_meter("changes", "Committed removals from in-sync sets."),
        IsrExpandsPerSec=_meter("changes", "Committed additions to in-sync sets."),
        FailedIsrUpdatesPerSec=_meter("changes", "Changes of in-sync sets that the controller refused."),
    ),
    **_of("kafka.server:type=ReplicaFetcherManager", MaxLag=_gauge("records", "Largest lag of a follower's replica.")),
    **_of(
        "kafka.cluster:type=Partition",
        UnderReplicated=_gauge("flag", "1 if this broker leads the partition and replicas are not in sync."),
        UnderMinIsr=_gauge("flag", "1 if this broker leads the partition and it is below min.insync.replicas."),
        AtMinIsr=_gauge("flag", "1 if this broker leads the partition and it is at min.insync.replicas."),
        InSyncReplicasCount=_gauge("replicas", "In-sync replicas, if this broker leads the partition."),
        ReplicasCount=_gauge("replicas", "Replicas, if this broker leads the partition."),
        LastStableOffsetLag=_gauge("records", "Offsets between last stable offset and high watermark."),
    ),
    **_of(
        "kafka.server:type=BrokerTopicMetrics",
        BytesInPerSec=_meter("bytes", "Bytes that clients appended; with a tag topic also by topic."),
        MessagesInPerSec=_meter("records", "Records that clients appended; with a tag topic also by topic."),
        BytesOutPerSec=_meter("bytes", "Bytes given to consumers; with a tag topic also by topic."),
        ReplicationBytesInPerSec=_meter("bytes", "Bytes appended as a follower."),
        ReplicationBytesOutPerSec=_meter("bytes", "Bytes given to followers."),
        ReassignmentBytesInPerSec=_meter("bytes", "Bytes appended as a follower that a reassignment adds."),
        TotalProduceRequestsPerSec=_meter("partitions", "Partitions in Produce requests; also by topic."),
        FailedProduceRequestsPerSec=_meter("partitions", "Partitions in Produce requests that failed."),
        TotalFetchRequestsPerSec=_meter("partitions", "Partitions in Fetch requests; by topic: with records."),
        FailedFetchRequestsPerSec=_meter("partitions", "Partitions in Fetch requests that failed."),
    ),
}
_LOGS: Final = {
    **_of(
        "kafka.log:type=Log",
        NumLogSegments=_gauge("segments", "Segments of the log."),
        LogStartOffset=_gauge("offset", "First offset of the log."),
        LogEndOffset=_gauge("offset", "Offset of the next record."),
        Size=_gauge("bytes", "Size of the log."),
    ),
    **_of(
        "kafka.log:type=LogCleaner",
        max_buffer_utilization_percent=_gauge("%", "Use of the cleaner's memory in its last pass."),
        cleaner_recopy_percent=_gauge("%", "Bytes that the last pass wrote, of those that it read."),
        max_clean_time_secs=_gauge("s", "Duration of the last pass."),
        max_compaction_delay_secs=_gauge("s", "Longest time of a record without compaction."),
    ),
    **_of(
        "kafka.log:type=LogCleanerManager",
        max_dirty_percent=_gauge("%", "Share of the dirtiest log that needs cleaning."),
        time_since_last_run_ms=_gauge("ms", "Time since the cleaner last looked for work."),
        uncleanable_partitions_count=_gauge("partitions", "Logs that the cleaner cannot clean, by directory."),
        uncleanable_bytes=_gauge("bytes", "Size of the logs that the cleaner cannot clean, by directory."),
    ),
    **_of(
        "kafka.log:type=LogManager",
        OfflineLogDirectoryCount=_gauge("directories", "Data directories that failed."),
        CordonedLogDirectoryCount=_gauge("directories", "Data directories that take no new logs."),
    ),
    **_of(
        "triokafka:type=LogManager",
        StrayLogs=_gauge("logs", "Logs that belong to no partition of this broker."),
        DamagedLogs=_gauge("logs", "Logs that lost records to damage."),
        LostOffsets=_gauge("offsets", "Offsets that damage removed."),
    ),
}
_GROUPS: Final = {
    **_of(
        "kafka.coordinator.group:type=GroupMetadataManager",
        NumOffsets=_gauge("offsets", "Committed offsets."),
        NumGroups=_gauge("groups", "Classic groups."),
        NumGroupsPreparingRebalance=_gauge("groups", "Classic groups in this state."),
        NumGroupsCompletingRebalance=_gauge("groups", "Classic groups in this state."),
        NumGroupsStable=_gauge("groups", "Classic groups in this state."),
        NumGroupsDead=_gauge("groups", "Classic groups in this state."),
        NumGroupsEmpty=_gauge("groups", "Classic groups in this state."),
    ),
    **_of(
        "kafka.server:type=group-coordinator-metrics",
        group_count=_gauge("groups", "Groups by protocol."),
        consumer_group_count=_gauge("groups", "Groups of the consumer protocol by state."),
        offset_commit_count=_gauge("commits", "Committed offsets since the start."),
        offset_expiration_count=_gauge("offsets", "Offsets that expired since the start."),
        offset_deletion_count=_gauge("offsets", "Offsets that were deleted since the start."),
        group_completed_rebalance_count=_gauge("rebalances", "Completed rebalances of classic groups."),
        consumer_group_rebalance_count=_gauge("rebalances", "Rebalances of groups of the consumer protocol."),
        num_partitions=_gauge("partitions", "Partitions of the offsets topic by state."),
        partition_load_time_max=_gauge("ms", "Longest recent time to load a partition."),
        partition_load_time_avg=_gauge("ms", "Average recent time to load a partition."),
    ),
    **_of("triokafka:type=GroupCoordinator", HeldOperations=_gauge("operations", "Answers that wait for a commit.")),
}
_NODE: Final = {
    **_of(
        "kafka.server:type=KafkaServer",
        BrokerState=_gauge("state", "0 not running, 1 starting, 2 recovery, 3 running, 6 and 7 shutting down."),
    ),
    **_of(
        "kafka.server:type=broker-metadata-metrics",
        last_applied_record_offset=_gauge("offset", "Last metadata record that the broker applied."),
    ),
    **_of(
        "kafka.server:type=MetadataLoader",
        FinalizedLevel=_gauge("level", "Finalized level of a feature."),
        CurrentControllerId=_gauge("node", "Leader of the metadata quorum, -1 if unknown."),
        CurrentMetadataVersion=_gauge("level", "Finalized level of metadata.version."),
    ),
    **_of(
        "kafka.server:type=client-metrics",
        instance_count=_gauge("clients", "Clients that push metrics (KIP-714)."),
        unknown_subscription_request_count=_gauge("pushes", "Pushes for a subscription that had changed."),
    ),
    "triokafka:type=Tasks": DeclaredMetric("gauge", "tasks", "Tasks of the event loop."),
}
_CONTROLLER: Final = {
    **_of(
        "kafka.controller:type=KafkaController",
        ActiveControllerCount=_gauge("flag", "1 if this controller is the active one."),
        ActiveBrokerCount=_gauge("brokers", "Brokers that are not fenced."),
        FencedBrokerCount=_gauge("brokers", "Fenced brokers."),
        ControlledShutdownBrokerCount=_gauge("brokers", "Brokers in a controlled shutdown."),
        GlobalTopicCount=_gauge("topics", "Topics of the cluster."),
        GlobalPartitionCount=_gauge("partitions", "Partitions of the cluster."),
        OfflinePartitionsCount=_gauge("partitions", "Partitions without a leader."),
        PreferredReplicaImbalanceCount=_gauge("partitions", "Partitions whose leader is not the preferred replica."),
        LastAppliedRecordOffset=_gauge("offset", "Last metadata record that the controller applied."),
        TimedOutBrokerHeartbeatCount=_gauge("heartbeats", "Heartbeats that waited too long in the event queue."),
        EventQueueOperationsStartedCount=_gauge("operations", "Operations of the event queue since the start."),
        EventQueueOperationsTimedOutCount=_gauge("operations", "Operations that waited too long in the event queue."),
        NewActiveControllersCount=_gauge("elections", "How often this controller became the active one."),
        TimeSinceLastHeartbeatReceivedMs=_gauge("ms", "Time since a broker's last heartbeat."),
    ),
    **_of(
        "kafka.controller:type=ControllerStats",
        UncleanLeaderElectionsPerSec=_meter("elections", "Elections of leaders that were not in sync."),
        ElectionFromEligibleLeaderReplicasPerSec=_meter("elections", "Elections from eligible leader replicas."),
    ),
    **_of(
        "kafka.controller:type=ControllerEventManager",
        EventQueueTimeMs=_times("Wait of an operation in the event queue."),
        EventQueueProcessingTimeMs=_times("Processing of an operation."),
    ),
    **_of(
        "kafka.server:type=raft-metrics",
        current_leader=_gauge("node", "Leader of the metadata quorum, -1 if unknown."),
        current_epoch=_gauge("epoch", "Epoch of the quorum."),
        high_watermark=_gauge("offset", "Committed end of the metadata log, -1 if unknown."),
        log_end_offset=_gauge("offset", "End of this node's metadata log."),
        log_end_epoch=_gauge("epoch", "Epoch of the last record of this node's metadata log."),
        number_of_voters=_gauge("voters", "Voters of the quorum."),
    ),
}
_EXPORTER: Final = {
    f"kafka_exporter:type={name}": DeclaredMetric("gauge", unit, meaning)
    for name, unit, meaning in (
        ("brokers", "brokers", "Brokers that are not fenced."),
        ("topic_partitions", "partitions", "Partitions of a topic."),
        ("topic_partition_current_offset", "offset", "End of a partition that this broker leads."),
        ("topic_partition_oldest_offset", "offset", "Start of a partition that this broker leads."),
        ("consumergroup_members", "members", "Members of a group."),
        ("consumergroup_current_offset", "offset", "Committed offset of a group in a partition."),
        ("consumergroup_current_offset_sum", "offset", "Committed offsets of a group in a topic."),
        ("consumergroup_lag", "records", "Lag of a group in a partition of which this broker has a replica."),
        ("consumergroup_lag_sum", "records", "Lag of a group in a topic."),
    )
}

DECLARED: Final[Mapping[str, DeclaredMetric]] = {
    **_NETWORK,
    **_QUOTAS,
    **_PURGATORY,
    **_REPLICAS,
    **_LOGS,
    **_GROUPS,
    **_NODE,
    **_CONTROLLER,
    **_EXPORTER,
}
"""Every metric by MBean."""
