"""Configuration of producer, consumer and admin client: every option with its type, default, bounds and meaning.

Names are Kafka's in snake_case; defaults are those of Kafka 4. For an unknown name or an invalid value, the constructor
of the client raises `ConfigurationError`, which gives the nearest known name or the valid values.

One module has all clients' options, since most of them are shared: a line or two for each, and the rules between them.
"""

# ruff: noqa: RUF009 - option() makes dataclass fields

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from triokafka.backoff import Backoff
from triokafka.client import defaults as profiles
from triokafka.client.checks import (
    DEFAULT_PORT,
    MAX_INT32,
    acks,
    anything,
    bootstrap_addresses,
    choice,
    credential,
    flag,
    function,
    hook_objects,
    integer,
    items,
    mapping,
    number,
    option,
    reporter_objects,
    secret,
    serializer,
    text,
    tls_context,
)
from triokafka.client.oauth_options import OAuthOptions
from triokafka.client.option_names import unknown_option
from triokafka.client.producer.accumulator_settings import AccumulatorSettings
from triokafka.client.serializers import Deserializer, Serializer
from triokafka.errors import ConfigurationError
from triokafka.hooks import HookChain, Hooks
from triokafka.metrics.reporter import MetricsReporter
from triokafka.network.config import NetworkConfig, StreamFactory
from triokafka.security.sasl.mechanism import SUPPORTED

if TYPE_CHECKING:
    from triokafka.security.client_security import ClientSecurity

_OF_NETWORK: Final = tuple(f.name for f in fields(NetworkConfig))
_OF_SECURITY = ("security_", "ssl_", "sasl_")


@dataclass(frozen=True, kw_only=True)
class ClientOptions(OAuthOptions):
    """Options of every client."""

    KIND: ClassVar[str] = "client"

    bootstrap_servers: tuple[tuple[str, int], ...] = option(
        (("localhost", DEFAULT_PORT),),
        bootstrap_addresses,
        "Brokers to connect to first: 'host:port', several separated by commas, or a list. They return the addresses of"
        " the other brokers.",
    )
    client_id: str | None = option(
        None, text(optional=True), "Name in request headers and broker logs; None generates one."
    )
    security_protocol: str = option(
        "PLAINTEXT",
        choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "Security protocol of the brokers' listener: 'SSL' and 'SASL_SSL' encrypt and check the broker's certificate;"
        " 'SASL_PLAINTEXT' and 'SASL_SSL' log in with sasl_mechanism.",
    )
    ssl_context: ssl.SSLContext | None = option(
        None, tls_context, "A complete ssl.SSLContext; the other ssl options then have no effect."
    )
    ssl_check_hostname: bool = option(True, flag(), "Refuse a broker whose certificate is for another host name.")
    ssl_cafile: str | None = option(
        None,
        text(optional=True),
        "Authorities to trust: a PEM file, the text of one, or a PKCS #12 or JKS store. None: those of the system.",
    )
    ssl_certfile: str | None = option(
        None,
        secret(),
        "The client's certificate with its chain: a PEM file, the text of one, or a store with the key.",
    )
    ssl_keyfile: str | None = option(
        None, secret(), "The private key: a PEM file or the text of one. None: ssl_certfile contains it."
    )
    ssl_password: str | Callable[[], str] | None = option(
        None, secret(callable_too=True), "Password of the private key or of its store, or a function for it."
    )
    ssl_keystore_password: str | Callable[[], str] | None = option(
        None,
        secret(callable_too=True),
        "Password of ssl_certfile if that is a store, or a function for it; None: ssl_password.",
    )
    ssl_truststore_password: str | Callable[[], str] | None = option(
        None, secret(callable_too=True), "Password of ssl_cafile if that is a store, or a function for it."
    )
    ssl_crlfile: str | None = option(
        None, text(optional=True), "A PEM file with the revocation list of the brokers' certificates."
    )
    ssl_ciphers: str | None = option(None, text(optional=True), "Ciphers of TLS 1.2, with Java's or OpenSSL's names.")
    sasl_mechanism: str | None = option(
        None,
        choice(None, *SUPPORTED),
        "How to log in: 'SCRAM-SHA-512', 'SCRAM-SHA-256', 'PLAIN', 'OAUTHBEARER' or 'GSSAPI' (Kerberos).",
    )
    sasl_username: str | Callable[[], str] | None = option(
        None, credential, "User name, or a function for it, called with every connection."
    )
    sasl_password: str | Callable[[], str] | None = option(
        None, secret(callable_too=True), "Password, or a function for it, called with every connection."
    )
    sasl_plain_username: str | Callable[[], str] | None = option(
        None, credential, "kafka-python's name of sasl_username."
    )
    sasl_plain_password: str | Callable[[], str] | None = option(
        None, secret(callable_too=True), "kafka-python's name of sasl_password."
    )
    sasl_oauth_token_provider: Any = option(
        None,
        anything(),
        "For OAUTHBEARER: a function that returns a token, or an object with token() and extensions(); may be async.",
    )
    sasl_jaas_config: str | None = option(
        None,
        secret(),
        'Java\'s login text instead of user name and password: \'Module required username="…" password="…";\'.',
    )
    sasl_jaas_file: str | None = option(
        None,
        text(optional=True),
        "Java's login file, whose section KafkaClient has the login; the environment variable TRIOKAFKA_JAAS_FILE names"
        " one, too.",
    )
    sasl_kerberos_service_name: str = option(
        "kafka", text(), "For GSSAPI: the first part of the broker's Kerberos principal."
    )
    sasl_kerberos_domain_name: str | None = option(
        None, text(optional=True), "For GSSAPI: the host in the broker's principal, if it is not the connected host."
    )
    client_dns_lookup: str = option(
        "use_all_dns_ips",
        choice("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "Both values try every address that a host name resolves to (KIP-302)."
        " 'resolve_canonical_bootstrap_servers_only' also uses the canonical names of the bootstrap servers' addresses"
        " for authentication (KIP-235).",
    )
    request_timeout_ms: float = option(30_000, number(1, MAX_INT32), "How long a broker may take to answer a request.")
    retry_backoff_ms: float = option(100, number(0), "Wait before the first retry; doubles with each retry (KIP-580).")
    retry_backoff_max_ms: float = option(1_000, number(0), "Longest wait between retries.")
    reconnect_backoff_ms: float = option(50, number(0), "Wait before connecting again; doubles with each failure.")
    reconnect_backoff_max_ms: float = option(1_000, number(0), "Longest wait before connecting again.")
    socket_connection_setup_timeout_ms: float = option(
        10_000, number(1), "How long connecting to one address may take; doubles with each failure (KIP-601)."
    )
    socket_connection_setup_timeout_max_ms: float = option(30_000, number(1), "Longest time for connecting.")
    connections_max_idle_ms: float = option(
        540_000, number(-1), "The client closes connections that were idle for this long; -1 keeps them."
    )
    connections_max_silence_ms: float = option(
        9_000,
        number(-1),
        "The client closes a connection that has unanswered requests and receives nothing for this long, if the broker"
        " answers over a new connection or another broker is available; -1 waits for request_timeout_ms.",
    )
    send_buffer_bytes: int = option(
        -1, integer(-1), "Size of a socket's send buffer; -1 lets the system tune it (Java's default is 131072)."
    )
    receive_buffer_bytes: int = option(
        -1, integer(-1), "Size of a socket's receive buffer; -1 lets the system tune it (Java's default is 65536)."
    )
    stream_factory: StreamFactory | None = option(
        None,
        function(),
        "Async function that opens a connection, for instance through a proxy: takes host and port, returns a"
        " trio.abc.Stream.",
    )
    metadata_max_age_ms: float = option(300_000, number(0), "Longest time between two refreshes of the metadata.")
    metadata_max_idle_ms: float = option(
        300_000, number(5_000), "The client drops the metadata of topics that were not used for this long."
    )
    metadata_recovery_strategy: str = option(
        "rebootstrap",
        choice("rebootstrap", "none"),
        "If no known broker can be reached: 'rebootstrap' returns to bootstrap_servers (KIP-899), 'none' keeps trying"
        " the known brokers.",
    )
    metadata_recovery_rebootstrap_trigger_ms: float = option(
        300_000, number(0), "Return to bootstrap_servers if metadata could not be refreshed for this long (KIP-1102)."
    )
    receive_message_max_bytes: int = option(
        256 << 20,
        integer(1024),
        "Largest response to accept; the client closes the connection if one is larger, or takes more than four times"
        " as much memory.",
    )
    close_timeout_ms: float = option(30_000, number(0), "Longest time that leaving the async with block may take.")
    hooks: tuple[Hooks, ...] = option(
        (), hook_objects, "One Hooks object, or several: receive events of connections, requests, batches and failures."
    )

    metrics_num_samples: int = option(2, integer(1), "Number of samples of the metrics' sliding window.")
    metrics_sample_window_ms: float = option(30_000, number(1), "Length of one sample of the metrics' sliding window.")
    metrics_recording_level: str = option(
        "INFO", choice("INFO", "DEBUG", "TRACE"), "Most detailed level of the metrics that are recorded."
    )
    enable_metrics_push: bool = option(
        True, flag(), "Push metrics to brokers, if a subscription of the cluster requests them (KIP-714)."
    )
    metric_reporters: tuple[MetricsReporter, ...] = option(
        (), reporter_objects, "A MetricsReporter object, or several: receive added, changed and removed metrics."
    )

    given: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The options as the user gave them; all others are defaults."""

    PROFILES: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Check the given options and fill in defaults. Raises `ConfigurationError`, which names the valid values."""
        known = _options_of(cls)
        checked: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                others = {kind.KIND: [*_options_of(kind)] for kind in ClientOptions.__subclasses__()}
                raise ConfigurationError(unknown_option(cls.KIND, name, known, others))
            checked[name] = known[name].metadata["check"](name, value)
        profile = cls.PROFILES.get(checked.get("defaults", ""), {})
        return cls(**{**profile, **checked}, given=dict(given))

    @classmethod
    def describe(cls) -> list[tuple[str, Any, str]]:
        """Return name, default and meaning of every option, in order, for the reference documentation."""
        return [(f.name, f.default, f.metadata["doc"]) for f in _options_of(cls).values()]

    def by_name(self) -> dict[str, Any]:
        """Return the value of every option."""
        return {name: getattr(self, name) for name in _options_of(type(self))}

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

    def security(self) -> ClientSecurity | None:
        """Return TLS and SASL of the connections; None for PLAINTEXT. Raises `ConfigurationError`."""
        if self.security_protocol == "PLAINTEXT":
            return None
        from triokafka.client.security_options import client_security  # not needed for PLAINTEXT

        options = self.by_name()
        return client_security({name: value for name, value in options.items() if name.startswith(_OF_SECURITY)})

    def metrics(self) -> dict[str, Any]:
        """Return the options of the metrics, as the keyword arguments of `ClientMetrics`."""
        return {
            "samples": self.metrics_num_samples,
            "window_seconds": self.metrics_sample_window_ms / 1000,
            "level": self.metrics_recording_level,
            "reporters": self.metric_reporters,
        }

    def network(self, *, client_id: str, **more: Any) -> NetworkConfig:
        """Return the options of the network client."""
        values = {name: getattr(self, name) for name in _OF_NETWORK if name in self.__dataclass_fields__}
        hooks = HookChain(self.hooks)
        values["security"] = self.security()
        return NetworkConfig(**{**values, "client_id": self.client_id or client_id, "hooks": hooks, **more})


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(ClientOptions):
    """Producer configuration."""

    KIND: ClassVar[str] = "producer"
    PROFILES: ClassVar[Mapping[str, Mapping[str, Any]]] = profiles.PRODUCER

    defaults: str = option(
        "kafka-4",
        choice(*profiles.PRODUCER),
        "Defaults of options that are not given. 'kafka-0.10': acks=1, retries=0, linger_ms=0, no idempotence, no"
        " growing back-off, delivery_timeout_ms=30000.",
    )
    key_serializer: Serializer[Any] | Callable[..., Any] | str | None = option(
        None,
        serializer(Serializer),
        "Turns a key into bytes: a Serializer object or class, a function, or 'module:Name'. None: keys are bytes.",
    )
    value_serializer: Serializer[Any] | Callable[..., Any] | str | None = option(
        None,
        serializer(Serializer),
        "Turns a value into bytes: a Serializer object or class, a function, or 'module:Name'. None: values are bytes.",
    )
    acks: int = option(
        -1,
        acks,
        "Replicas that must have a record before it is acknowledged: 0 none, 1 the leader, 'all' the in-sync ones.",
    )
    enable_idempotence: bool | None = option(
        None,
        lambda name, value: None if value is None else flag()(name, value),
        "Write each record exactly once and in order in spite of retries. None: on, unless other options exclude it.",
    )
    transactional_id: str | None = option(
        None,
        text(optional=True),
        "Name of a transactional producer (KIP-98): the same after every restart, and different for every producer that"
        " runs at the same time. None: no transactions.",
    )
    transaction_timeout_ms: float = option(
        60_000,
        number(1, MAX_INT32),
        "The coordinator aborts a transaction that is open for longer; at most the broker's"
        " transaction.max.timeout.ms.",
    )
    compression_type: str = option("none", choice("none", "gzip", "snappy", "lz4", "zstd"), "Codec of the batches.")
    compression_level: int | None = option(
        None,
        lambda name, value: None if value is None else integer(-131_072, 22)(name, value),
        "Level of the codec; None is the codec's own default (KIP-390).",
    )
    batch_size: int = option(16_384, integer(0, 64 << 20), "Bytes of records after which a batch is full.")
    linger_ms: float = option(5, number(0), "How long an incomplete batch waits for more records.")
    buffer_memory: int = option(
        32 << 20, integer(1, 1 << 40), "Bytes for all unacknowledged batches; send waits when they are used up."
    )
    max_block_ms: float = option(60_000, number(0), "How long send waits for metadata and buffer space together.")
    max_request_size: int = option(1_048_576, integer(1), "Largest record, and largest request, in bytes.")
    max_in_flight_requests_per_connection: int = option(
        5, integer(1), "Most unanswered requests to one broker at a time."
    )
    retries: int = option(MAX_INT32, integer(0), "Most retries of a batch; delivery_timeout_ms bounds them too.")
    delivery_timeout_ms: float = option(
        120_000, number(0), "Longest time from the return of send to the acknowledgement or failure (KIP-91)."
    )
    close_stall_timeout_ms: float = option(
        1_000,
        number(0),
        "When cancellation or an exception ends the async with block: longest wait without any acknowledgement. The"
        " remaining records then fail.",
    )
    partitioner: Any = option(
        None, anything(), "A Partitioner. None: murmur2 of the key, as Java does; sticky for records without key."
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        True, flag(), "Records without key go less often to partitions with long queues (KIP-794)."
    )
    partitioner_availability_timeout_ms: float = option(
        0, number(0), "Records without key avoid a broker that took no batches for this long (KIP-794); 0: no limit."
    )
    partitioner_ignore_keys: bool = option(
        False, flag(), "Choose partitions for records with keys as for records without (KIP-794)."
    )
    interceptors: tuple[Any, ...] = option(
        (), items(), "ProducerInterceptor objects, classes, or 'module:Name', called in order (KIP-42)."
    )
    plugin_options: Mapping[str, Any] | None = option(
        None,
        mapping(),
        "Additional names and values for configure() of serializers, interceptors and the partitioner.",
    )
    on_delivery: Callable[..., None] | None = option(
        None,
        function(),
        "Called as (metadata, error) for every record sent without on_delivery, in a background task; must not block.",
    )
    allow_auto_create_topics: bool = option(
        True, flag(), "Let the broker create unknown topics, if auto.create.topics.enable allows it."
    )

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
        if self.transactional_id is not None:
            if self.enable_idempotence is False:
                conflicts.append("enable_idempotence=False")
            if not self.transactional_id:
                raise ConfigurationError("transactional_id='' is not a name; leave it out for no transactions")
            if conflicts:
                raise ConfigurationError(
                    f"transactional_id={self.transactional_id!r} cannot be combined with "
                    + " and ".join(conflicts)
                    + "; change them, or leave transactional_id out"
                )
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
                f"batch_size={self.batch_size} is more than buffer_memory={self.buffer_memory}, which leaves no memory"
                " for a batch: lower batch_size, or raise buffer_memory"
            )
        if self.max_request_size > self.buffer_memory and {"max_request_size", "buffer_memory"} <= {*self.given}:
            raise ConfigurationError(
                f"max_request_size={self.max_request_size} is more than buffer_memory={self.buffer_memory}: a record of"
                " that size could never be buffered; lower max_request_size, or raise buffer_memory"
            )
        if self.partitioner is not None and self.partitioner_ignore_keys:
            raise ConfigurationError(
                "partitioner_ignore_keys=True needs the built-in partitioner, which partitioner= replaces; leave one"
                " of the two out"
            )

    def accumulator_settings(self) -> AccumulatorSettings:
        """Return the options about batches, for the accumulator."""
        return AccumulatorSettings(
            batch_size=self.batch_size,
            linger=self.linger_ms / 1000,
            delivery_timeout=self.delivery_timeout_ms / 1000,
            retry_backoff=Backoff(self.retry_backoff_ms / 1000, self.retry_backoff_max_ms / 1000),
            compression_type=self.compression_type,
            compression_level=self.compression_level,
            max_request_size=self.max_request_size,
            one_in_flight=self.max_in_flight_requests_per_connection == 1,
            idempotent=self.idempotent,
            transactional=self.transactional_id is not None,
            adaptive_partitioning=self.partitioner_adaptive_partitioning_enable,
            availability_timeout=self.partitioner_availability_timeout_ms / 1000,
        )


_DECIDED_BY_THE_BROKER = {
    "session_timeout_ms": "set group.consumer.session.timeout.ms on the broker, or consumer.session.timeout.ms on the"
    " group",
    "heartbeat_interval_ms": "set group.consumer.heartbeat.interval.ms on the broker, or"
    " consumer.heartbeat.interval.ms on the group",
    "partition_assignment_strategy": "choose one of the broker's assignors with group_remote_assignor",
}


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """Consumer configuration."""

    KIND: ClassVar[str] = "consumer"
    PROFILES: ClassVar[Mapping[str, Mapping[str, Any]]] = profiles.CONSUMER

    defaults: str = option(
        "kafka-4",
        choice(*profiles.CONSUMER),
        "Defaults of options that are not given. 'kafka-0.10': session_timeout_ms=30000, range assignment, no limit on"
        " max_poll_records, request_timeout_ms=40000.",
    )

    group_id: str | None = option(None, text(optional=True), "Consumer group; None consumes without one.")
    group_instance_id: str | None = option(
        None, text(optional=True), "Makes this a static member: a name that stays the same across restarts (KIP-345)."
    )
    group_protocol: str = option("classic", choice("classic", "consumer"), "Group membership protocol (KIP-848).")
    group_remote_assignor: str | None = option(
        None,
        text(optional=True),
        "With group_protocol='consumer': the assignor that the group's coordinator uses, 'uniform' or 'range' in"
        " Kafka; None leaves the choice to the coordinator.",
    )
    key_deserializer: Deserializer[Any] | Callable[..., Any] | str | None = option(
        None,
        serializer(Deserializer),
        "Turns key bytes into an object: a Deserializer object or class, a function, or 'module:Name'.",
    )
    value_deserializer: Deserializer[Any] | Callable[..., Any] | str | None = option(
        None,
        serializer(Deserializer),
        "Turns value bytes into an object: a Deserializer object or class, a function, or 'module:Name'.",
    )
    deserialization_error_policy: str = option(
        "raise",
        choice("raise", "skip", "raw"),
        "If a deserializer fails on a record: 'raise' raises from the call and keeps the position; 'skip' skips the"
        " record with a warning; 'raw' returns the record with UndeserializedBytes as key or value.",
    )
    corrupt_batch_policy: str = option(
        "raise",
        choice("raise", "skip"),
        "If a batch is damaged: 'raise' raises from the call and keeps the position; 'skip' skips the batch with a"
        " warning.",
    )
    auto_offset_reset: str = option(
        "latest",
        choice("latest", "earliest", "none"),
        "Where to start without a committed offset, or if the offset is out of range. An assigned partition of a topic"
        " that does not exist yet starts at its first record also with 'latest'.",
    )
    enable_auto_commit: bool = option(True, flag(), "Commit the positions of finished records in the background.")
    auto_commit_interval_ms: float = option(5_000, number(0), "Time between automatic commits.")
    session_timeout_ms: int = option(
        45_000, integer(1), "The coordinator removes a member that sent no heartbeat for this long."
    )
    heartbeat_interval_ms: float = option(3_000, number(1), "Time between heartbeats.")
    max_poll_interval_ms: int = option(
        300_000, integer(1), "The member leaves its group if the program asks for no records for this long."
    )
    max_poll_records: int = option(500, integer(1), "Most records that one poll returns.")
    max_poll_bytes: int = option(
        64 << 20,
        integer(1),
        "A call for records opens no further compressed batch after it has decompressed this many bytes.",
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
        64 << 20, integer(1), "Bytes to fetch ahead of the returned records, over all partitions; then fetching pauses."
    )
    isolation_level: str = option(
        "read_uncommitted",
        choice("read_uncommitted", "read_committed"),
        "'read_committed' skips records of open and aborted transactions; 'read_uncommitted' returns them.",
    )
    partition_assignment_strategy: tuple[Any, ...] = option(
        ("range", "cooperative-sticky"), items(), "Assignors by preference: names, or PartitionAssignor objects."
    )
    check_crcs: bool = option(True, flag(), "Check the checksum of every batch.")
    exclude_internal_topics: bool = option(True, flag(), "Patterns do not match Kafka's internal topics.")
    allow_auto_create_topics: bool = option(True, flag(), "Let the broker create subscribed topics.")
    client_rack: str = option("", text(), "Rack of this client, to fetch from the nearest replica (KIP-392).")
    default_api_timeout_ms: float = option(60_000, number(0), "Longest time of calls without a timeout argument.")
    interceptors: tuple[Any, ...] = option((), items(), "ConsumerInterceptor objects, called in order (KIP-42).")
    plugin_options: Mapping[str, Any] | None = option(
        None, mapping(), "Additional names and values for configure() of deserializers."
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

    bootstrap_controllers: tuple[tuple[str, int], ...] | None = option(
        None,
        lambda name, value: None if value is None else bootstrap_addresses(name, value),
        "Controllers to connect to instead of brokers (KIP-919), written as bootstrap_servers: for calls about the"
        " cluster, its quorum, configurations, features, access control and reassignments while no broker serves.",
    )
    default_api_timeout_ms: float = option(60_000, number(0), "Longest time of one call, retries included.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bootstrap_controllers and "bootstrap_servers" in self.given:
            raise ConfigurationError("bootstrap_servers and bootstrap_controllers exclude each other: give one of them")

    def network(self, *, client_id: str, **more: Any) -> NetworkConfig:
        """Return the options of the network client."""
        if self.bootstrap_controllers:
            more = {"bootstrap_servers": self.bootstrap_controllers, "controllers": True, **more}
        return super().network(client_id=client_id, **more)


def _options_of(kind: type[ClientOptions]) -> Mapping[str, Field[Any]]:
    """Return the options of one kind of client. `OAuthOptions` come last: few readers need them."""
    found = _options.get(kind)
    if found is None:
        own = [f for f in fields(kind) if "check" in f.metadata]
        found = _options[kind] = {
            f.name: f for f in sorted(own, key=lambda f: f.name in OAuthOptions.__dataclass_fields__)
        }
    return found


_options: Final[dict[type[ClientOptions], Mapping[str, Field[Any]]]] = {}
"""By kind. To walk over a hundred fields for each client took a sixth of the time of its construction."""
