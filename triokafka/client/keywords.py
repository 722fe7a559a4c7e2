"""Types of the clients' keyword arguments, for type checkers: the names and types of the options in `config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from ssl import SSLContext

    from triokafka.client.consumer.interceptors import ConsumerInterceptor
    from triokafka.client.producer.interceptors import ProducerInterceptor
    from triokafka.client.producer.partitioner import Partitioner
    from triokafka.client.serializers import Deserializer, Serializer
    from triokafka.hooks import Hooks
    from triokafka.metrics.reporter import MetricsReporter
    from triokafka.network.config import StreamFactory
    from triokafka.structs import Buffer


class OAuthKeywords(TypedDict, total=False):
    """Keyword arguments about tokens for OAUTHBEARER; see `OAuthOptions`."""

    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_allowed_urls: str | None
    sasl_oauthbearer_allowed_files: str | None
    sasl_oauthbearer_jwt_retriever_class: str | None
    sasl_oauthbearer_client_credentials_client_id: str | Callable[[], str] | None
    sasl_oauthbearer_client_credentials_client_secret: str | Callable[[], str] | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_header_urlencode: bool
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int
    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    sasl_oauthbearer_assertion_claim_jti_include: bool
    sasl_login_callback_handler_class: str | None
    sasl_login_connect_timeout_ms: float
    sasl_login_read_timeout_ms: float
    sasl_login_retry_backoff_ms: float
    sasl_login_retry_backoff_max_ms: float
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: float
    sasl_login_refresh_buffer_seconds: float


class ClientKeywords(OAuthKeywords, total=False):
    """Keyword arguments of every client; see `ClientOptions`."""

    bootstrap_servers: str | Sequence[str | tuple[str, int]]
    client_id: str | None
    security_protocol: str
    ssl_context: SSLContext | None
    ssl_check_hostname: bool
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | Callable[[], str] | None
    ssl_keystore_password: str | Callable[[], str] | None
    ssl_truststore_password: str | Callable[[], str] | None
    ssl_crlfile: str | None
    ssl_ciphers: str | None
    sasl_mechanism: str | None
    sasl_username: str | Callable[[], str] | None
    sasl_password: str | Callable[[], str] | None
    sasl_plain_username: str | Callable[[], str] | None
    sasl_plain_password: str | Callable[[], str] | None
    sasl_oauth_token_provider: Any
    sasl_jaas_config: str | None
    sasl_jaas_file: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    client_dns_lookup: str
    request_timeout_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    reconnect_backoff_ms: float
    reconnect_backoff_max_ms: float
    socket_connection_setup_timeout_ms: float
    socket_connection_setup_timeout_max_ms: float
    connections_max_idle_ms: float
    connections_max_silence_ms: float
    send_buffer_bytes: int
    receive_buffer_bytes: int
    stream_factory: StreamFactory | None
    metadata_max_age_ms: float
    metadata_max_idle_ms: float
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: float
    receive_message_max_bytes: int
    close_timeout_ms: float
    hooks: Hooks | Sequence[Hooks]
    metrics_num_samples: int
    metrics_sample_window_ms: float
    metrics_recording_level: str
    enable_metrics_push: bool
    metric_reporters: MetricsReporter | Sequence[MetricsReporter]


class ProducerKeywords(ClientKeywords, total=False):
    """Keyword arguments of `Producer`; see `ProducerOptions`."""

    defaults: str
    key_serializer: Serializer[Any] | type[Serializer[Any]] | Callable[[Any], Buffer | None] | str | None
    value_serializer: Serializer[Any] | type[Serializer[Any]] | Callable[[Any], Buffer | None] | str | None
    acks: int | str
    enable_idempotence: bool | None
    transactional_id: str | None
    transaction_timeout_ms: float
    compression_type: str
    compression_level: int | None
    batch_size: int
    linger_ms: float
    buffer_memory: int
    max_block_ms: float
    max_request_size: int
    max_in_flight_requests_per_connection: int
    retries: int
    delivery_timeout_ms: float
    close_stall_timeout_ms: float
    partitioner: Partitioner | type[Partitioner] | str | None
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: float
    partitioner_ignore_keys: bool
    interceptors: Sequence[ProducerInterceptor | type[ProducerInterceptor] | str]
    plugin_options: Mapping[str, Any] | None
    on_delivery: Callable[..., None] | None
    allow_auto_create_topics: bool


class ConsumerKeywords(ClientKeywords, total=False):
    """Keyword arguments of `Consumer`; see `ConsumerOptions`."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    defaults: str
    key_deserializer: Deserializer[Any] | type[Deserializer[Any]] | Callable[[bytes], Any] | str | None
    value_deserializer: Deserializer[Any] | type[Deserializer[Any]] | Callable[[bytes], Any] | str | None
    deserialization_error_policy: str
    corrupt_batch_policy: str
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    session_timeout_ms: int
    heartbeat_interval_ms: float
    max_poll_interval_ms: int
    max_poll_records: int
    max_poll_bytes: int
    max_decompressed_batch_bytes: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    prefetch_max_bytes: int
    isolation_level: str
    partition_assignment_strategy: Sequence[Any]
    check_crcs: bool
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    client_rack: str
    default_api_timeout_ms: float
    interceptors: Sequence[ConsumerInterceptor]
    plugin_options: Mapping[str, Any] | None


class AdminKeywords(ClientKeywords, total=False):
    """Keyword arguments of `AdminClient`; see `AdminOptions`."""

    bootstrap_controllers: str | Sequence[str | tuple[str, int]] | None
    default_api_timeout_ms: float
