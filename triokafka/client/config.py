"""Configuration of producer, consumer and admin client: every option with its type, default, bounds and meaning.

Names are Kafka's in snake_case, defaults those of Kafka 4. An unknown name or an impossible value is refused when the
object is created, with the nearest known name or the values that are possible.
"""

# ruff: noqa: RUF009 - option() makes dataclass fields

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Self

from triokafka.client import defaults as profiles
from triokafka.client.checks import (
    DEFAULT_PORT,
    MAX_INT32,
    acks,
    anything,
    bootstrap_addresses,
    choice,
    flag,
    function,
    hook_objects,
    integer,
    items,
    mapping,
    number,
    option,
    serializer,
    text,
)
from triokafka.client.option_names import unknown_option
from triokafka.client.serializers import Deserializer, Serializer
from triokafka.errors import ConfigurationError
from triokafka.hooks import HookChain, Hooks
from triokafka.network.config import NetworkConfig, StreamFactory


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Options of every client."""

    KIND: ClassVar[str] = "client"

    bootstrap_servers: tuple[tuple[str, int], ...] = option(
        (("localhost", DEFAULT_PORT),),
        bootstrap_addresses,
        "Brokers to ask first, as 'host:port', several with commas, or a list. The others are found through them.",
    )
    client_id: str | None = option(
        None, text(optional=True), "Name in request headers and broker logs; made up when None."
    )
    security_protocol: str = option(
        "PLAINTEXT", choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), "How connections are protected."
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        choice("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "Every address that a name resolves to is tried (KIP-302). The second also takes the names that the addresses"
        " of bootstrap servers are known by for what they must prove to be (KIP-235).",
    )
    request_timeout_ms: float = option(30_000, number(1, MAX_INT32), "How long a broker may take to answer a request.")
    retry_backoff_ms: float = option(100, number(0), "Wait before the first retry; doubles with each (KIP-580).")
    retry_backoff_max_ms: float = option(1_000, number(0), "Longest wait between retries.")
    reconnect_backoff_ms: float = option(50, number(0), "Wait before connecting again; doubles with each failure.")
    reconnect_backoff_max_ms: float = option(1_000, number(0), "Longest wait before connecting again.")
    socket_connection_setup_timeout_ms: float = option(
        10_000, number(1), "How long connecting to one address may take; doubles with each failure (KIP-601)."
    )
    socket_connection_setup_timeout_max_ms: float = option(30_000, number(1), "Longest time for connecting.")
    connections_max_idle_ms: float = option(
        540_000, number(-1), "Connections without use for this long are closed; -1 keeps them."
    )
    connections_max_silence_ms: float = option(
        9_000,
        number(-1),
        "A connection that owes an answer, and brings nothing for this long, is closed if the broker answers over a"
        " fresh connection or another broker can be asked; -1 waits for request_timeout_ms.",
    )
    send_buffer_bytes: int = option(
        -1, integer(-1), "Size of the kernel's send buffer; -1, unlike Java's 131072, leaves it to the system to tune."
    )
    receive_buffer_bytes: int = option(
        -1, integer(-1), "The same of the receive buffer; -1, unlike Java's 65536, leaves it to the system to tune."
    )
    stream_factory: StreamFactory | None = option(
        None,
        function(),
        "Makes connections its own way, through a proxy for instance: async, from host and port to a trio.abc.Stream.",
    )
    metadata_max_age_ms: float = option(300_000, number(0), "Metadata is refreshed at least this often.")
    metadata_max_idle_ms: float = option(300_000, number(5_000), "Topics not used for this long are forgotten.")
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        choice("rebootstrap", "none"),
        "What to do when no known broker can be reached: ask bootstrap_servers again (KIP-899), or keep trying.",
    )
    metadata_recovery_rebootstrap_trigger_ms: float = option(
        300_000, number(0), "Ask bootstrap_servers again when metadata could not be refreshed for this long (KIP-1102)."
    )
    receive_message_max_bytes: int = option(
        256 << 20, integer(1024), "Largest response that is accepted; a larger one ends the connection."
    )
    close_timeout_ms: float = option(30_000, number(0), "Longest time that leaving the async with block may take.")
    hooks: tuple[Hooks, ...] = option(
        (), hook_objects, "A Hooks object, or several, which get events of connections, requests, batches and failures."
    )

    given: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The options as the user gave them; all others are defaults."""

    PROFILES: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Check the given options and fill in defaults. Raises `ConfigurationError`, which names the valid values."""
        known = {f.name: f for f in cls._options()}
        checked: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                others = {kind.KIND: [f.name for f in kind._options()] for kind in ClientOptions.__subclasses__()}
                raise ConfigurationError(unknown_option(cls.KIND, name, known, others))
            checked[name] = known[name].metadata["check"](name, value)
        profile = cls.PROFILES.get(checked.get("defaults", ""), {})
        return cls(**{**profile, **checked}, given=dict(given))

    @classmethod
    def _options(cls) -> list[Field[Any]]:
        return [f for f in fields(cls) if "check" in f.metadata]

    @classmethod
    def describe(cls) -> list[tuple[str, Any, str]]:
        """Return name, default and meaning of every option, in order, for the reference documentation."""
        return [(f.name, f.default, f.metadata["doc"]) for f in cls._options()]

    def __post_init__(self) -> None:
        for name in ("retry_backoff", "reconnect_backoff", "socket_connection_setup_timeout"):
            self._order(f"{name}_ms", f"{name}_max_ms")

    def _order(self, low: str, high: str) -> None:
        """Refuse ``low`` above ``high``; an option that the user did not give follows the other."""
        if getattr(self, low) <= getattr(self, high):
            return
        if low in self.given and high in self.given:
            raise ConfigurationError(
                f"{low}={getattr(self, low)} is above {high}={getattr(self, high)}: lower the one or raise the other"
            )
        follows, leads = (low, high) if high in self.given else (high, low)
        object.__setattr__(self, follows, getattr(self, leads))

    def network(self, *, client_id: str, **more: Any) -> NetworkConfig:
        """Return the options of the network client."""
        names = {f.name for f in fields(NetworkConfig)}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name in names}
        hooks = HookChain(self.hooks)
        return NetworkConfig(**{**values, "client_id": self.client_id or client_id, "hooks": hooks, **more})


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(ClientOptions):
    """Producer configuration."""

    KIND: ClassVar[str] = "producer"
    PROFILES: ClassVar[Mapping[str, Mapping[str, Any]]] = profiles.PRODUCER

    defaults: str = option(
        "kafka-4",
        choice(*profiles.PRODUCER),
        "Which defaults hold for options that are not given: 'kafka-0.10' is acks=1, retries=0, linger_ms=0, no"
        " idempotence, no growing back-off, delivery_timeout_ms=30000.",
    )
    key_serializer: Serializer[Any] | Callable[..., Any] | str | None = option(
        None,
        serializer(Serializer),
        "Turns a key into bytes: a Serializer, a class of it, a function, or 'module:Name'. None: keys are bytes.",
    )
    value_serializer: Serializer[Any] | Callable[..., Any] | str | None = option(
        None,
        serializer(Serializer),
        "Turns a value into bytes: a Serializer, a class of it, a function, or 'module:Name'. None: values are bytes.",
    )
    acks: int = option(
        -1,
        acks,
        "Replicas that must have a record before it is acknowledged: 0 none, 1 the leader, 'all' the in-sync ones.",
    )
    enable_idempotence: bool | None = option(
        None,
        lambda name, value: None if value is None else flag()(name, value),
        "Each record exactly once and in order in spite of retries. None: on unless other options rule it out.",
    )
    compression_type: str = option("none", choice("none", "gzip", "snappy", "lz4", "zstd"), "Codec of the batches.")
    compression_level: int | None = option(
        None,
        lambda name, value: None if value is None else integer(-131_072, 22)(name, value),
        "Level of the codec; None is the codec's own default (KIP-390).",
    )
    batch_size: int = option(16_384, integer(0, 64 << 20), "Bytes of records after which a batch is full.")
    linger_ms: float = option(5, number(0), "How long a batch that is not full waits for more records.")
    buffer_memory: int = option(
        32 << 20, integer(1, 1 << 40), "Bytes of all batches that are not acknowledged yet; then send waits."
    )
    max_block_ms: float = option(60_000, number(0), "How long send waits for metadata and buffer space together.")
    max_request_size: int = option(1_048_576, integer(1), "Largest record, and largest request, in bytes.")
    max_in_flight_requests_per_connection: int = option(
        5, integer(1), "Requests to one broker that may be unanswered at a time."
    )
    retries: int = option(MAX_INT32, integer(0), "How often a batch is sent again; delivery_timeout_ms bounds it too.")
    delivery_timeout_ms: float = option(
        120_000, number(0), "A record is acknowledged or has failed this long after send returned (KIP-91)."
    )
    close_stall_timeout_ms: float = option(
        1_000,
        number(0),
        "When the async with block is left by cancellation or an exception: longest wait for one acknowledgement after"
        " the other. What is left then has failed.",
    )
    partitioner: Any = option(
        None, anything(), "A Partitioner. None: by murmur2 of the key as Java does, sticky for records without key."
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        True, flag(), "Records without key go less often to partitions with long queues (KIP-794)."
    )
    partitioner_availability_timeout_ms: float = option(
        0, number(0), "Records without key avoid a broker that took no batches for this long (KIP-794); 0 avoids none."
    )
    partitioner_ignore_keys: bool = option(False, flag(), "Spread records with keys like those without (KIP-794).")
    interceptors: tuple[Any, ...] = option(
        (), items(), "ProducerInterceptor objects, classes, or 'module:Name', called in order (KIP-42)."
    )
    plugin_options: Mapping[str, Any] | None = option(
        None,
        mapping(),
        "More names and values for configure() of serializers, interceptors, partitioner.",
    )
    on_delivery: Callable[..., None] | None = option(
        None,
        function(),
        "Called as (metadata, error) for every record sent without on_delivery, in a background task; must not block.",
    )
    allow_auto_create_topics: bool = option(True, flag(), "Let the broker create unknown topics, if it does that.")

    idempotent: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        conflicts = []
        if self.acks != -1:
            conflicts.append(f"acks={self.acks} (needs 'all')")
        if self.max_in_flight_requests_per_connection > 5:
            conflicts.append(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection} (at most 5)"
            )
        if self.retries == 0:
            conflicts.append("retries=0 (needs retries)")
        if self.enable_idempotence and conflicts:
            raise ConfigurationError(
                "enable_idempotence=True cannot be combined with "
                + " and ".join(conflicts)
                + "; change them, or leave enable_idempotence out"
            )
        object.__setattr__(self, "idempotent", self.enable_idempotence is not False and not conflicts)
        shortest = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < shortest:
            if "delivery_timeout_ms" in self.given:
                raise ConfigurationError(
                    f"delivery_timeout_ms={self.delivery_timeout_ms} must be at least linger_ms + request_timeout_ms ="
                    f" {shortest}; raise it, or lower request_timeout_ms"
                )
            object.__setattr__(self, "delivery_timeout_ms", shortest)
        if self.compression_level is not None and self.compression_type == "none":
            raise ConfigurationError(
                f"compression_level={self.compression_level} needs a compression_type; it is 'none'"
            )
        if self.batch_size > self.buffer_memory:
            raise ConfigurationError(
                f"batch_size={self.batch_size} is more than buffer_memory={self.buffer_memory}, so that not one batch"
                " could be made: lower batch_size, or raise buffer_memory"
            )
        if self.max_request_size > self.buffer_memory and {"max_request_size", "buffer_memory"} <= {*self.given}:
            raise ConfigurationError(
                f"max_request_size={self.max_request_size} is more than buffer_memory={self.buffer_memory}: a record of"
                " that size could never be buffered; lower max_request_size, or raise buffer_memory"
            )
        if self.partitioner is not None and self.partitioner_ignore_keys:
            raise ConfigurationError(
                "partitioner_ignore_keys=True is for the built-in one, which partitioner= replaces; leave one out"
            )


_DECIDED_BY_THE_BROKER = {
    "session_timeout_ms": "set group.consumer.session.timeout.ms there, or consumer.session.timeout.ms of the group",
    "heartbeat_interval_ms": "set group.consumer.heartbeat.interval.ms there, or consumer.heartbeat.interval.ms of the"
    " group",
    "partition_assignment_strategy": "name one of its assignors with group_remote_assignor",
}


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """Consumer configuration."""

    KIND: ClassVar[str] = "consumer"
    PROFILES: ClassVar[Mapping[str, Mapping[str, Any]]] = profiles.CONSUMER

    defaults: str = option(
        "kafka-4",
        choice(*profiles.CONSUMER),
        "Which defaults hold for options that are not given: 'kafka-0.10' is a session of 30 s, range assignment, all"
        " records at once, request_timeout_ms=40000.",
    )

    group_id: str | None = option(None, text(optional=True), "Consumer group; None consumes without one.")
    group_instance_id: str | None = option(
        None, text(optional=True), "Name that survives restarts: a static member (KIP-345)."
    )
    group_protocol: str = option("classic", choice("classic", "consumer"), "Group membership protocol (KIP-848).")
    group_remote_assignor: str | None = option(
        None,
        text(optional=True),
        "With group_protocol='consumer': the assignor that the group's coordinator shall use, 'uniform' or 'range' in"
        " Kafka; None leaves the choice to it.",
    )
    key_deserializer: Deserializer[Any] | Callable[..., Any] | str | None = option(
        None,
        serializer(Deserializer),
        "Turns key bytes into an object: a Deserializer, a class of it, a function, or 'module:Name'.",
    )
    value_deserializer: Deserializer[Any] | Callable[..., Any] | str | None = option(
        None,
        serializer(Deserializer),
        "Turns value bytes into an object: a Deserializer, a class of it, a function, or 'module:Name'.",
    )
    deserialization_error_policy: str = option(
        "raise",
        choice("raise", "skip", "raw"),
        "What becomes of a record that a deserializer cannot read: the call raises, and the position stays; it is"
        " passed over, with a warning; or it is handed out with UndeserializedBytes where the key or value would be.",
    )
    corrupt_batch_policy: str = option(
        "raise",
        choice("raise", "skip"),
        "What becomes of a batch whose bytes are damaged: the call raises, and the position stays; or it is passed"
        " over, with a warning.",
    )
    auto_offset_reset: str = option(
        "latest",
        choice("latest", "earliest", "none"),
        "Where to start without a committed offset, or when it is out of range.",
    )
    enable_auto_commit: bool = option(True, flag(), "Commit the positions of what was handed out in the background.")
    auto_commit_interval_ms: float = option(5_000, number(0), "Time between such commits.")
    session_timeout_ms: int = option(45_000, integer(1), "A member silent for this long is out of the group.")
    heartbeat_interval_ms: float = option(3_000, number(1), "Time between heartbeats.")
    max_poll_interval_ms: int = option(300_000, integer(1), "A member that asks for no records for this long leaves.")
    max_poll_records: int = option(500, integer(1), "Most records that one poll returns.")
    max_poll_bytes: int = option(
        64 << 20,
        integer(1),
        "Bytes of compressed batches, decompressed, after which one call for records opens no further batch.",
    )
    max_decompressed_batch_bytes: int = option(
        128 << 20,
        integer(1),
        "Most bytes that one batch may decompress to; a larger one raises DecompressedSizeError.",
    )
    fetch_min_bytes: int = option(1, integer(0), "The broker waits until it has this many bytes to send.")
    fetch_max_bytes: int = option(52_428_800, integer(0), "Most bytes of one fetch response.")
    fetch_max_wait_ms: int = option(500, integer(0), "How long the broker waits for fetch_min_bytes.")
    max_partition_fetch_bytes: int = option(1_048_576, integer(0), "Most bytes per partition of a fetch response.")
    prefetch_max_bytes: int = option(
        64 << 20, integer(1), "Bytes fetched ahead of what was handed out, of all partitions; then fetching rests."
    )
    isolation_level: str = option(
        "read_uncommitted",
        choice("read_uncommitted", "read_committed"),
        "Whether records of open and aborted transactions are handed out.",
    )
    partition_assignment_strategy: tuple[Any, ...] = option(
        ("range", "cooperative-sticky"), items(), "Assignors by preference: names, or PartitionAssignor objects."
    )
    check_crcs: bool = option(True, flag(), "Check the checksum of every batch.")
    exclude_internal_topics: bool = option(True, flag(), "Patterns do not match Kafka's own topics.")
    allow_auto_create_topics: bool = option(True, flag(), "Let the broker create topics that are subscribed to.")
    client_rack: str = option("", text(), "Rack of this client, to fetch from replicas nearby (KIP-392).")
    default_api_timeout_ms: float = option(60_000, number(0), "Longest wait of calls without a timeout of their own.")
    interceptors: tuple[Any, ...] = option((), items(), "ConsumerInterceptor objects, called in order (KIP-42).")
    plugin_options: Mapping[str, Any] | None = option(
        None, mapping(), "More names and values for configure() of deserializers."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_protocol == "consumer":
            for name, instead in _DECIDED_BY_THE_BROKER.items():
                if name in self.given:
                    raise ConfigurationError(
                        f"{name} cannot be set with group_protocol='consumer', where the broker decides it: leave it"
                        f" out, and {instead}"
                    )
            return
        if self.group_remote_assignor is not None:
            raise ConfigurationError(
                f"group_remote_assignor={self.group_remote_assignor!r} needs group_protocol='consumer'; with 'classic'"
                " members assign partitions themselves, see partition_assignment_strategy"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigurationError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than"
                f" session_timeout_ms={self.session_timeout_ms}; a third of it is usual"
            )


@dataclass(frozen=True, kw_only=True)
class AdminOptions(ClientOptions):
    """Admin client configuration."""

    KIND: ClassVar[str] = "admin client"

    default_api_timeout_ms: float = option(60_000, number(0), "Longest time of one call, retries included.")
