"""The options that this broker reads, by area: Kafka's names with underscores for dots, Kafka's defaults unless said.

Every field is one option; its definition (type, limits, words) is in the field's metadata. Options that set the default
of a topic's configuration take type, limits and words from the topic's (`triokafka.broker_stub.log.config`).
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
    """A dataclass field that is an option; its name comes from the attribute, in `definition_of_field`."""

    def define(name: str) -> ConfigDefinition:
        return ConfigDefinition(name, config_type, default, documentation, **limits)

    return field(default=default, metadata={_DEFINITION: define})


def definition_of_field(name: str, metadata: Any) -> ConfigDefinition | None:
    """The definition that a dataclass field carries, under its dotted name; None for a field that is no option."""
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


def _for_topics(topic_key: str, default: Any = _UNSET, *, config_type: ConfigType | None = None) -> Any:
    """An option that gives the default of a topic's ``topic_key``; ``default`` where it is not the topic's own."""
    topic = log_config.DEFINITIONS[topic_key]

    def check(value: Any) -> None:
        reason = topic.check(value)
        if reason:
            raise ValueError(reason)

    return option(
        config_type or topic.type,
        topic.default if default is _UNSET else default,
        f"The default of {topic_key} of topics. {topic.doc}",
        update_mode=CLUSTER,
        check=check,
    )


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Options:
    """Base of classes whose fields are options: given by name, immutable, and equal where all values are.

    The fields are a dataclass's. What that would write for more than a hundred of them takes 8 ms to compile, and a
    broker starts in 200.

    Raises:
        ConfigurationError: there is no such option; names the nearest one.
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
        """Refuse values that cannot be. Raises `ConfigurationError`."""

    def _fields(self) -> Mapping[str, Field[Any]]:
        found: Mapping[str, Field[Any]] = cast(Any, self).__dataclass_fields__
        return found

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._fields())

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to {name!r}: options do not change, dataclasses.replace makes others")

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
    """Who this node is and where it listens."""

    node_id: int = _int(1, "The node's number; unique in the cluster. Kafka has no default for it.", 0)
    process_roles: tuple[str, ...] = _list(
        ("broker", "controller"), "What the node does. One process does both here.", choices=("broker", "controller")
    )
    broker_rack: str | None = _text(None, "The rack that the broker stands in, for the placement of replicas.")
    listeners: tuple[str, ...] = _list(
        ("PLAINTEXT://:9092",), "Where the broker listens, as NAME://host:port; port 0 takes a free one."
    )
    advertised_listeners: tuple[str, ...] | None = _list(
        None, "What clients are told to connect to, where it is not what the broker listens on."
    )
    listener_security_protocol_map: tuple[str, ...] = _list(
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        "The security protocol of each listener, as NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = _text(None, "The listener on which brokers talk to each other.")
    controller_listener_names: tuple[str, ...] = _list(
        ("CONTROLLER",), "Listeners of the controller. They are not opened: the controller is in this process."
    )
    controller_quorum_voters: tuple[str, ...] = _list((), "The controllers, as id@host:port; here at most this node.")
    controller_quorum_bootstrap_servers: tuple[str, ...] = _list((), "Addresses of controllers; not used here.")
    broker_heartbeat_interval_ms: int = _int(2000, "How often a broker tells the controller that it is alive.", 1)
    broker_session_timeout_ms: int = _int(9000, "How long the controller waits for a heartbeat before it fences.", 1)
    initial_broker_registration_timeout_ms: int = _int(60_000, "How long a starting broker tries to register.", 1)


class NetworkOptions(Options):
    """Connections and requests."""

    num_network_threads: int = _int(3, "Accepted; connections are tasks here, not threads.", 1, update_mode=CLUSTER)
    num_io_threads: int = _int(8, "How many requests are worked on at the same time.", 1, update_mode=CLUSTER)
    background_threads: int = _int(10, "Accepted; background work is tasks here.", 1, update_mode=CLUSTER)
    queued_max_requests: int = _int(500, "Requests that may wait for their turn before reading stops.", 1)
    queued_max_request_bytes: int | None = _long(
        None,
        "Bytes of requests in memory before reading stops; -1: no limit. Unset: an eighth of the memory that the broker"
        " may use, at most 192 MiB, and at least socket.request.max.bytes.",
    )
    queued_request_stall_timeout_ms: int = _int(
        10_000, "While requests wait for memory, one that makes no progress for so long loses its connection.", 1
    )
    queued_max_response_bytes: int = _long(
        67_108_864,
        "Bytes of encoded answers that clients have yet to read; beyond it, the connection whose answer waits longest"
        " is closed. -1: no limit. Records in files take no memory and do not count.",
    )
    num_validation_threads: int = _int(
        2, "Threads that look into compressed batches at the same time, beside one for very large batches.", 1
    )
    quota_window_num: int = _int(11, "Windows that the rate of a client with a quota is taken over.", 1)
    quota_window_size_seconds: int = _int(1, "How long one of these windows is.", 1)
    controller_quota_window_num: int = _int(11, "Windows for which a client may save up controller mutations.", 1)
    controller_quota_window_size_seconds: int = _int(1, "How long one of these windows is.", 1)
    socket_request_max_bytes: int = _int(104_857_600, "The largest request; a larger one closes its connection.", 1)
    socket_send_buffer_bytes: int = _int(102_400, "Size of the kernel's send buffer; -1: as the system has it.", -1)
    socket_receive_buffer_bytes: int = _int(  # a batch of a hundred kilobytes would come in a dozen pieces
        -1, "Size of the kernel's receive buffer; -1, unlike Kafka's 102400, leaves it to the system to tune.", -1
    )
    socket_listen_backlog_size: int = _int(
        4096,
        "Connections that may wait to be accepted; the system may allow fewer (net.core.somaxconn). "
        "Kafka's default is 50.",
        1,
    )
    max_connections: int = _int(INT_MAX, "Connections at the same time.", 0, update_mode=CLUSTER)
    max_connections_per_ip: int = _int(INT_MAX, "Connections from one address.", 0, update_mode=CLUSTER)
    max_connections_per_ip_overrides: str = _text(
        "", "Connections from some addresses, as host:number,host:number.", update_mode=CLUSTER
    )
    max_connection_creation_rate: int = _int(INT_MAX, "New connections in a second.", 0, update_mode=CLUSTER)
    connections_max_idle_ms: int = _long(600_000, "A connection that is idle for this long is closed.")
    connection_failed_authentication_delay_ms: int = _int(100, "How long a failed authentication waits.", 0)
    request_timeout_ms: int = _int(30_000, "How long requests between brokers may take.")
    fetch_max_bytes: int = _int(57_671_680, "The most bytes in the answer to one fetch.", 1024)
    max_incremental_fetch_session_cache_slots: int = _int(1000, "Fetch sessions that are kept.", 0)
    max_request_partition_size_limit: int = _int(2000, "Partitions in one answer of DescribeTopicPartitions.", 1)
    fetch_purgatory_purge_interval_requests: int = _int(1000, "Finished fetches that may wait to be cleared away.")
    producer_purgatory_purge_interval_requests: int = _int(1000, "Finished produces that may wait to be cleared.")
    delete_records_purgatory_purge_interval_requests: int = _int(1, "The same for the deletion of records.")


class TopicOptions(Options):
    """Topics and their replicas."""

    auto_create_topics_enable: bool = _boolean(True, "Whether asking for an unknown topic creates it.")
    delete_topic_enable: bool = _boolean(True, "Whether topics may be deleted.")
    create_topic_policy_class_name: str | None = _class(
        "Decides which topics may be created: a class, as module:Class."
    )
    alter_config_policy_class_name: str | None = _class("Decides which values may be set: a class, as module:Class.")
    num_partitions: int = _int(1, "Partitions of a topic that is created without saying how many.", 1)
    default_replication_factor: int = _int(1, "Replicas of a topic that is created without saying how many.", 1)
    min_insync_replicas: int = _for_topics("min.insync.replicas")
    unclean_leader_election_enable: bool = _for_topics("unclean.leader.election.enable")
    auto_leader_rebalance_enable: bool = _boolean(True, "Whether preferred replicas are made leaders again.")
    leader_imbalance_check_interval_seconds: int = _long(300, "How often the balance of leaders is checked.", 1)
    replica_lag_time_max_ms: int = _long(30_000, "A follower that was not caught up for this long leaves the ISR.")
    replica_fetch_max_bytes: int = _int(1_048_576, "Bytes of one partition in one fetch of a follower.", 0)
    replica_fetch_min_bytes: int = _int(1, "Bytes that a follower's fetch waits for.")
    replica_fetch_wait_max_ms: int = _int(500, "How long a follower's fetch waits for them.")
    replica_fetch_response_max_bytes: int = _int(10_485_760, "Bytes of a whole fetch of a follower.", 0)
    replica_fetch_backoff_ms: int = _int(1000, "How long a follower rests after a failed fetch.", 0)
    replica_high_watermark_checkpoint_interval_ms: int = _long(5000, "How often high watermarks are written down.")
    num_replica_fetchers: int = _int(1, "Fetchers for each leader.", 1, update_mode=CLUSTER)


class LogOptions(Options):
    """Where and how records are kept."""

    log_dir: tuple[str, ...] = _list(("/tmp/kafka-logs",), "The data directory, where log.dirs is not given.")
    log_dirs: tuple[str, ...] | None = _list(None, "The data directories.")
    metadata_log_dir: str | None = _text(
        None, "The directory of the metadata log; by default the first data directory."
    )
    metadata_log_segment_bytes: int = _int(1_073_741_824, "Segment size of the metadata log.", 8 * 1024 * 1024)
    metadata_log_segment_ms: int = _long(604_800_000, "Age at which a segment of the metadata log is closed.")
    metadata_log_max_record_bytes_between_snapshots: int = _long(
        20_971_520, "Bytes in the metadata log after which a snapshot is taken.", 1
    )
    metadata_log_max_snapshot_interval_ms: int = _long(
        3_600_000, "How long after a snapshot the next one is taken, if anything has changed; 0: not by time.", 0
    )
    metadata_max_retention_bytes: int = _long(
        104_857_600, "Bytes of metadata log and snapshots above which the oldest go; -1: no limit."
    )
    metadata_max_retention_ms: int = _long(604_800_000, "Age at which a metadata snapshot goes; -1: never.")
    message_max_bytes: int = _for_topics("max.message.bytes")
    compression_type: str = _for_topics("compression.type")
    compression_gzip_level: int = _for_topics("compression.gzip.level")
    compression_lz4_level: int = _for_topics("compression.lz4.level")
    compression_zstd_level: int = _for_topics("compression.zstd.level")
    log_cleanup_policy: tuple[str, ...] = _for_topics("cleanup.policy")
    log_segment_bytes: int = _for_topics("segment.bytes")
    log_segment_delete_delay_ms: int = _for_topics("file.delete.delay.ms")
    log_roll_ms: int | None = _for_topics("segment.ms", None)
    log_roll_hours: int = _int(168, "The same in hours, where log.roll.ms is not given.", 1)
    log_roll_jitter_ms: int | None = _for_topics("segment.jitter.ms", None)
    log_roll_jitter_hours: int = _int(0, "The same in hours, where log.roll.jitter.ms is not given.", 0)
    log_retention_ms: int | None = _for_topics("retention.ms", None)
    log_retention_minutes: int | None = _int(None, "The same in minutes, where log.retention.ms is not given.")
    log_retention_hours: int = _int(168, "The same in hours, where neither is given.")
    log_retention_bytes: int = _for_topics("retention.bytes")
    log_retention_check_interval_ms: int = _long(300_000, "How often old segments are looked for.", 1)
    log_index_size_max_bytes: int = _for_topics("segment.index.bytes")
    log_index_interval_bytes: int = _for_topics("index.interval.bytes")
    log_preallocate: bool = _for_topics("preallocate")
    log_flush_interval_messages: int = _for_topics("flush.messages")
    log_flush_interval_ms: int | None = _for_topics("flush.ms", None)
    log_flush_scheduler_interval_ms: int = _long(LONG_MAX, "How often the flusher looks for logs to sync.")
    log_flush_offset_checkpoint_interval_ms: int = _int(60_000, "How often recovery points are written down.", 0)
    log_flush_start_offset_checkpoint_interval_ms: int = _int(60_000, "How often start offsets are written down.", 0)
    log_initial_task_delay_ms: int = _long(
        30_000, "How long the log's periodic tasks wait after the start.", 0, internal=True
    )
    log_dir_failure_timeout_ms: int = _long(30_000, "Accepted; a failed directory is taken offline at once.", 1)
    log_message_timestamp_type: str = _for_topics("message.timestamp.type")
    log_message_timestamp_before_max_ms: int = _for_topics("message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = _for_topics("message.timestamp.after.max.ms")
    num_recovery_threads_per_data_dir: int = _int(
        2, "Logs that are recovered at the same time.", 1, update_mode=CLUSTER
    )
    num_replica_alter_log_dirs_threads: int | None = _int(
        None,
        "Logs that are moved between data directories at a time; as many as there are directories if unset.",
        1,
    )
    log_cleaner_enable: bool = _boolean(True, "Whether compaction runs.")
    log_cleaner_threads: int = _int(1, "Logs that are compacted at the same time.", 0, update_mode=CLUSTER)
    log_cleaner_io_max_bytes_per_second: float = option(
        ConfigType.DOUBLE, 1.7976931348623157e308, "The most that compaction reads and writes.", update_mode=CLUSTER
    )
    log_cleaner_dedupe_buffer_size: int = _long(
        134_217_728, "Memory for the keys of a compaction.", update_mode=CLUSTER
    )
    log_cleaner_io_buffer_size: int = _int(524_288, "Memory for the records of a compaction.", 0, update_mode=CLUSTER)
    log_cleaner_io_buffer_load_factor: float = option(
        ConfigType.DOUBLE, 0.9, "How full the memory for keys may get.", update_mode=CLUSTER
    )
    log_cleaner_backoff_ms: int = _long(
        15_000, "How long the cleaner rests with nothing to do.", 0, update_mode=CLUSTER
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
"""The assignors of the consumer protocol, by the names that ``group.consumer.assignors`` may give them."""

_POLICIES: Final = ("bidirectional", "disabled", "downgrade", "upgrade")


def _check_assignors(names: tuple[str, ...]) -> None:
    if not names:
        raise ValueError("must not be empty")
    for name in names:
        if name not in ASSIGNORS:
            raise ValueError(
                f"there is no assignor {name}; there are uniform and range, and no others can be plugged in"
            )
    if len({ASSIGNORS[name] for name in names}) < len(names):
        raise ValueError("an assignor is there twice")


def _check_policy(policy: str) -> None:
    if policy.lower() not in _POLICIES:
        raise ValueError(f"must be one of {', '.join(_POLICIES)}")


class GroupOptions(Options):
    """Consumer groups and committed offsets."""

    group_min_session_timeout_ms: int = _int(6000, "The shortest session timeout that a member may ask for.", 0)
    group_max_session_timeout_ms: int = _int(1_800_000, "The longest session timeout that a member may ask for.")
    group_initial_rebalance_delay_ms: int = _int(3000, "How long the first rebalance of a group waits for members.", 0)
    group_max_size: int = _int(INT_MAX, "Members in a group.", 1)
    group_max_promised_members: int = _int(
        10_000,
        "Ids that a group has given out to members that have not joined with them yet. Ours; Kafka has no bound.",
        1,
    )
    group_consumer_session_timeout_ms: int = _int(
        45_000, "How long a member under the consumer protocol may be silent.", 1
    )
    group_consumer_heartbeat_interval_ms: int = _int(
        5_000, "How often a member under the consumer protocol is to be heard of.", 1
    )
    group_consumer_min_session_timeout_ms: int = _int(45_000, "The least that a group's configuration may say.", 1)
    group_consumer_max_session_timeout_ms: int = _int(60_000, "The most that a group's configuration may say.", 1)
    group_consumer_min_heartbeat_interval_ms: int = _int(5_000, "The least that a group's configuration may say.", 1)
    group_consumer_max_heartbeat_interval_ms: int = _int(15_000, "The most that a group's configuration may say.", 1)
    group_consumer_max_size: int = _int(INT_MAX, "Members in a group under the consumer protocol.", 1)
    group_consumer_assignors: tuple[str, ...] = _list(
        ("uniform", "range"),
        "What members under the consumer protocol may ask for; the first is for groups of which none does. Kafka's"
        " class names of the two are taken as well.",
        check=_check_assignors,
    )
    group_consumer_migration_policy: str = _text(
        "bidirectional",
        "Whether groups may change between the classic and the consumer protocol while they have members: upgrade to"
        " consumer, downgrade to classic, bidirectional or disabled.",
        check=_check_policy,
    )
    group_consumer_assignment_interval_ms: int = _int(
        1_000,
        "How often at most the assignment of a group under the consumer protocol is computed anew: members that come"
        " or go together are dealt with together.",
        0,
    )
    group_consumer_regex_refresh_interval_ms: int = _int(
        600_000,
        "How often at least the topics of a group's regular expressions are looked up: the rights of members may have"
        " changed. When topics change, they are anyway.",
        10_000,
        internal=True,
    )
    offset_metadata_max_bytes: int = _int(4096, "The longest text beside a committed offset.", 0)
    offsets_retention_minutes: int = _int(10_080, "How long the offsets of an empty group are kept.", 1)
    offsets_retention_check_interval_ms: int = _long(600_000, "How often old offsets are looked for.", 1)
    offsets_topic_num_partitions: int = _int(50, "Partitions of __consumer_offsets; never change it.", 1)
    offsets_topic_replication_factor: int = option(
        ConfigType.SHORT,
        1,
        "Replicas of __consumer_offsets. Kafka's default is 3; with one node, and in its sample file, it is 1.",
        minimum=1,
    )
    offsets_topic_segment_bytes: int = _int(104_857_600, "Segment size of __consumer_offsets.", 1_048_576)
    offsets_topic_compression_codec: int = _int(0, "Codec of __consumer_offsets, by number; 0 for none.", 0, maximum=4)
    offsets_load_buffer_size: int = _int(5_242_880, "Bytes of offsets that are read at once when loading.", 1)
    offsets_commit_timeout_ms: int = _int(5000, "How long a commit waits to be replicated.", 1)


class TransactionOptions(Options):
    """Producer ids and transactions."""

    producer_id_expiration_ms: int = _int(
        86_400_000, "How long an idle producer's sequence numbers are kept.", 1, update_mode=CLUSTER
    )
    producer_id_expiration_check_interval_ms: int = _int(
        600_000, "How often idle producers are looked for.", 1, internal=True
    )
    transactional_id_expiration_ms: int = _int(604_800_000, "How long an idle transactional id is kept.", 1)
    transaction_max_timeout_ms: int = _int(900_000, "The longest transaction timeout.", 1)
    transaction_state_log_num_partitions: int = _int(50, "Partitions of __transaction_state; never change it.", 1)
    transaction_state_log_replication_factor: int = option(
        ConfigType.SHORT,
        1,
        "Replicas of __transaction_state. Kafka's default is 3; with one node, and in its sample file, it is 1.",
        minimum=1,
    )
    transaction_state_log_min_isr: int = _int(
        1, "min.insync.replicas of __transaction_state. Kafka's default is 2; in its sample file it is 1.", 1
    )
    transaction_state_log_segment_bytes: int = _int(104_857_600, "Segment size of __transaction_state.", 1)
