"""Option names of older Kafka versions and other clients, and the options to use here instead.

The clients refuse such a name and do not accept it as an alias, because units or meaning often differ.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Final

_SECURITY: Final = (
    "the options of TLS begin with ssl_ (ssl_cafile, ssl_certfile, …), those of SASL with sasl_ (sasl_mechanism,"
    " sasl_username, sasl_password, …)"
)
_METRICS: Final = "use metrics(), kafka_metrics() and metric_reporters=, or hooks= for events"

RENAMED: Final[Mapping[str, str]] = {
    # Kafka's: old names, and names of classes
    "block_on_buffer_full": "max_block_ms",
    "compression_gzip_level": "compression_level",
    "compression_lz4_level": "compression_level",
    "compression_zstd_level": "compression_level",
    "interceptor_classes": "interceptors",
    "metadata_fetch_timeout_ms": "max_block_ms",
    "partitioner_class": "partitioner",
    "timeout_ms": "request_timeout_ms",
    # librdkafka's
    "auto_commit_enable": "enable_auto_commit",
    "batch_num_messages": "batch_size",
    "compression_codec": "compression_type",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "idempotence": "enable_idempotence",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "message_max_bytes": "max_request_size",
    "message_send_max_retries": "retries",
    "message_timeout_ms": "delivery_timeout_ms",
    "metadata_broker_list": "bootstrap_servers",
    "queue_buffering_max_kbytes": "buffer_memory",
    "queue_buffering_max_messages": "buffer_memory",
    "queue_buffering_max_ms": "linger_ms",
    "queued_max_messages_kbytes": "prefetch_max_bytes",
    "request_required_acks": "acks",
    "socket_receive_buffer_bytes": "receive_buffer_bytes",
    "socket_send_buffer_bytes": "send_buffer_bytes",
    "socket_timeout_ms": "request_timeout_ms",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
    "ssl_crl_location": "ssl_crlfile",
    "ssl_cipher_suites": "ssl_ciphers",
    "ssl_truststore_location": "ssl_cafile",
    "ssl_truststore_certificates": "ssl_cafile",
    "ssl_keystore_location": "ssl_certfile",
    "ssl_keystore_certificate_chain": "ssl_certfile",
    "ssl_keystore_key": "ssl_keyfile",
    "sasl_mechanisms": "sasl_mechanism",
    # aiokafka's
    "max_batch_size": "batch_size",
}
"""Foreign option name in snake_case -> option here."""

ABSENT: Final[Mapping[str, str]] = {
    "api_version": "the client negotiates versions with every broker",
    "auto_include_jmx_reporter": "JMX does not exist in Python",
    "consumer_timeout_ms": "use trio.move_on_after around the loop, or poll(timeout_ms=…)",
    "debug": "set up the standard logging, for loggers below 'triokafka'",
    "enable_auto_offset_store": "a record is finished when you ask for the next one; or commit yourself",
    "error_cb": "use hooks=",
    "loop": "Trio has no event loop object to pass",
    "statistics_interval_ms": _METRICS,
    "stats_cb": _METRICS,
    "security_providers": _SECURITY,
    "transaction_two_phase_commit_enable": "two-phase commit is not supported yet (KIP-939)",
}
"""Foreign option name in snake_case -> why there is no such option here, or what to use instead."""


def snake_case(name: str) -> str:
    """Return an option's name in snake_case: Kafka separates words by dots, other clients by hyphens."""
    return name.replace(".", "_").replace("-", "_").lower()


def unknown_option(kind: str, name: str, known: Collection[str], others: Mapping[str, Collection[str]]) -> str:
    """Return the error message for a name that is not an option of a ``kind`` of client, with the most likely name.

    ``others`` has the options of the other kinds of client.
    """
    asked = snake_case(name)
    meant = RENAMED.get(asked)
    if asked in known:
        hint = f"did you mean {asked!r}?"
    elif meant in known:
        hint = f"use {meant!r} instead"
    elif asked in ABSENT or asked.startswith(("sasl_", "ssl_")):
        hint = ABSENT.get(asked, _SECURITY)
    elif owners := [other for other, options in others.items() if asked in options or meant in options]:
        called = f", under the name {meant!r}" if meant else ""
        hint = f"it is an option of the {' and the '.join(owners)}{called}"
    elif near := difflib.get_close_matches(asked, known, n=1, cutoff=0.5):
        hint = f"did you mean {near[0]!r}? Options of plug-ins belong in plugin_options"
    else:
        hint = f"known options are {', '.join(sorted(known))}; options of plug-ins belong in plugin_options"
    return f"{name!r} is not an option of the {kind}: {hint}"
