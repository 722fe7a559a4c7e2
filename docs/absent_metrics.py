"""Metrics of Apache Kafka 4.3 that this package does not have, and why.

A rule has two regular expressions, for the whole MBean (type and name, without tags) and for the whole attribute.
"""

from __future__ import annotations

from typing import Final

_NO_SELECTOR: Final = "the event loop has no selector of its own for each client"
_NO_REAUTHENTICATION: Final = "re-authentications are not counted separately"
_CHANNELS: Final = (
    r"kafka\.server:type=(AddPartitionsManager-channel|Persister-channel|alter-partition|directory-assignments|forwarding|"
    r"heartbeat|registration|txn-marker-channel)-metrics"
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
        "records also arrive by iteration, whose steps are not counted",
    ),
    (
        r"kafka\.consumer:type=consumer-coordinator-metrics",
        r"failed-rebalance.*|partition-(assigned|lost|revoked)-latency.*",
        "hooks= receives the durations of callbacks",
    ),
    (r"kafka\.producer:type=producer-metrics", r"record-size-max", "it would cost time for each record"),
    (r"kafka\.producer:type=producer-metrics", r"metadata-wait-time-ns-total", "the wait is not measured"),
    (r"kafka\.producer:type=producer-metrics", r"txn-prepare-time-ns-total", "there is no two-phase commit (KIP-939)"),
    (r"kafka\..*", r"(Mean|OneMinute|FiveMinute|FifteenMinute)Rate|EventType|RateUnit", "Prometheus computes rates"),
    (r"kafka\..*", r"Mean|Min|StdDev|LatencyUnit", "Prometheus computes averages from sum and count"),
    (r".*[sS]hare.*|.*Persister.*", r".*", "share groups are not implemented (KIP-932)"),
    (r".*", r"(streams|share)-group.*", "groups of Streams and share groups are not implemented"),
    (_CHANNELS, r".*", "channels between nodes have no metrics of their own"),
    (
        r"kafka\.server:type=raft-channel-metrics",
        r".*-rate|.*-ratio|.*-ns-.*|.*reauth.*|network-io-.*|request-(latency|size)-.*|select-.*|"
        r"successful-authentication-total",
        "Prometheus computes rates and averages; there is no selector",
    ),
    (r"kafka\.server:type=ForwardingManager", r".*", "channels between nodes have no metrics of their own"),
    (
        r"kafka\.server:type=socket-server-metrics",
        r"(?!connection-count).*",
        "connections are counted by listener; requests and times are in RequestMetrics",
    ),
    (
        r"kafka\.network:type=(Acceptor|Processor|RequestChannel|SocketServer).*,name=(AcceptorBlockedPercent|IdlePercent|"
        r"ResponseQueueSize|ExpiredConnectionsKilledCount|MemoryPoolAvailable)",
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
        r"kafka\.server:type=BrokerTopicMetrics,name=(Invalid(MagicNumber|OffsetOrSequence)Records|NoKeyCompacted.*)PerSec",
        r".*",
        "other refused batches are counted together in FailedProduceRequestsPerSec",
    ),
    (
        r"kafka\.server:type=BrokerTopicMetrics,name=ReassignmentBytesOutPerSec",
        r".*",
        "ReplicationBytesOutPerSec includes them; the receiving broker counts ReassignmentBytesInPerSec",
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
    (r"kafka\.server:type=(KafkaServer|ControllerServer),name=ClusterId", r".*", "Prometheus has no text values"),
    (
        r"kafka\.server:type=(KafkaServer|ControllerServer),name=yammer-metrics-count",
        r".*",
        "the lines of the export can be counted",
    ),
    (r"kafka\.server:type=client-metrics", r".*-rate", "Prometheus computes rates"),
    (r".*:type=kafka-metrics-count", r"count", "the lines of the export can be counted"),
    (
        r"kafka\.server:type=(Fetch|Produce|Request|ControllerMutation)",
        r"queue-size|exempt-request-time",
        "throttled connections do not queue; requests between brokers have no quota",
    ),
    (
        r"kafka\.server:type=BrokerMetadataListener,.*",
        r".*",
        "the node applies metadata in changes with records of several batches",
    ),
    (
        r"kafka\.server:type=MetadataLoader,name=AvgIdleRatio",
        r".*",
        "the loader has no thread of its own",
    ),
    (
        r"kafka\.server:type=broker-metadata-metrics",
        r"metadata-load-error-count",
        "a node that cannot read a committed record stops",
    ),
    (
        r"kafka\.server:type=raft-metrics",
        r"current-vote-directory-id|number-unknown-voter-connections",
        "Prometheus has no values that are ids; `triokafka quorum describe` shows the voters with their directories",
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
        "moves between data directories have no fetchers; `triokafka log dirs` shows their lag",
    ),
    (
        r"kafka\.server:type=ReplicaFetcherManager,name=DeadThreadCount",
        r".*",
        "there are no fetcher threads",
    ),
    (
        r"kafka\.coordinator\.transaction:.*,name=LogAppendRetryQueueSize",
        r".*",
        "the coordinator appends at once, and gives up its partition when it cannot",
    ),
    (r"kafka\.log:type=Log,name=RetentionSizeInPercent", r".*", "only remote storage uses it"),
    (r"kafka\.log:type=LogCleaner,name=DeadThreadCount", r".*", "the cleaner has no threads of its own"),
    (r"kafka\.utils:type=Throttler.*", r".*", "the cleaner's limit is a configuration"),
)
