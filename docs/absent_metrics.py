"""Metrics of Apache Kafka 4.3 that this package does not have, and why.

A rule has two regular expressions, for the whole MBean (type and name, without tags) and for the whole attribute.
"""

from __future__ import annotations

from typing import Final

_NO_SELECTOR: Final = "the event loop has no selector of its own for each client"
_NO_REAUTHENTICATION: Final = "authentication again is not counted apart"
_CHANNELS: Final = (
    r"kafka\.server:type=(AddPartitionsManager-channel|Persister-channel|alter-partition|directory-assignments|forwarding|"
    r"heartbeat|raft-channel|registration|txn-marker-channel)-metrics"
)

ABSENT: Final[tuple[tuple[str, str, str], ...]] = (
    (r".*:type=app-info", r".*", "the version is in the log and in ApiVersions"),
    (r"kafka\.(consumer|producer|admin\.client):.*", r"(io|select)-.*", _NO_SELECTOR),
    (r"kafka\.(consumer|producer|admin\.client):.*", r".*reauth.*", _NO_REAUTHENTICATION),
    (
        r"kafka\.consumer:type=consumer-metrics",
        r"(application|background)-event.*|unsent-requests.*|time-between-network-thread.*",
        "there are no threads with queues between them",
    ),
    (
        r"kafka\.consumer:type=consumer-metrics",
        r"poll-idle-ratio-avg|time-between-poll.*",
        "records also come by iteration, where calls are not counted",
    ),
    (
        r"kafka\.consumer:type=consumer-coordinator-metrics",
        r"failed-rebalance.*|partition-(assigned|lost|revoked)-latency.*",
        "durations of callbacks are events of hooks=",
    ),
    (r"kafka\.producer:type=producer-metrics", r"record-size-max", "it would cost time for each record"),
    (r"kafka\.producer:type=producer-metrics", r"metadata-wait-time-ns-total", "not measured"),
    (r"kafka\.producer:type=producer-metrics", r"txn-prepare-time-ns-total", "there is no two-phase commit (KIP-939)"),
    (r"kafka\..*", r"(Mean|OneMinute|FiveMinute|FifteenMinute)Rate|EventType|RateUnit", "Prometheus computes rates"),
    (r"kafka\..*", r"Mean|Min|StdDev|LatencyUnit", "Prometheus computes averages from sum and count"),
    (r".*[sS]hare.*|.*Persister.*", r".*", "share groups are not implemented (KIP-932)"),
    (r".*", r"(streams|share)-group.*", "groups of Streams and share groups are not implemented"),
    (_CHANNELS, r".*", "channels between nodes have no metrics of their own"),
    (r"kafka\.server:type=ForwardingManager", r".*", "channels between nodes have no metrics of their own"),
    (
        r"kafka\.server:type=socket-server-metrics",
        r"(?!connection-count).*",
        "connections are counted by listener; requests and times are in RequestMetrics",
    ),
    (
        r"kafka\.network:type=(Acceptor|Processor|RequestChannel|SocketServer).*,name=(AcceptorBlockedPercent|IdlePercent|"
        r"ResponseQueueSize|NetworkProcessorAvgIdlePercent|ExpiredConnectionsKilledCount|MemoryPoolAvailable)",
        r".*",
        "there are no acceptor and processor threads; memory in use has a metric",
    ),
    (
        r"kafka\.network:type=RequestMetrics,name=(MessageConversionsTimeMs|TemporaryMemoryBytes)",
        r".*",
        "the broker converts no records",
    ),
    (
        r"kafka\.server:type=BrokerTopicMetrics,name=(Fetch|Produce)MessageConversionsPerSec",
        r".*",
        "the broker converts no records",
    ),
    (
        r"kafka\.server:type=BrokerTopicMetrics,name=(BytesRejected|Invalid.*|NoKeyCompacted.*|ReassignmentBytesOut)PerSec"
        r"|kafka\.server:type=BrokerTopicMetrics,name=(Invalid|NoKey).*",
        r".*",
        "refused batches are counted together in FailedProduceRequestsPerSec",
    ),
    (
        r"kafka\.server:type=KafkaRequestHandlerPool,name=(Broker|Controller)RequestHandlerAvgIdlePercent",
        r".*",
        "a combined node measures its handlers together",
    ),
    (
        r"kafka\.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        r"Count",
        "it is a share of time, not a count",
    ),
    (r"kafka\.server:type=(KafkaServer|ControllerServer),name=ClusterId", r".*", "a text is no value for Prometheus"),
    (
        r"kafka\.server:type=(KafkaServer|ControllerServer),name=(linux-disk.*|yammer-metrics-count)",
        r".*",
        "node_exporter has the disk; the number of metrics is that of the lines",
    ),
    (r"kafka\.server:type=client-metrics", r".*-rate", "Prometheus computes rates"),
    (r".*:type=kafka-metrics-count", r"count", "the number of metrics is that of the lines"),
    (
        r"kafka\.server:type=(Fetch|Produce|Request|ControllerMutation)",
        r"queue-size|exempt-request-time",
        "throttled connections do not queue; requests between brokers have no quota",
    ),
    (
        r"kafka\.server:type=(AddPartitionsToTxnManager|AssignmentsManager|BrokerMetadataListener|SnapshotEmitter|"
        r"node-metrics|transaction-coordinator-metrics)(,.*)?",
        r".*",
        "not measured; RequestMetrics has the requests that they send",
    ),
    (
        r"kafka\.server:type=MetadataLoader,name=(AvgIdleRatio|HandleLoadSnapshotCount)",
        r".*",
        "the loader has no thread of its own",
    ),
    (
        r"kafka\.server:type=broker-metadata-metrics",
        r"ignored-static-voters|last-applied-record-(lag-ms|timestamp)|metadata-.*-error-count",
        "a node that cannot apply a record stops",
    ),
    (
        r"kafka\.server:type=raft-metrics",
        r"append-.*|commit-.*|current-(state|vote.*)|election-.*|fetch-.*|number-(of-observers|unknown.*)|poll-.*|"
        r"uncommitted-.*",
        "`triokafka quorum` shows the state; times are not measured",
    ),
    (
        r"kafka\.server:type=group-coordinator-metrics",
        r"(background|batch|event|thread)-.*",
        "the coordinator has no threads and no batches of events",
    ),
    (r"kafka\.server:type=group-coordinator-metrics", r".*-rate", "Prometheus computes rates"),
    (
        r"kafka\.server:type=ReplicaAlterLogDirsManager.*",
        r".*",
        "replicas do not move between data directories",
    ),
    (
        r"kafka\.server:type=ReplicaFetcherManager,name=(DeadThreadCount|FailedPartitionsCount|MinFetchRate)",
        r".*",
        "there are no fetcher threads",
    ),
    (
        r"kafka\.controller:type=ControllerEventManager,name=AvgIdleRatio"
        r"|kafka\.controller:type=KafkaController,name=(BrokerRegistrationState|IgnoredStaticVoters|LastAppliedRecordLagMs|"
        r"LastAppliedRecordTimestamp|LastCommittedRecordOffset|MetadataErrorCount)",
        r".*",
        "raft-metrics has the committed end; a node that cannot apply a record stops",
    ),
    (r"kafka\.controller:type=ControllerEventManager,.*", r"\d+thPercentile", "count, sum and maximum are measured"),
    (r"kafka\.coordinator\.transaction:.*", r".*", "not measured; `triokafka transactions` shows the states"),
    (r"kafka\.log:type=Log,name=RetentionSizeInPercent", r".*", "only remote storage uses it"),
    (r"kafka\.log:type=LogCleaner,name=DeadThreadCount", r".*", "the cleaner has no threads of its own"),
    (r"kafka\.log:type=LogFlushStats,.*", r".*", "not measured; node_exporter has the disk"),
    (r"kafka\.log:type=LogManager,name=LogDirectory(Cordoned|Offline)", r".*", "the numbers of directories are there"),
    (r"kafka\.utils:type=Throttler.*", r".*", "the cleaner's limit is a configuration"),
)
