"""The reference pages of the configuration: which option is on which page, and what Kafka calls it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from typing import Any, Final

from docs.tables import code, table
from triokafka.broker_stub.config.broker_config import DEFINITIONS
from triokafka.broker_stub.config.options import (
    GroupOptions,
    LogOptions,
    NetworkOptions,
    NodeOptions,
    TopicOptions,
    TransactionOptions,
)
from triokafka.broker_stub.config.security_names import SECURITY_NAMES
from triokafka.broker_stub.log.topic_config import DEFINITIONS as TOPIC_DEFINITIONS
from triokafka.client.config import AdminOptions, ClientOptions, ConsumerOptions, ProducerOptions

Described = tuple[str, Any, str]

KAFKAS_NAMES: Final[dict[str, str]] = {
    "close_stall_timeout_ms": "",
    "close_timeout_ms": "",
    "compression_level": "compression.gzip.level, compression.lz4.level, compression.zstd.level",
    "connections_max_silence_ms": "",
    "corrupt_batch_policy": "",
    "defaults": "",
    "deserialization_error_policy": "",
    "hooks": "",
    "interceptors": "interceptor.classes",
    "max_decompressed_batch_bytes": "",
    "max_poll_bytes": "",
    "on_delivery": "",
    "partitioner": "partitioner.class",
    "plugin_options": "",
    "prefetch_max_bytes": "",
    "receive_message_max_bytes": "",
    "sasl_jaas_file": "",
    "sasl_kerberos_domain_name": "",
    "sasl_oauth_token_provider": "",
    "sasl_oauthbearer_allowed_files": "org.apache.kafka.sasl.oauthbearer.allowed.files",
    "sasl_oauthbearer_allowed_urls": "org.apache.kafka.sasl.oauthbearer.allowed.urls",
    "sasl_password": "sasl.jaas.config",
    "sasl_plain_password": "sasl.jaas.config",
    "sasl_plain_username": "sasl.jaas.config",
    "sasl_username": "sasl.jaas.config",
    "ssl_cafile": "ssl.truststore.location, ssl.truststore.certificates",
    "ssl_certfile": "ssl.keystore.location, ssl.keystore.certificate.chain",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_context": "",
    "ssl_crlfile": "",
    "ssl_keyfile": "ssl.keystore.key",
    "ssl_password": "ssl.key.password",
    "stream_factory": "",
}
"""Kafka's names of clients' options, where they are not the same with dots; empty for what Kafka does not have."""

_OF_SECURITY: Final = ("security_", "ssl_", "sasl_")
_CONSTRUCTORS: Final[dict[type[ClientOptions], str]] = {
    ProducerOptions: "Producer",
    ConsumerOptions: "Consumer",
    AdminOptions: "AdminClient",
}

BROKER_GROUPS: Final[dict[str, tuple[str, str]]] = {
    "nodes": ("Nodes and listeners", "Who a node is, where it listens, and which address clients get."),
    "requests": ("Connections and requests", "Threads, queues, sockets, and the limits of connections and requests."),
    "quorum": ("Quorum and metadata", "The controllers' quorum, the metadata log, and the heartbeats of brokers."),
    "replication": ("Topics and replication", "New topics, in-sync replicas, elections of leaders, and followers."),
    "log": ("Log", "Directories, segments, retention, flushes and timestamps of logs."),
    "cleaner": ("Log cleaner", "Compaction of logs."),
    "groups": ("Groups and positions", "Consumer groups under both protocols, and the topic of their positions."),
    "transactions": ("Transactions", "Producer ids, and the transaction coordinator."),
    "quotas": ("Quotas and metrics", "The windows in which quotas are measured, and what clients push."),
    "security": ("Security", "Access control, tokens, TLS and SASL."),
}
"""Title and subject of each page of broker options, by the last part of its file's name."""

_PREFIXES: Final = (
    (("authorizer.", "super.", "allow.", "delegation."), "security"),
    (("quota.", "controller.quota.", "replication.quota.", "telemetry."), "quotas"),
    (("controller.listener.",), "nodes"),
    (("controller.", "broker.heartbeat.", "broker.session.", "initial.", "metadata."), "quorum"),
    (("log.cleaner.",), "cleaner"),
)
_CLASSES: Final = (
    (NodeOptions, "nodes"),
    (NetworkOptions, "requests"),
    (TopicOptions, "replication"),
    (LogOptions, "log"),
    (GroupOptions, "groups"),
    (TransactionOptions, "transactions"),
)


def group_of(name: str) -> str:
    """Return the page of a broker option: the last part of its file's name."""
    for prefixes, group in _PREFIXES:
        if name.startswith(prefixes):
            return group
    return next(group for owner, group in _CLASSES if name.replace(".", "_") in vars(owner)["__annotations__"])


def options_table(described: Iterable[Described], options: type) -> str:
    """Return the table of a class of client options: name, Kafka's name, type, default, meaning."""
    types: dict[str, Any] = {}
    for base in reversed(options.__mro__):
        types.update(inspect.get_annotations(base))
    rows = [[f"`{name}`", _kafkas(name), code(types[name]), shown(default), doc] for name, default, doc in described]
    return table(["option", "Kafka's name", "type", "default", "meaning"], rows)


def _kafkas(name: str) -> str:
    names = KAFKAS_NAMES.get(name, name.replace("_", "."))
    return ", ".join(f"`{one}`" for one in names.split(", ")) if names else "own"


def shown(value: Any) -> str:
    """Return a default value as the tables show it."""
    if callable(value):
        return code(getattr(value, "__name__", repr(value)))
    return code(json.dumps(value) if isinstance(value, str) else repr(value))


def pages() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Title and paragraphs of each page by file name, in the order of the side bar."""
    shared = {name for name, _, _ in ClientOptions.describe()}
    general = [row for row in ClientOptions.describe() if not row[0].startswith(_OF_SECURITY)]
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for options, constructor in _CONSTRUCTORS.items():
        own = [row for row in options.describe() if row[0] not in shared]
        found[f"options-{constructor.lower()}.md"] = (
            f"{constructor} options",
            (
                f"Keyword arguments of `{constructor}`, with Apache Kafka's names. *own* means that Kafka has no "
                "such property. An unknown name or an invalid value raises `ConfigurationError` at construction.",
                f"## Of the {options.KIND}",
                options_table(own, options),
                "## Of all clients",
                options_table(general, ClientOptions),
                "[TLS and SASL](options-client-security.md) have a page of their own.",
            ),
        )
    secured = [row for row in ClientOptions.describe() if row[0].startswith(_OF_SECURITY)]
    found["options-client-security.md"] = (
        "Client options: TLS and SASL",
        (
            "Keyword arguments of `Producer`, `Consumer` and `AdminClient` for TLS and SASL. "
            "[Security](../security.md) and [Tokens](../oauth.md) show them in use.",
            options_table(secured, ClientOptions),
        ),
    )
    for group, (title, subject) in BROKER_GROUPS.items():
        found[f"options-broker-{group}.md"] = (f"Broker options: {title.lower()}", _broker_page(group, subject))
    found["options-topic.md"] = ("Topic options", _topic_page())
    return found


def _broker_page(group: str, subject: str) -> tuple[str, ...]:
    rows = [
        [
            f"`{one.name}`",
            one.type.name.lower(),
            code("(hidden)" if one.sensitive and one.default else one.default_text),
            one.update_mode.value,
            one.documentation,
        ]
        for one in sorted(DEFINITIONS.values(), key=lambda one: one.name)
        if group_of(one.name) == group
    ]
    parts = [
        f"{subject} These are lines of `server.properties`, arguments of `triokafka broker --set NAME=VALUE`, and with "
        "underscores arguments of `triokafka.testing.running_broker`. Names that Kafka knows and this broker does not "
        "use are accepted with a warning; others are refused with the nearest known name.",
        table(["option", "type", "default", "can be changed", "meaning"], rows),
    ]
    if group == "security":
        names = ", ".join(f"`{name}`" for name in sorted(SECURITY_NAMES))
        parts += [
            "## TLS and SASL",
            "These have Kafka's names, meaning and defaults, for all listeners or with `listener.name.NAME.` for one. "
            "[Security](../security.md) shows them in use.",
            names + ".",
        ]
    return tuple(parts)


def _topic_page() -> tuple[str, ...]:
    rows = [
        [
            f"`{one.name}`",
            one.type.name.lower(),
            code(one.format(one.default)),
            ", ".join(f"`{key}`" for key, _ in one.broker_keys),
            one.doc,
        ]
        for one in sorted(TOPIC_DEFINITIONS.values(), key=lambda one: one.name)
        if not one.internal
    ]
    return (
        "The configuration of topics: of `triokafka topics create --config NAME=VALUE`, `triokafka configs alter`, and "
        "`NewTopic(configs={…})`. A topic without a value has the broker's default.",
        table(["option", "type", "default", "default comes from", "meaning"], rows),
    )
