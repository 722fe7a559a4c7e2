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


def _meter(unit: str, meaning: str) -> DeclaredMetric:
    return DeclaredMetric("meter", unit, meaning)


def _gauge(unit: str, meaning: str) -> DeclaredMetric:
    return DeclaredMetric("gauge", unit, meaning)


def _times(meaning: str, unit: str = "ms") -> DeclaredMetric:
    return DeclaredMetric("histogram", unit, meaning)


_BY_TYPE: Final[Mapping[str, Mapping[str, DeclaredMetric]]] = {
    # Network
    "kafka.network:type=RequestMetrics": {
        "RequestsPerSec": _meter("requests", "Answered requests by API and version."),
        "ErrorsPerSec": _meter("errors", "Errors in responses by API and error; NONE is success."),
        "RequestQueueTimeMs": _times("Wait of a request for a handler slot."),
        "LocalTimeMs": _times("Processing of a request."),
        "RemoteTimeMs": _times("Wait of a request for replication, for data, or for group members."),
        "ThrottleTimeMs": _times("Delay of a connection because of quotas."),
        "ResponseQueueTimeMs": _times("Wait of a response to be sent."),
        "ResponseSendTimeMs": _times("Sending of a response."),
        "TotalTimeMs": _times("Time from receiving a request to sending its response."),
        "RequestBytes": _times("Size of a request.", "bytes"),
    },
    "kafka.network:type=RequestChannel": {
        "RequestQueueSize": _gauge("requests", "Requests that wait for a handler slot."),
    },
    "kafka.network:type=SocketServer": {
        "MemoryPoolUsed": _gauge("bytes", "Memory of requests that are being received or handled."),
        "MemoryPoolDepletedWaiting": _gauge("connections", "Connections that wait for request memory."),
        "NetworkProcessorAvgIdlePercent": _gauge("ratio", "Share of the last minute in which the event loop was idle."),
    },
    "kafka.server:type=socket-server-metrics": {
        "connection-count": _gauge("connections", "Open connections by listener."),
    },
    "kafka.server:type=KafkaRequestHandlerPool": {
        "RequestHandlerAvgIdlePercent": _gauge("ratio", "Share of the last minute in which handler slots were free."),
    },
    # Quotas
    "kafka.server:type=Produce": {
        "byte-rate": _gauge("bytes per second", "Rate of Produce requests with a quota, by user and client id."),
        "throttle-time": _gauge("ms", "Average throttle time because of the quota."),
    },
    "kafka.server:type=Fetch": {
        "byte-rate": _gauge("bytes per second", "Rate of fetched records with a quota, by user and client id."),
        "throttle-time": _gauge("ms", "Average throttle time because of the quota."),
    },
    "kafka.server:type=Request": {
        "request-time": _gauge("%", "Time of requests with a quota, in percent of one thread."),
        "throttle-time": _gauge("ms", "Average throttle time because of the quota."),
    },
    # Delayed operations and fetch sessions
    "kafka.server:type=DelayedOperationPurgatory": {
        "PurgatorySize": _gauge("operations", "Watched keys of delayed operations."),
        "NumDelayedOperations": _gauge("operations", "Delayed operations that wait."),
    },
    "kafka.server:type=DelayedProduceMetrics": {
        "ExpiresPerSec": _meter("operations", "Delayed Produce operations that expired."),
    },
    "kafka.server:type=DelayedFetchMetrics": {
        "ExpiresPerSec": _meter("operations", "Delayed Fetch operations that expired."),
    },
    "kafka.server:type=DelayedDeleteRecordsMetrics": {
        "ExpiresPerSec": _meter("operations", "Delayed DeleteRecords operations that expired."),
    },
    "kafka.server:type=FetchSessionCache": {
        "NumIncrementalFetchSessions": _gauge("sessions", "Incremental fetch sessions."),
        "NumIncrementalFetchPartitionsCached": _gauge("partitions", "Partitions in incremental fetch sessions."),
        "IncrementalFetchSessionEvictionsPerSec": _meter(
            "sessions", "Fetch sessions that the broker evicted for others."
        ),
    },
    # Replicas
    "kafka.server:type=ReplicaManager": {
        "PartitionCount": _gauge("partitions", "Replicas on this broker."),
        "LeaderCount": _gauge("partitions", "Partitions that this broker leads."),
        "OfflineReplicaCount": _gauge("partitions", "Replicas in data directories that failed."),
        "UnderReplicatedPartitions": _gauge("partitions", "Led partitions with replicas that are not in sync."),
        "UnderMinIsrPartitionCount": _gauge("partitions", "Led partitions below min.insync.replicas."),
        "AtMinIsrPartitionCount": _gauge("partitions", "Led partitions at min.insync.replicas."),
        "ReassigningPartitions": _gauge("partitions", "Led partitions that are being reassigned."),
        "ProducerIdCount": _gauge("producers", "Producer ids in the producer state of this broker's logs."),
        "PartitionsWithLateTransactionsCount": _gauge("partitions", "Led partitions with a transaction that is late."),
        "IsrShrinksPerSec": _meter("changes", "Committed removals from in-sync sets."),
        "IsrExpandsPerSec": _meter("changes", "Committed additions to in-sync sets."),
        "FailedIsrUpdatesPerSec": _meter("changes", "Changes of in-sync sets that the controller refused."),
    },
    "kafka.server:type=ReplicaFetcherManager": {
        "MaxLag": _gauge("records", "Largest lag of a follower's replica."),
        "MinFetchRate": _gauge("fetches per second", "Answered fetches of the slowest fetcher; 0 without fetchers."),
        "FailedPartitionsCount": _gauge("partitions", "Followed partitions that are not fetched after an error."),
    },
    "kafka.server:type=FetcherLagMetrics": {
        "ConsumerLag": _gauge("records", "Lag of a follower's replica, by fetcher and partition."),
    },
    "kafka.cluster:type=Partition": {
        "UnderReplicated": _gauge("flag", "1 if this broker leads the partition and replicas are not in sync."),
        "UnderMinIsr": _gauge("flag", "1 if this broker leads the partition and it is below min.insync.replicas."),
        "AtMinIsr": _gauge("flag", "1 if this broker leads the partition and it is at min.insync.replicas."),
        "InSyncReplicasCount": _gauge("replicas", "In-sync replicas, if this broker leads the partition."),
        "ReplicasCount": _gauge("replicas", "Replicas, if this broker leads the partition."),
        "LastStableOffsetLag": _gauge("records", "Offsets between last stable offset and high watermark."),
    },
    "kafka.server:type=BrokerTopicMetrics": {
        "BytesInPerSec": _meter("bytes", "Bytes that clients appended; also by topic."),
        "MessagesInPerSec": _meter("records", "Records that clients appended; also by topic."),
        "BytesOutPerSec": _meter("bytes", "Bytes sent to consumers; also by topic."),
        "ReplicationBytesInPerSec": _meter("bytes", "Bytes appended as a follower."),
        "ReplicationBytesOutPerSec": _meter("bytes", "Bytes sent to followers."),
        "ReassignmentBytesInPerSec": _meter("bytes", "Bytes appended as a follower that a reassignment adds."),
        "TotalProduceRequestsPerSec": _meter("partitions", "Partitions in Produce requests; also by topic."),
        "FailedProduceRequestsPerSec": _meter("partitions", "Partitions in Produce requests that failed."),
        "BytesRejectedPerSec": _meter("bytes", "Bytes of batches that were too large."),
        "InvalidMessageCrcRecordsPerSec": _meter("batches", "Batches with a wrong checksum or format."),
        "TotalFetchRequestsPerSec": _meter("partitions", "Partitions in Fetch requests; by topic, those with records."),
        "FailedFetchRequestsPerSec": _meter("partitions", "Partitions in Fetch requests that failed."),
    },
    # Logs
    "kafka.log:type=Log": {
        "NumLogSegments": _gauge("segments", "Segments of the log."),
        "LogStartOffset": _gauge("offset", "First offset of the log."),
        "LogEndOffset": _gauge("offset", "Offset of the next record."),
        "Size": _gauge("bytes", "Size of the log."),
    },
    "kafka.log:type=LogCleaner": {
        "max-buffer-utilization-percent": _gauge("%", "Use of the cleaner's memory in its last pass."),
        "cleaner-recopy-percent": _gauge("%", "Bytes that the last pass wrote, in percent of those that it read."),
        "max-clean-time-secs": _gauge("s", "Duration of the last pass."),
        "max-compaction-delay-secs": _gauge("s", "Longest time that a record has waited for compaction."),
    },
    "kafka.log:type=LogCleanerManager": {
        "max-dirty-percent": _gauge("%", "Share of the dirtiest log that needs cleaning."),
        "time-since-last-run-ms": _gauge("ms", "Time since the cleaner last looked for work."),
        "uncleanable-partitions-count": _gauge("partitions", "Logs that the cleaner cannot clean, by directory."),
        "uncleanable-bytes": _gauge("bytes", "Size of the logs that the cleaner cannot clean, by directory."),
    },
    "kafka.log:type=LogManager": {
        "OfflineLogDirectoryCount": _gauge("directories", "Data directories that failed."),
        "CordonedLogDirectoryCount": _gauge("directories", "Data directories that take no new logs."),
        "LogDirectoryOffline": _gauge("flag", "1 if the data directory failed."),
        "LogDirectoryCordoned": _gauge("flag", "1 if the data directory takes no new logs."),
    },
    "kafka.log:type=LogFlushStats": {
        "LogFlushRateAndTimeMs": _times("Sync of a log to the disk."),
    },
    "triokafka:type=LogManager": {
        "StrayLogs": _gauge("logs", "Logs that belong to no partition of this broker."),
        "DamagedLogs": _gauge("logs", "Logs that lost records to damage."),
        "LostOffsets": _gauge("offsets", "Offsets that damage removed."),
    },
    # Groups
    "kafka.coordinator.group:type=GroupMetadataManager": {
        "NumOffsets": _gauge("offsets", "Committed offsets."),
        "NumGroups": _gauge("groups", "Classic groups."),
        "NumGroupsPreparingRebalance": _gauge("groups", "Classic groups in the state PreparingRebalance."),
        "NumGroupsCompletingRebalance": _gauge("groups", "Classic groups in the state CompletingRebalance."),
        "NumGroupsStable": _gauge("groups", "Classic groups in the state Stable."),
        "NumGroupsDead": _gauge("groups", "Classic groups in the state Dead."),
        "NumGroupsEmpty": _gauge("groups", "Classic groups in the state Empty."),
    },
    "kafka.server:type=group-coordinator-metrics": {
        "group-count": _gauge("groups", "Groups by protocol."),
        "consumer-group-count": _gauge("groups", "Groups of the consumer protocol by state."),
        "offset-commit-count": _gauge("commits", "Committed offsets since the start."),
        "offset-expiration-count": _gauge("offsets", "Offsets that expired since the start."),
        "offset-deletion-count": _gauge("offsets", "Offsets that were deleted since the start."),
        "group-completed-rebalance-count": _gauge("rebalances", "Completed rebalances of classic groups."),
        "consumer-group-rebalance-count": _gauge("rebalances", "Rebalances of groups of the consumer protocol."),
        "num-partitions": _gauge("partitions", "Partitions of the offsets topic by state."),
        "partition-load-time-max": _gauge("ms", "Longest recent time to load a partition."),
        "partition-load-time-avg": _gauge("ms", "Average recent time to load a partition."),
    },
    "triokafka:type=GroupCoordinator": {
        "HeldOperations": _gauge("operations", "Responses that wait for a commit."),
    },
    # Transactions
    "kafka.server:type=transaction-coordinator-metrics": {
        "partition-load-time-max": _gauge("ms", "Longest recent time to load a partition."),
        "partition-load-time-avg": _gauge("ms", "Average recent time to load a partition."),
    },
    "kafka.coordinator.transaction:type=TransactionMarkerChannelManager": {
        "UnknownDestinationQueueSize": _gauge("markers", "Markers that wait for a leader of their partition."),
    },
    "kafka.server:type=AddPartitionsToTxnManager": {
        "VerificationTimeMs": _times("Verification of a transaction by a partition's leader."),
        "VerificationFailureRate": _meter("partitions", "Partitions that a transaction coordinator refused."),
    },
    # Node
    "kafka.server:type=KafkaServer": {
        "linux-disk-read-bytes": _gauge("bytes", "Bytes that the process has read from disks."),
        "linux-disk-write-bytes": _gauge("bytes", "Bytes that the process has written to disks."),
        "BrokerState": _gauge("state", "0 not running, 1 starting, 2 recovery, 3 running, 6 and 7 shutting down."),
    },
    "kafka.server:type=broker-metadata-metrics": {
        "last-applied-record-offset": _gauge("offset", "Last metadata record that the node applied."),
        "last-applied-record-timestamp": _gauge(
            "ms", "Timestamp of the last applied metadata record, in ms since 1970."
        ),
        "last-applied-record-lag-ms": _gauge(
            "ms", "Age of the last applied metadata record; 0 on the active controller."
        ),
        "metadata-apply-error-count": _gauge(
            "errors", "Changes that a part of the node could not apply; the log says why."
        ),
        "ignored-static-voters": _gauge(
            "flag", "1 if controller.quorum.voters is ignored: the metadata has the voters."
        ),
    },
    "kafka.server:type=MetadataLoader": {
        "FinalizedLevel": _gauge("level", "Finalized level of a feature."),
        "CurrentControllerId": _gauge("node", "Leader of the metadata quorum, -1 if unknown."),
        "CurrentMetadataVersion": _gauge("level", "Finalized level of metadata.version."),
        "HandleLoadSnapshotCount": _gauge("snapshots", "Snapshots of the metadata that the node has loaded."),
    },
    "kafka.server:type=SnapshotEmitter": {
        "LatestSnapshotGeneratedBytes": _gauge(
            "bytes", "Size of the last snapshot of the metadata since the start, or 0."
        ),
        "LatestSnapshotGeneratedAgeMs": _gauge("ms", "Time since the last snapshot, or since the start."),
    },
    "kafka.server:type=node-metrics": {
        "maximum-supported-level": _gauge("level", "Highest level of a feature that the node supports."),
        "minimum-supported-level": _gauge("level", "Lowest level of a feature that the node supports."),
    },
    "kafka.server:type=AssignmentsManager": {
        "QueuedReplicaToDirAssignments": _gauge(
            "replicas", "Replicas whose directory the controller does not know yet."
        ),
    },
    "kafka.server:type=client-metrics": {
        "instance-count": _gauge("clients", "Clients that push metrics (KIP-714)."),
        "unknown-subscription-request-count": _gauge("pushes", "Pushes for a subscription that had changed."),
    },
    "kafka.server:type=ControllerServer": {
        "linux-disk-read-bytes": _gauge("bytes", "Bytes that the process has read from disks."),
        "linux-disk-write-bytes": _gauge("bytes", "Bytes that the process has written to disks."),
    },
    "process:type=cpu": {"seconds-total": _gauge("s", "Processor time of all threads.")},
    "process:type=resident": {"memory-bytes": _gauge("bytes", "Memory in use.")},
    "process:type=open": {"fds": _gauge("files", "Open files and connections.")},
    "process:type=max": {"fds": _gauge("files", "Limit of open files and connections.")},
    "process:type=start": {"time-seconds": _gauge("s", "Start of the process, since 1970.")},
    # Controller
    "kafka.controller:type=KafkaController": {
        "ActiveControllerCount": _gauge("flag", "1 if this controller is the active one."),
        "ActiveBrokerCount": _gauge("brokers", "Brokers that are not fenced."),
        "FencedBrokerCount": _gauge("brokers", "Fenced brokers."),
        "ControlledShutdownBrokerCount": _gauge("brokers", "Brokers in a controlled shutdown."),
        "GlobalTopicCount": _gauge("topics", "Topics of the cluster."),
        "GlobalPartitionCount": _gauge("partitions", "Partitions of the cluster."),
        "OfflinePartitionsCount": _gauge("partitions", "Partitions without a leader."),
        "PreferredReplicaImbalanceCount": _gauge("partitions", "Partitions whose leader is not the preferred replica."),
        "LastAppliedRecordOffset": _gauge("offset", "Last metadata record that the controller applied."),
        "LastAppliedRecordTimestamp": _gauge("ms", "Timestamp of the last applied metadata record, in ms since 1970."),
        "LastAppliedRecordLagMs": _gauge("ms", "Age of the last applied metadata record; 0 on the active controller."),
        "LastCommittedRecordOffset": _gauge("offset", "Last committed metadata record that the controller knows."),
        "MetadataErrorCount": _gauge("errors", "Changes that a part of the node could not apply; the log says why."),
        "IgnoredStaticVoters": _gauge("flag", "1 if controller.quorum.voters is ignored: the metadata has the voters."),
        "BrokerRegistrationState": _gauge("state", "10 fenced, 20 in a controlled shutdown, 30 active; by broker."),
        "TimedOutBrokerHeartbeatCount": _gauge("heartbeats", "Heartbeats that waited too long in the event queue."),
        "EventQueueOperationsStartedCount": _gauge("operations", "Operations of the event queue since the start."),
        "EventQueueOperationsTimedOutCount": _gauge(
            "operations", "Operations that waited too long in the event queue."
        ),
        "NewActiveControllersCount": _gauge("elections", "How often this controller became the active one."),
        "TimeSinceLastHeartbeatReceivedMs": _gauge("ms", "Time since a broker's last heartbeat."),
    },
    "kafka.controller:type=ControllerStats": {
        "UncleanLeaderElectionsPerSec": _meter("elections", "Elections of leaders that were not in sync."),
        "ElectionFromEligibleLeaderReplicasPerSec": _meter("elections", "Elections from eligible leader replicas."),
    },
    "kafka.controller:type=ControllerEventManager": {
        "EventQueueTimeMs": _times("Wait of an operation in the event queue."),
        "EventQueueProcessingTimeMs": _times("Processing of an operation."),
        "AvgIdleRatio": _gauge("ratio", "Share of the last minute in which the event queue processed no operation."),
    },
    "kafka.server:type=raft-metrics": {
        "current-leader": _gauge("node", "Leader of the metadata quorum, -1 if unknown."),
        "current-vote": _gauge("node", "Node that this node voted for in the epoch, -1 if none."),
        "current-state": _gauge(
            "flag", "1, with the state as label: leader, follower, candidate, observer and others."
        ),
        "current-epoch": _gauge("epoch", "Epoch of the quorum."),
        "high-watermark": _gauge("offset", "Committed end of the metadata log, -1 if unknown."),
        "log-end-offset": _gauge("offset", "End of this node's metadata log."),
        "log-end-epoch": _gauge("epoch", "Epoch of the last record of this node's metadata log."),
        "number-of-voters": _gauge("voters", "Voters of the quorum."),
        "number-of-observers": _gauge("observers", "Nodes without a vote that fetch from this leader."),
        "uncommitted-voter-change": _gauge("flag", "1 while a change of the voters is not committed."),
        "append-records-rate": _gauge("records per second", "Records that this leader appends."),
        "fetch-records-rate": _gauge("records per second", "Records that this node receives from the leader."),
        "commit-latency-avg": _gauge("ms", "Average time from an append to its commit, on the leader."),
        "commit-latency-max": _gauge("ms", "Longest time from an append to its commit, on the leader."),
        "election-latency-avg": _gauge("ms", "Average time from the start of an election to a known leader."),
        "election-latency-max": _gauge("ms", "Longest time from the start of an election to a known leader."),
        "poll-idle-ratio-avg": _gauge("ratio", "Share of time in which the quorum's state machine had nothing to do."),
    },
    "kafka.server:type=raft-channel-metrics": {
        "request-total": _gauge("requests", "Requests to other nodes of the quorum."),
        "outgoing-byte-total": _gauge("bytes", "Bytes of requests to other nodes of the quorum."),
        "response-total": _gauge("responses", "Responses of other nodes of the quorum."),
        "incoming-byte-total": _gauge("bytes", "Bytes of responses of other nodes of the quorum."),
        "connection-creation-total": _gauge("connections", "Connections that were made to other nodes of the quorum."),
        "connection-close-total": _gauge("connections", "Connections that have ended."),
        "connection-count": _gauge("connections", "Open connections."),
        "failed-authentication-total": _gauge("connections", "Connections whose authentication failed."),
    },
}
DECLARED: Final[Mapping[str, DeclaredMetric]] = {
    **{f"{mbean},name={name}": metric for mbean, metrics in _BY_TYPE.items() for name, metric in metrics.items()},
    "triokafka:type=Tasks": _gauge("tasks", "Tasks of the event loop."),
    **{
        f"kafka_exporter:type={name}": _gauge(unit, meaning)
        for name, unit, meaning in (
            ("brokers", "brokers", "Brokers that are not fenced."),
            ("topic_partitions", "partitions", "Partitions of a topic."),
            ("topic_partition_leader", "node", "Leader of a partition that this broker leads."),
            ("topic_partition_leader_is_preferred", "flag", "1 if the leader is the preferred replica."),
            ("topic_partition_replicas", "replicas", "Replicas of a partition that this broker leads."),
            ("topic_partition_in_sync_replica", "replicas", "In-sync replicas of a partition that this broker leads."),
            ("topic_partition_under_replicated_partition", "flag", "1 if replicas of the partition are not in sync."),
            ("topic_partition_current_offset", "offset", "End of a partition that this broker leads."),
            ("topic_partition_oldest_offset", "offset", "Start of a partition that this broker leads."),
            ("consumergroup_members", "members", "Members of a group."),
            ("consumergroup_current_offset", "offset", "Committed offset of a group in a partition."),
            ("consumergroup_current_offset_sum", "offset", "Committed offsets of a group in a topic."),
            ("consumergroup_lag", "records", "Lag of a group in a partition of which this broker has a replica."),
            ("consumergroup_lag_sum", "records", "Lag of a group in a topic."),
        )
    },
}
"""Every metric by MBean."""
