"""The broker's configuration options by area.

Names are Kafka's with underscores for dots. Defaults are Kafka's unless the documentation of the option says otherwise.
Every field is one option, and its metadata holds the definition: type, limits and documentation. An option that sets
the default of a topic configuration takes these from the topic configuration (`triokafka.broker_stub.log.config`).
The module is one list without logic, in which one searches for a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, FrozenInstanceError, dataclass, field
from typing import Any, Final, cast, dataclass_transform

from triokafka.broker_stub.config.definition import INT_MAX, LONG_MAX, ConfigDefinition, UpdateMode, unknown_option
from triokafka.broker_stub.log import config as log_config
from triokafka.broker_stub.log.config import ConfigType

CLUSTER: Final = UpdateMode.CLUSTER_WIDE
PER_BROKER: Final = UpdateMode.PER_BROKER
_DEFINITION: Final = "definition"


def option(config_type: ConfigType, default: Any, documentation: str, **limits: Any) -> Any:
    """Return a dataclass field for an option. `definition_of_field` derives the option's name from the attribute."""

    def define(name: str) -> ConfigDefinition:
        return ConfigDefinition(name, config_type, default, documentation, **limits)

    return field(default=default, metadata={_DEFINITION: define})


def definition_of_field(name: str, metadata: Any) -> ConfigDefinition | None:
    """Return the definition of a dataclass field with its dotted name; None for a field that is not an option."""
    define: Callable[[str], ConfigDefinition] | None = metadata.get(_DEFINITION)
    return define(name.replace("_", ".")) if define else None


def _boolean(default: bool, documentation: str, **limits: Any) -> Any:
    return option(ConfigType.BOOLEAN, default, documentation, **limits)


def _int(default: int | None, documentation: str, minimum: int = -(2**31), **limits: Any) -> Any:
    return option(ConfigType.INT, default, documentation, minimum=minimum, **limits)


def _long(default: int | None, documentation: str, minimum: int = -(2**63), **limits: Any) -> Any:
    return option(ConfigType.LONG, default, documentation, minimum=minimum, **limits)


def _text(default: str | None, documentation: str, **limits: Any) -> Any:
    return option(ConfigType.STRING, default, documentation, **limits)


def _list(default: tuple[str, ...] | None, documentation: str, **limits: Any) -> Any:
    return option(ConfigType.LIST, default, documentation, **limits)


def _class(documentation: str) -> Any:
    return option(ConfigType.CLASS, None, documentation)


_UNSET: Final = object()


def _for_topics(topic_key: str, default: Any = _UNSET, *, any_number: bool = False) -> Any:
    """Return an option that sets the default of the topic configuration ``topic_key``.

    ``default`` replaces the default of the topic configuration. With ``any_number`` its limits do not apply.
    """
    topic = log_config.DEFINITIONS[topic_key]

    def check(value: Any) -> None:
        reason = topic.check(value)
        if reason:
            raise ValueError(reason)

    return option(
        topic.type,
        topic.default if default is _UNSET else default,
        f"The default of the topic configuration {topic_key}. {topic.doc}",
        update_mode=CLUSTER,
        check=None if any_number else check,
    )


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """Base class of option classes: keyword arguments only, immutable, equal if all values are equal.

    The fields are dataclass fields, but this class implements the methods that ``dataclass`` would generate: compiling
    them for over a hundred fields takes 8 ms of the 200 ms in which a broker starts.

    Raises:
        ConfigurationError: an unknown option; the message names the nearest known option.
    """

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True, init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: Any) -> None:
        defaults = {name: known.default for name, known in self._fields().items()}
        for name in values:
            if name not in defaults:
                raise unknown_option(name, defaults)
        self.__dict__.update(defaults)
        self.__dict__.update(values)
        self._check()

    def _check(self) -> None:
        """Raise `ConfigurationError` for an invalid value or combination of values."""

    def _fields(self) -> Mapping[str, Field[Any]]:
        found: Mapping[str, Field[Any]] = cast(Any, self).__dataclass_fields__
        return found

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._fields())

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to {name!r}: options are immutable; use dataclasses.replace")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self._fields())
        return f"{type(self).__name__}({', '.join(shown)})"


class NodeOptions(Options):
    """Node identity, listeners and controller."""

    node_id: int = _int(1, "The node id, unique in the cluster. Kafka has no default.", 0)
    process_roles: tuple[str, ...] = _list(
        ("broker", "controller"),
        "Roles of the node: broker, controller or both. Kafka has no default.",
        choices=("broker", "controller"),
    )
    broker_rack: str | None = _text(None, "The broker's rack, for replica placement and rack-aware fetching.")
    listeners: tuple[str, ...] = _list(
        ("PLAINTEXT://:9092",), "Addresses that the broker listens on, as NAME://host:port. Port 0 selects a free port."
    )
    advertised_listeners: tuple[str, ...] | None = _list(
        None, "Addresses that clients connect to, if they differ from listeners."
    )
    early_start_listeners: tuple[str, ...] | None = _list(
        None,
        "Names of the listeners that accept requests before the authorizer has loaded the ACLs. Default: the "
        "controller's listeners. A broker always loads the ACLs first.",
    )
    listener_security_protocol_map: tuple[str, ...] = _list(
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "The security protocol of each listener, as NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = _text(None, "The listener for connections between brokers.")
    authorizer_class_name: str = _text(
        "",
        "The authorizer: org.apache.kafka.metadata.authorizer.StandardAuthorizer for the ACLs of the cluster, a Python "
        "class as module:Class, or the name of an entry point in the group triokafka.authorizers. Without one, "
        "every client may do everything.",
    )
    super_users: str = _text(
        "", "Principals that may do everything, separated by semicolons, such as User:admin;User:ANONYMOUS."
    )
    allow_everyone_if_no_acl_found: bool = _boolean(
        False, "Whether every client may do everything with a resource that no ACL applies to."
    )
    delegation_token_secret_key: str | None = option(
        ConfigType.PASSWORD,
        None,
        "The key from which all nodes compute the secrets of delegation tokens (KIP-48); it must be the same on every "
        "broker and controller. Without one, there are no tokens.",
    )
    delegation_token_max_lifetime_ms: int = _long(
        604_800_000, "Time after which a delegation token expires even if it is renewed.", 1
    )
    delegation_token_expiry_time_ms: int = _long(
        86_400_000, "Time after which a delegation token expires unless it is renewed.", 1
    )
    delegation_token_expiry_check_interval_ms: int = _long(
        3_600_000, "Interval between checks for expired delegation tokens to remove.", 1
    )
    controller_listener_names: tuple[str, ...] = _list(
        ("CONTROLLER",),
        "Names of the controller's listeners; the first is for requests between the nodes of the quorum. Without an "
        "entry in listeners, a node with both roles is a quorum of one that no other node joins. Kafka has no default.",
    )
    controller_quorum_voters: tuple[str, ...] = _list(
        (), "The voters of a static quorum, as id@host:port; empty for a dynamic quorum, or for a quorum of one."
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = _list(
        (), "Addresses of controllers, as host:port, from which a node learns the leader of a dynamic quorum (KIP-853)."
    )
    controller_quorum_auto_join_enable: bool = _boolean(
        False, "Whether a controller without a vote asks the leader for one (KIP-1186)."
    )
    controller_quorum_election_timeout_ms: int = _int(
        1000, "Time without a majority of votes after which a candidate starts another election.", 1
    )
    controller_quorum_election_backoff_max_ms: int = _int(
        1000, "The longest back-off of a candidate after a lost election.", 1
    )
    controller_quorum_fetch_timeout_ms: int = _int(
        2000, "Time without a fetch from the leader, or from a majority, after which an election starts.", 1
    )
    controller_quorum_request_timeout_ms: int = _int(2000, "Time limit of a request between nodes of the quorum.", 1)
    controller_quorum_retry_backoff_ms: int = _int(
        20, "Back-off after a failed request between nodes of the quorum.", 0
    )
    controller_quorum_append_linger_ms: int = _int(
        0, "The least time between two flushes of the metadata log. Kafka's default is 25.", 0
    )
    controller_quorum_fetch_max_bytes: int = _int(
        1 << 20, "The most bytes of records in one fetch from the metadata log.", 1
    )
    controller_quorum_fetch_snapshot_max_bytes: int = _int(
        1 << 20, "The most bytes in one fetch from a metadata snapshot.", 1
    )
    controller_socket_timeout_ms: int = _int(
        30_000, "Time limit of a broker's request to the active controller, retries included.", 1
    )
    broker_heartbeat_interval_ms: int = _int(2000, "Interval between a broker's heartbeats to the controller.", 1)
    broker_session_timeout_ms: int = _int(
        9000, "Time without a heartbeat after which the controller fences a broker.", 1
    )
    initial_broker_registration_timeout_ms: int = _int(
        60_000, "Time within which a starting broker must register with the controller.", 1
    )


class NetworkOptions(Options):
    """Connections and requests."""

    num_network_threads: int = _int(
        3, "Accepted without effect: connections are tasks, not threads.", 1, update_mode=CLUSTER
    )
    num_io_threads: int = _int(
        8, "Maximum number of requests that handlers process concurrently.", 1, update_mode=CLUSTER
    )
    background_threads: int = _int(
        10, "Accepted without effect: background work runs in tasks.", 1, update_mode=CLUSTER
    )
    queued_max_requests: int = _int(
        500, "Maximum number of queued requests. The broker stops reading from connections above it.", 1
    )
    queued_max_request_bytes: int | None = _long(
        None,
        "Maximum bytes of requests in memory. The broker stops reading from connections above it. -1: no limit."
        " Default: an eighth of the memory available to the broker, at most 192 MiB and at least"
        " socket.request.max.bytes.",
    )
    queued_request_stall_timeout_ms: int = _int(
        10_000,
        "While other requests wait for memory, the broker closes a connection whose request has received no bytes for"
        " this time.",
        1,
    )
    queued_max_response_bytes: int = _long(
        67_108_864,
        "Maximum bytes of encoded responses that clients have not read. Above it, the broker closes the connection with"
        " the oldest unread response. -1: no limit. Records that the broker sends from files do not count.",
    )
    num_validation_threads: int = _int(
        2, "Number of threads that validate compressed batches. One more thread validates very large batches.", 1
    )
    quota_window_num: int = _int(11, "Number of windows over which the broker measures the rate of a client quota.", 1)
    quota_window_size_seconds: int = _int(1, "Length of a client quota window.", 1)
    controller_quota_window_num: int = _int(
        11, "Number of windows whose unused controller mutations a client may accumulate.", 1
    )
    controller_quota_window_size_seconds: int = _int(1, "Length of a controller mutation quota window.", 1)
    replication_quota_window_num: int = _int(
        11, "Number of windows over which the broker measures the rate of a replication quota.", 1
    )
    replication_quota_window_size_seconds: int = _int(1, "Length of a replication quota window.", 1)
    socket_request_max_bytes: int = _int(
        104_857_600, "Maximum size of a request. The broker closes the connection of a larger one.", 1
    )
    socket_send_buffer_bytes: int = _int(102_400, "Size of the kernel's send buffer. -1: the system's default.", -1)
    socket_receive_buffer_bytes: int = _int(  # with 102,400 bytes, a batch of that size arrives in about a dozen pieces
        -1, "Size of the kernel's receive buffer. -1: the system tunes it. Kafka's default is 102400.", -1
    )
    socket_listen_backlog_size: int = _int(
        4096,
        "Maximum number of connections that wait for accept. The system may allow fewer (net.core.somaxconn). "
        "Kafka's default is 50.",
        1,
    )
    max_connections: int = _int(INT_MAX, "Maximum number of open connections.", 0, update_mode=CLUSTER)
    max_connections_per_ip: int = _int(
        INT_MAX, "Maximum number of open connections from one address.", 0, update_mode=CLUSTER
    )
    max_connections_per_ip_overrides: str = _text(
        "",
        "Maximum number of open connections from single addresses, as host:number,host:number.",
        update_mode=CLUSTER,
    )
    max_connection_creation_rate: int = _int(
        INT_MAX, "Maximum number of new connections per second.", 0, update_mode=CLUSTER
    )
    connections_max_idle_ms: int = _long(600_000, "Idle time after which the broker closes a connection.")
    connection_failed_authentication_delay_ms: int = _int(
        100, "Delay before the broker closes a connection after a failed authentication.", 0
    )
    ssl_handshake_timeout_ms: int = _int(
        30_000,
        "Time limit of a client's TLS handshake; then the connection is closed. Kafka: connections.max.idle.ms.",
        1,
    )
    request_timeout_ms: int = _int(30_000, "Timeout of requests between brokers.")
    fetch_max_bytes: int = _int(57_671_680, "Maximum bytes in the response to a fetch.", 1024)
    telemetry_max_bytes: int = _int(1_048_576, "Maximum size of the metrics that a client pushes (KIP-714).", 1)
    telemetry_max_fields: int = _int(
        200_000, "Maximum number of fields in the metrics that a client pushes. The broker refuses more.", 1
    )
    telemetry_max_clients: int = _int(
        16_384,
        "Maximum number of clients whose pushed metrics the broker holds. It forgets the one that pushed first.",
        1,
    )
    telemetry_max_series_per_client: int = _int(
        2_000, "Maximum number of metrics of one client that the broker holds. It ignores further ones.", 0
    )
    telemetry_store_max_bytes: int = _long(
        33_554_432,
        "Maximum memory of the pushed metrics that the broker holds. Above it, the broker forgets the clients that"
        " pushed longest ago.",
        0,
    )
    max_incremental_fetch_session_cache_slots: int = _int(1000, "Maximum number of cached fetch sessions.", 0)
    max_incremental_fetch_session_cache_partitions: int = _int(
        500_000,
        "Maximum number of partitions in all fetch sessions together, each of about 400 bytes. A consumer beyond that"
        " fetches without a session; followers always have theirs.",
        0,
    )
    max_request_partition_size_limit: int = _int(
        2000, "Maximum number of partitions in a DescribeTopicPartitions response.", 1
    )
    fetch_purgatory_purge_interval_requests: int = _int(
        1000, "Number of completed fetches that the purgatory may hold before a purge."
    )
    producer_purgatory_purge_interval_requests: int = _int(
        1000, "Number of completed produce requests that the purgatory may hold before a purge."
    )
    delete_records_purgatory_purge_interval_requests: int = _int(
        1, "Number of completed DeleteRecords requests that the purgatory may hold before a purge."
    )


class TopicOptions(Options):
    """Topics, replication and leader election."""

    auto_create_topics_enable: bool = _boolean(
        True, "Whether a metadata request for an unknown topic creates the topic."
    )
    delete_topic_enable: bool = _boolean(True, "Whether topics may be deleted.")
    create_topic_policy_class_name: str | None = _class(
        "The policy class that accepts or rejects the creation of a topic, as module:Class."
    )
    alter_config_policy_class_name: str | None = _class(
        "The policy class that accepts or rejects configuration changes, as module:Class."
    )
    num_partitions: int = _int(1, "Default number of partitions of a new topic.", 1)
    default_replication_factor: int = _int(1, "Default replication factor of a new topic.", 1)
    min_insync_replicas: int = _for_topics("min.insync.replicas")
    unclean_leader_election_enable: bool = _for_topics("unclean.leader.election.enable")
    auto_leader_rebalance_enable: bool = _boolean(
        True, "Whether the controller moves leadership back to preferred replicas."
    )
    leader_imbalance_check_interval_seconds: int = _long(300, "Interval between checks of the leader imbalance.", 1)
    leader_imbalance_per_broker_percentage: int = _int(
        10,
        "The share of a broker's preferred partitions, in percent, that other brokers may lead without a rebalance.",
        0,
    )
    unclean_leader_election_interval_ms: int = _long(
        300_000, "Interval between checks for partitions without a leader that an unclean election may give one.", 1
    )
    replica_lag_time_max_ms: int = _long(30_000, "Time after which a follower that is not caught up leaves the ISR.")
    replica_fetch_max_bytes: int = _int(1_048_576, "Maximum bytes per partition in a follower's fetch.", 0)
    replica_fetch_min_bytes: int = _int(1, "Minimum bytes in the response to a follower's fetch.")
    replica_fetch_wait_max_ms: int = _int(
        500, "Maximum time that a follower's fetch waits for replica.fetch.min.bytes."
    )
    replica_fetch_response_max_bytes: int = _int(10_485_760, "Maximum bytes in the response to a follower's fetch.", 0)
    replica_selector_class: str | None = _text(
        None,
        "The choice of the replica that consumers read from (KIP-392): None for the leader, or "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector for a replica in the consumer's rack.",
    )
    replica_socket_timeout_ms: int = _int(
        30_000, "Time that a follower waits for the response to a fetch, in addition to replica.fetch.wait.max.ms.", 1
    )
    replica_fetch_backoff_ms: int = _int(1000, "Time that a follower waits after a failed fetch.", 0)
    replica_high_watermark_checkpoint_interval_ms: int = _long(5000, "Interval between checkpoints of high watermarks.")
    num_replica_fetchers: int = _int(1, "Number of fetchers per leader.", 1, update_mode=CLUSTER)


class LogOptions(Options):
    """Data directories, logs, retention and compaction."""

    log_dir: tuple[str, ...] = _list(("/tmp/kafka-logs",), "The data directory, if log.dirs is unset.")
    log_dirs: tuple[str, ...] | None = _list(None, "The data directories.")
    cordoned_log_dirs: tuple[str, ...] = _list(
        (),
        "The data directories that get no new replicas (KIP-1066), or * for all. Needs metadata.version 4.3.",
        update_mode=UpdateMode.PER_BROKER,
    )
    metadata_log_dir: str | None = _text(None, "The directory of the metadata log. Default: the first data directory.")
    metadata_log_segment_bytes: int = _int(1_073_741_824, "Segment size of the metadata log.", 8 * 1024 * 1024)
    metadata_log_segment_ms: int = _long(604_800_000, "Maximum age of the active segment of the metadata log.")
    metadata_log_max_record_bytes_between_snapshots: int = _long(
        20_971_520, "Bytes of new metadata records after which the broker writes a snapshot.", 1
    )
    metadata_log_max_snapshot_interval_ms: int = _long(
        3_600_000,
        "Maximum time between metadata snapshots, if the metadata has changed. 0: no snapshot by time.",
        0,
    )
    metadata_max_idle_interval_ms: int = _int(
        500,
        "Time without a metadata record after which the active controller appends one that changes nothing, if the "
        "cluster has other nodes. 0: never.",
        0,
    )
    metadata_max_retention_bytes: int = _long(
        104_857_600,
        "Maximum bytes of the metadata log and its snapshots before the broker deletes the oldest. -1: no limit.",
    )
    metadata_max_retention_ms: int = _long(
        604_800_000, "Age at which the broker deletes a metadata snapshot. -1: never."
    )
    message_max_bytes: int = _for_topics("max.message.bytes")
    compression_type: str = _for_topics("compression.type")
    compression_gzip_level: int = _for_topics("compression.gzip.level")
    compression_lz4_level: int = _for_topics("compression.lz4.level")
    compression_zstd_level: int = _for_topics("compression.zstd.level")
    log_cleanup_policy: tuple[str, ...] = _for_topics("cleanup.policy")
    log_segment_bytes: int = _for_topics("segment.bytes")
    log_segment_delete_delay_ms: int = _for_topics("file.delete.delay.ms")
    log_roll_ms: int | None = _for_topics("segment.ms", None)
    log_roll_hours: int = _int(168, "Maximum age of the active segment in hours, if log.roll.ms is unset.", 1)
    log_roll_jitter_ms: int | None = _for_topics("segment.jitter.ms", None)
    log_roll_jitter_hours: int = _int(
        0, "Maximum random reduction of log.roll.hours, in hours, if log.roll.jitter.ms is unset.", 0
    )
    log_retention_ms: int | None = _for_topics("retention.ms", None, any_number=True)
    log_retention_minutes: int | None = _int(None, "Retention time in minutes, if log.retention.ms is unset.")
    log_retention_hours: int = _int(
        168, "Retention time in hours, if log.retention.ms and log.retention.minutes are unset."
    )
    log_retention_bytes: int = _for_topics("retention.bytes")
    log_retention_check_interval_ms: int = _long(300_000, "Interval between checks for segments to delete.", 1)
    log_index_size_max_bytes: int = _for_topics("segment.index.bytes")
    log_index_interval_bytes: int = _for_topics("index.interval.bytes")
    log_preallocate: bool = _for_topics("preallocate")
    log_flush_interval_messages: int = _for_topics("flush.messages")
    log_flush_interval_ms: int | None = _for_topics("flush.ms", None)
    log_flush_scheduler_interval_ms: int = _long(LONG_MAX, "Interval between checks for logs to flush.")
    log_flush_offset_checkpoint_interval_ms: int = _int(60_000, "Interval between checkpoints of recovery points.", 0)
    log_flush_start_offset_checkpoint_interval_ms: int = _int(
        60_000, "Interval between checkpoints of log start offsets.", 0
    )
    log_initial_task_delay_ms: int = _long(
        30_000, "Delay of the log's periodic tasks after the start.", 0, internal=True
    )
    log_dir_failure_timeout_ms: int = _long(
        30_000, "Accepted without effect: a failed directory goes offline immediately.", 1
    )
    log_message_timestamp_type: str = _for_topics("message.timestamp.type")
    log_message_timestamp_before_max_ms: int = _for_topics("message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = _for_topics("message.timestamp.after.max.ms")
    num_recovery_threads_per_data_dir: int = _int(
        2, "Maximum number of logs recovered concurrently.", 1, update_mode=CLUSTER
    )
    num_replica_alter_log_dirs_threads: int | None = _int(
        None,
        "Maximum number of logs moved concurrently between data directories. Default: the number of data directories.",
        1,
    )
    log_cleaner_enable: bool = _boolean(True, "Whether the broker compacts logs.")
    log_cleaner_threads: int = _int(1, "Maximum number of logs compacted concurrently.", 0, update_mode=CLUSTER)
    log_cleaner_io_max_bytes_per_second: float = option(
        ConfigType.DOUBLE,
        1.7976931348623157e308,
        "Maximum bytes per second that compaction reads and writes.",
        update_mode=CLUSTER,
    )
    log_cleaner_dedupe_buffer_size: int = _long(
        134_217_728, "Memory for the map of keys in compaction, in bytes.", update_mode=CLUSTER
    )
    log_cleaner_io_buffer_size: int = _int(
        524_288, "Memory for reading and writing records in compaction, in bytes.", 0, update_mode=CLUSTER
    )
    log_cleaner_io_buffer_load_factor: float = option(
        ConfigType.DOUBLE, 0.9, "Maximum load factor of the map of keys in compaction.", update_mode=CLUSTER
    )
    log_cleaner_backoff_ms: int = _long(
        15_000, "Time that the cleaner waits when no log needs compaction.", 0, update_mode=CLUSTER
    )
    log_cleaner_min_cleanable_ratio: float = _for_topics("min.cleanable.dirty.ratio")
    log_cleaner_delete_retention_ms: int = _for_topics("delete.retention.ms")
    log_cleaner_min_compaction_lag_ms: int = _for_topics("min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = _for_topics("max.compaction.lag.ms")


ASSIGNORS: Final = {
    "uniform": "uniform",
    "range": "range",
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Assignors of the consumer protocol by their names in ``group.consumer.assignors``."""

_POLICIES: Final = ("bidirectional", "disabled", "downgrade", "upgrade")


def _check_assignors(names: tuple[str, ...]) -> None:
    if not names:
        raise ValueError("must not be empty")
    for name in names:
        if name not in ASSIGNORS:
            raise ValueError(f"unknown assignor {name}: use uniform or range; this broker loads no other assignors")
    if len({ASSIGNORS[name] for name in names}) < len(names):
        raise ValueError("names an assignor twice")


def _check_policy(policy: str) -> None:
    if policy.lower() not in _POLICIES:
        raise ValueError(f"must be one of {', '.join(_POLICIES)}")


class GroupOptions(Options):
    """Consumer groups and committed offsets."""

    group_min_session_timeout_ms: int = _int(6000, "Minimum session timeout of a classic member.", 0)
    group_max_session_timeout_ms: int = _int(1_800_000, "Maximum session timeout of a classic member.")
    group_initial_rebalance_delay_ms: int = _int(
        3000, "Time that the first rebalance of a group waits for more members.", 0
    )
    group_max_size: int = _int(INT_MAX, "Maximum number of members in a classic group.", 1)
    group_max_promised_members: int = _int(
        10_000,
        "Maximum number of member ids that a group has issued and whose members have not joined yet. Kafka has no such"
        " limit.",
        1,
    )
    group_consumer_session_timeout_ms: int = _int(45_000, "Session timeout of members in the consumer protocol.", 1)
    group_consumer_heartbeat_interval_ms: int = _int(
        5_000, "Heartbeat interval of members in the consumer protocol.", 1
    )
    group_consumer_min_session_timeout_ms: int = _int(45_000, "Minimum of a group's consumer.session.timeout.ms.", 1)
    group_consumer_max_session_timeout_ms: int = _int(60_000, "Maximum of a group's consumer.session.timeout.ms.", 1)
    group_consumer_min_heartbeat_interval_ms: int = _int(
        5_000, "Minimum of a group's consumer.heartbeat.interval.ms.", 1
    )
    group_consumer_max_heartbeat_interval_ms: int = _int(
        15_000, "Maximum of a group's consumer.heartbeat.interval.ms.", 1
    )
    group_consumer_max_size: int = _int(INT_MAX, "Maximum number of members in a group of the consumer protocol.", 1)
    group_consumer_assignors: tuple[str, ...] = _list(
        ("uniform", "range"),
        "Assignors that members of the consumer protocol may select. The first one is the default. Kafka's class names"
        " of the two assignors are valid too.",
        check=_check_assignors,
    )
    group_consumer_migration_policy: str = _text(
        "bidirectional",
        "Allowed changes of the protocol of a group with members: upgrade (classic to consumer), downgrade (consumer to"
        " classic), bidirectional or disabled.",
        check=_check_policy,
    )
    group_consumer_assignment_interval_ms: int = _int(
        1_000,
        "Minimum interval between computations of a group's assignment in the consumer protocol. One computation covers"
        " all members that join or leave within it.",
        0,
        update_mode=CLUSTER,
    )
    group_consumer_min_assignment_interval_ms: int = _int(0, "Minimum of a group's consumer.assignment.interval.ms.", 0)
    group_consumer_max_assignment_interval_ms: int = _int(
        15_000, "Maximum of a group's consumer.assignment.interval.ms.", 0
    )
    group_consumer_regex_refresh_interval_ms: int = _int(
        600_000,
        "Maximum interval between evaluations of a group's regular expressions, since permissions of members may"
        " change. A change of the topics also triggers an evaluation.",
        10_000,
        internal=True,
    )
    offset_metadata_max_bytes: int = _int(4096, "Maximum length of the metadata of a committed offset.", 0)
    offsets_retention_minutes: int = _int(10_080, "Retention time of the offsets of an empty group.", 1)
    offsets_retention_check_interval_ms: int = _long(600_000, "Interval between checks for expired offsets.", 1)
    offsets_topic_num_partitions: int = _int(
        50, "Number of partitions of __consumer_offsets. Do not change it after the topic exists.", 1
    )
    offsets_topic_replication_factor: int = option(
        ConfigType.SHORT,
        1,
        "Replication factor of __consumer_offsets. Kafka's default is 3; its sample file sets 1 for a single node.",
        minimum=1,
    )
    offsets_topic_segment_bytes: int = _int(104_857_600, "Segment size of __consumer_offsets.", 1_048_576)
    offsets_topic_compression_codec: int = _int(
        0, "Compression codec number of __consumer_offsets. 0: no compression.", 0, maximum=4
    )
    offsets_load_buffer_size: int = _int(5_242_880, "Bytes per read when a coordinator loads a partition.", 1)
    offsets_commit_timeout_ms: int = _int(5000, "Time that an offset commit waits for replication.", 1)


class TransactionOptions(Options):
    """Producer ids and transactions."""

    producer_id_expiration_ms: int = _int(
        86_400_000, "Retention time of an idle producer's state.", 1, update_mode=CLUSTER
    )
    producer_id_expiration_check_interval_ms: int = _int(
        600_000, "Interval between checks for idle producers.", 1, internal=True
    )
    transactional_id_expiration_ms: int = _int(604_800_000, "Retention time of an idle transactional id.", 1)
    transaction_max_timeout_ms: int = _int(900_000, "Maximum transaction timeout.", 1)
    transaction_state_log_num_partitions: int = _int(
        50, "Number of partitions of __transaction_state. Do not change it after the topic exists.", 1
    )
    transaction_state_log_replication_factor: int = option(
        ConfigType.SHORT,
        1,
        "Replication factor of __transaction_state. Kafka's default is 3; its sample file sets 1 for a single node.",
        minimum=1,
    )
    transaction_state_log_min_isr: int = _int(
        1, "min.insync.replicas of __transaction_state. Kafka's default is 2; its sample file sets 1.", 1
    )
    transaction_state_log_segment_bytes: int = _int(104_857_600, "Segment size of __transaction_state.", 1)
    transaction_state_log_load_buffer_size: int = _int(
        5_242_880, "Bytes per read when a coordinator loads a partition of __transaction_state.", 1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _int(
        10_000, "Interval between checks for transactions that exceed their timeouts.", 1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _int(
        3_600_000, "Interval between checks for idle transactional ids.", 1
    )
    transaction_partition_verification_enable: bool = _boolean(
        True,
        "Ask the coordinator whether a partition takes part in a transaction before the first append (KIP-890).",
        update_mode=CLUSTER,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = _int(
        100, "Time that a partition waits to join a transaction while the one before is being completed.", 0
    )
