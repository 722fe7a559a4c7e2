"""The broker's configuration: Kafka's options from ``server.properties`` or Python, validated before the start."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Final

from triokafka.broker_stub.config.definition import ConfigDefinition, unknown_option
from triokafka.broker_stub.config.known_names import REMOVED_NAMES, SECRET_NAMES, UNUSED_NAMES, UNUSED_PREFIXES
from triokafka.broker_stub.config.listeners import ListenerSpec, check_advertised, parse_listeners, parse_security_map
from triokafka.broker_stub.config.options import (
    GroupOptions,
    LogOptions,
    NetworkOptions,
    NodeOptions,
    TopicOptions,
    TransactionOptions,
    definition_of_field,
)
from triokafka.broker_stub.config.properties import parse_properties
from triokafka.broker_stub.config.roles import check_roles, parse_bootstrap_servers, parse_voters
from triokafka.broker_stub.config.security_names import is_dynamic_store, is_security
from triokafka.broker_stub.log import config as log_config
from triokafka.broker_stub.log.config import LogConfig
from triokafka.errors import ConfigurationError
from triokafka.security.secret import Secret, has_credentials, reveal
from triokafka.structs import Node, usual_address

logger = logging.getLogger(__name__)

_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
_URLS: Final = ("endpoint.url", "allowed.urls")
ALIASES: Final = {"broker.id": "node.id"}
"""Options with two names: the other name by the old one."""


class BrokerConfig(NodeOptions, NetworkOptions, TopicOptions, LogOptions, GroupOptions, TransactionOptions):
    """The broker's configuration: an immutable object with Kafka's option names in snake_case.

    Create it from Python values (``BrokerConfig(num_partitions=3)``) or from text (`from_properties`).
    ``unused`` holds the text of options without a field: Kafka's options that this broker does not use, and limits of
    single listeners (`listener_limits`).

    Raises:
        ConfigurationError: a value is out of bounds, or options contradict each other. The message names the option and
            the reason.
    """

    unused: Mapping[str, str] | None = None
    security: Mapping[str, str] | None = None
    """The options of TLS and SASL as texts by dotted name, also those of single listeners."""
    set_in_file: frozenset[str] = frozenset()
    """Dotted names of the options that ``server.properties`` sets, even to their defaults: DescribeConfigs calls them
    static."""

    def _check(self) -> None:
        for name, definition in DEFINITIONS.items():
            attribute = name.replace(".", "_")
            value = getattr(self, attribute)
            if isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, attribute, value)
            elif definition.sensitive and isinstance(value, str) and not isinstance(value, Secret):
                value = Secret(value)
                object.__setattr__(self, attribute, value)
            elif isinstance(value, str) and not isinstance(value, Secret) and isinstance(definition.default, tuple):
                value = definition.parse(value)
                object.__setattr__(self, attribute, value)
            definition.validate(value)
        self._check_together()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **overrides: Any) -> BrokerConfig:
        """Return a configuration from dotted names and texts, as in ``server.properties``.

        ``overrides`` are Python values by field name. Kafka's options that this broker does not use go to ``unused``,
        and one warning lists them. Options that Kafka removed in 4.0 are ignored, and another warning lists them.

        Raises:
            ConfigurationError: an unknown name (the message suggests the nearest known one), or an invalid value.
        """
        if "config.providers" in properties:
            from triokafka.security.config_providers import resolved  # seldom needed

            properties = resolved(properties, parse_properties)
        values: dict[str, Any] = {}
        unused: dict[str, str] = {}
        security: dict[str, str] = {}
        removed: list[str] = []
        for name, text in properties.items():
            definition = DEFINITIONS.get(ALIASES.get(name, name))
            if definition is not None:
                if name in ALIASES and text.strip() == "-1":
                    continue
                value = definition.parse(text)
                if values.setdefault(definition.name.replace(".", "_"), value) != value:
                    raise ConfigurationError("node.id and broker.id differ but are one option: set only node.id")
            elif is_listener_limit(name):
                DEFINITIONS[name.split(".", 3)[3]].parse(text)
                unused[name] = text
            elif is_security(name):
                security[name] = Secret(text) if is_hidden(name) else text
            elif name in REMOVED_NAMES or name.startswith("zookeeper."):
                removed.append(name)
            elif is_unused(name):
                unused[name] = Secret(text) if is_hidden(name) else text
            else:
                raise unknown_option(name, [*DEFINITIONS, *UNUSED_NAMES])
        without_effect = sorted(name for name in unused if not is_listener_limit(name))
        if without_effect:
            logger.warning(
                "Broker configuration: these options have no effect on this broker: %s", ", ".join(without_effect)
            )
        if removed:
            logger.warning(
                "Broker configuration: these options were removed in Kafka 4.0, and have no effect: %s",
                ", ".join(sorted(removed)),
            )
        set_in_file = frozenset(
            name for name in (ALIASES.get(name, name) for name in properties) if name in DEFINITIONS
        )
        more = {"unused": unused or None, "security": security or None, "set_in_file": set_in_file}
        return cls(**{**values, **more, **overrides})

    @classmethod
    def for_tests(cls, **overrides: Any) -> BrokerConfig:
        """Return a configuration for tests: a free loopback port, few internal partitions, no rebalance delay."""
        quick: dict[str, Any] = {
            "listeners": ("PLAINTEXT://127.0.0.1:0",),
            "offsets_topic_num_partitions": 4,
            "transaction_state_log_num_partitions": 4,
            "group_initial_rebalance_delay_ms": 0,
            "group_consumer_assignment_interval_ms": 0,
        }
        return cls(**{**quick, **overrides})

    def with_properties(self, properties: Mapping[str, str]) -> BrokerConfig:
        """Return this configuration with dynamic configuration, given as texts by dotted name, applied."""
        values: dict[str, Any] = {
            name.replace(".", "_"): DEFINITIONS[name].parse(text)
            for name, text in properties.items()
            if not is_listener_limit(name) and not is_dynamic_store(name)
        }
        stores = {
            name: Secret(text) if is_hidden(name) else text
            for name, text in properties.items()
            if is_dynamic_store(name)
        }
        if stores:
            values["security"] = {**(self.security or {}), **stores}
        of_listeners = {name: text for name, text in properties.items() if is_listener_limit(name)}
        for name, text in of_listeners.items():
            DEFINITIONS[name.split(".", 3)[3]].parse(text)
        if of_listeners:
            values["unused"] = {**(self.unused or {}), **of_listeners}
        return replace(self, **values)

    def _check_together(self) -> None:
        if self.security is not None:
            for name, text in self.security.items():
                if not is_security(name):
                    raise ConfigurationError(f"security: {name} is not an option of TLS or SASL")
                if name.endswith(_URLS) and any(map(has_credentials, text.replace(" ", "").split(","))):
                    raise ConfigurationError(f"{name}: a URL must not hold credentials, because it appears in messages")
            hidden = {name: Secret(reveal(text)) for name, text in self.security.items() if is_hidden(name)}
            object.__setattr__(self, "security", {**self.security, **hidden})
        protocols = self._protocols
        listeners = parse_listeners("listeners", self.listeners, protocols)
        advertised = parse_listeners("advertised.listeners", self.advertised_listeners or (), protocols)
        check_roles(
            node_id=self.node_id,
            roles=self.process_roles,
            listeners=listeners,
            advertised=advertised,
            controller_names=self.controller_listener_names,
            inter_broker_listener=self.inter_broker_listener_name,
            voters=self.quorum_voters,
            bootstrap_servers=self.quorum_bootstrap_servers,
        )
        if self.is_broker and not self.broker_listeners:
            raise ConfigurationError("listeners: the broker needs at least one listener")
        if not self.is_controller:
            for name in self.controller_listener_names:
                if name.upper() not in protocols:
                    raise ConfigurationError(
                        f"controller.listener.names: {name} has no entry in listener.security.protocol.map, which is"
                        " necessary if a listener has TLS or SASL"
                    )
        check_advertised(advertised, listeners)
        names = {listener.name for listener in listeners}
        for name in self.early_start_listeners or ():
            if name.upper() not in names | {known.upper() for known in self.controller_listener_names}:
                raise ConfigurationError(f"early.start.listeners: {name} is not one of listeners")
        if self.inter_broker_listener_name and _INTER_BROKER_PROTOCOL in (self.security or {}):
            raise ConfigurationError(
                f"inter.broker.listener.name: {_INTER_BROKER_PROTOCOL} is set, too. Remove one of the two"
            )
        if self.inter_broker_listener_name and self.inter_broker_listener_name.upper() not in names:
            raise ConfigurationError(
                f"inter.broker.listener.name: {self.inter_broker_listener_name} is not in listeners"
            )
        if (
            self.queued_max_request_bytes is not None
            and 0 < self.queued_max_request_bytes < self.socket_request_max_bytes
        ):
            raise ConfigurationError("queued.max.request.bytes is below socket.request.max.bytes")
        overrides = self.connections_per_ip  # raises for what it cannot read
        if self.max_connections_per_ip == 0 and not overrides:
            raise ConfigurationError(
                "max.connections.per.ip=0 refuses every connection: list addresses in max.connections.per.ip.overrides "
                "or raise the limit"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigurationError("group.min.session.timeout.ms is above group.max.session.timeout.ms")
        for what in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms"):
            least, most = (getattr(self, f"group_consumer_{bound}_{what}") for bound in ("min", "max"))
            value = getattr(self, f"group_consumer_{what}")
            name = f"group.consumer.{what.replace('_', '.')}"
            if not least <= value <= most:
                limits = ", ".join(name.replace("consumer.", f"consumer.{bound}.") for bound in ("min", "max"))
                raise ConfigurationError(f"{name}={value} is not within {least} to {most} ({limits})")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigurationError(
                "group.consumer.heartbeat.interval.ms must be below group.consumer.session.timeout.ms"
            )
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            raise ConfigurationError("broker.session.timeout.ms must be at least twice broker.heartbeat.interval.ms")
        if self.replica_selector_class not in (None, "", _RACK_AWARE):
            raise ConfigurationError(
                f"replica.selector.class: {self.replica_selector_class} is unknown; this broker has {_RACK_AWARE}"
            )
        retention = self.log_retention_ms
        if retention is None:
            retention = self.log_retention_hours if self.log_retention_minutes is None else self.log_retention_minutes
        if retention == 0:
            raise ConfigurationError("log.retention.ms must be unlimited (-1), or at least 1")
        if not self.data_directories:
            raise ConfigurationError("log.dirs: at least one data directory is needed")
        if len(set(self.data_directories)) < len(self.data_directories):
            raise ConfigurationError("log.dirs: names a directory twice")
        if "*" in self.cordoned_log_dirs and len(self.cordoned_log_dirs) > 1:
            raise ConfigurationError("cordoned.log.dirs: * means all directories; it must not contain other values")
        strangers = sorted(set(self.cordoned_log_dirs) - {"*", *self.data_directories})
        if strangers and self.is_broker:
            raise ConfigurationError(f"cordoned.log.dirs: not among log.dirs: {', '.join(strangers)}")

    @property
    def is_broker(self) -> bool:
        """Whether the node has the broker role."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether the node has the controller role."""
        return "controller" in self.process_roles

    @property
    def quorum_voters(self) -> tuple[Node, ...]:
        """``controller.quorum.voters``: the voters of a static quorum with their addresses."""
        return parse_voters(self.controller_quorum_voters)

    @property
    def quorum_bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """``controller.quorum.bootstrap.servers`` as hosts and ports."""
        return parse_bootstrap_servers(self.controller_quorum_bootstrap_servers)

    @property
    def _protocols(self) -> dict[str, str]:
        """The security protocols by listener name. Those of controllers are PLAINTEXT by default, as in Kafka, if no
        other listener has TLS or SASL: a forgotten entry must not open the port of a secured node to everybody.
        """
        protocols = parse_security_map(self.listener_security_protocol_map)
        controllers = [name.upper() for name in self.controller_listener_names]
        own = [entry.partition("://")[0].strip().upper() for entry in self.listeners]
        if all(protocols.get(name, "PLAINTEXT") == "PLAINTEXT" for name in (*controllers, *own)):
            for name in controllers:
                protocols.setdefault(name, "PLAINTEXT")
        return protocols

    @property
    def broker_listeners(self) -> tuple[ListenerSpec, ...]:
        """The listeners for clients and brokers: ``listeners`` without the controller's."""
        controller = {name.upper() for name in self.controller_listener_names}
        listeners = parse_listeners("listeners", self.listeners, self._protocols)
        return tuple(listener for listener in listeners if listener.name not in controller)

    @property
    def controller_listeners(self) -> tuple[ListenerSpec, ...]:
        """The controller's listeners, in the order of ``controller.listener.names``; empty without that role."""
        if not self.is_controller:
            return ()
        order = [name.upper() for name in self.controller_listener_names]
        listeners = parse_listeners("listeners", self.listeners, self._protocols)
        own = (listener for listener in listeners if listener.name in order)
        return tuple(sorted(own, key=lambda listener: order.index(listener.name)))

    @property
    def late_listeners(self) -> frozenset[str]:
        """The controller's listeners that accept no requests before the authorizer has loaded the ACLs."""
        if self.early_start_listeners is None:
            return frozenset()
        early = {name.upper() for name in self.early_start_listeners}
        return frozenset(listener.name for listener in self.controller_listeners if listener.name not in early)

    @property
    def advertised(self) -> Mapping[str, ListenerSpec]:
        """The configured ``advertised.listeners`` by listener name."""
        protocols = self._protocols
        specs = parse_listeners("advertised.listeners", self.advertised_listeners or (), protocols)
        return {listener.name: listener for listener in specs}

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener for connections between brokers.

        ``inter.broker.listener.name``, or else ``security.inter.broker.protocol``. Default: ``PLAINTEXT``.
        """
        protocol = (self.security or {}).get(_INTER_BROKER_PROTOCOL)
        return (self.inter_broker_listener_name or protocol or "PLAINTEXT").upper()

    def security_protocol_of(self, listener: str) -> str:
        """Return the security protocol of a listener of this cluster, by name; PLAINTEXT if it has no entry."""
        return self._protocols.get(listener.upper(), "PLAINTEXT")

    @property
    def connections_per_ip(self) -> dict[str, int]:
        """``max.connections.per.ip.overrides`` by address."""
        found: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in self.max_connections_per_ip_overrides.split(","))):
            host, colon, count = entry.rpartition(":")
            if not colon or not count.isdigit():
                raise ConfigurationError(f"max.connections.per.ip.overrides: {entry!r} is not host:count")
            found[usual_address(host.strip("[]"))] = int(count)
        return found

    def listener_limits(self, option: str) -> dict[str, int]:
        """Return ``max.connections`` or ``max.connection.creation.rate`` of single listeners by listener name."""
        found = {}
        for name, text in (self.unused or {}).items():
            if is_listener_limit(name) and name.split(".", 3)[3] == option:
                found[name.split(".", 3)[2].upper()] = int(text)
        return found

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The data directories: ``log.dirs``, or else ``log.dir``."""
        return self.log_dirs or self.log_dir

    @property
    def cordoned_directories(self) -> frozenset[str]:
        """The data directories in ``cordoned.log.dirs``."""
        return frozenset(self.data_directories if "*" in self.cordoned_log_dirs else self.cordoned_log_dirs)

    @property
    def metadata_directory(self) -> str:
        """The data directory that contains the metadata log."""
        return self.metadata_log_dir or self.data_directories[0]

    def is_default(self, name: str) -> bool:
        """Whether nothing sets the option ``name`` (dotted): no file, and Python code not to another value."""
        return name not in self.set_in_file and bool(getattr(self, name.replace(".", "_")) == DEFINITIONS[name].default)

    def text(self, name: str) -> str | None:
        """Return the value of the option ``name`` (dotted) as text; None when unset."""
        return DEFINITIONS[name].format(getattr(self, name.replace(".", "_")))

    @cached_property
    def topic_defaults(self) -> LogConfig:
        """The configuration of a topic without overrides."""
        values: dict[str, Any] = {}
        for definition in log_config.DEFINITIONS.values():
            for broker_key, factor in definition.broker_keys:
                value = getattr(self, broker_key.replace(".", "_"))
                if value is not None:
                    # -1 means "no limit" in every unit, and for retention.ms every negative number does.
                    values[definition.name] = value * factor if factor != 1 and value > 0 else value
                    break
        values["retention.ms"] = max(values["retention.ms"], -1)
        return LogConfig().with_values(values)


def is_unused(name: str) -> bool:
    """Whether this is an option of Kafka that this broker accepts without effect."""
    return name in UNUSED_NAMES or name.startswith(UNUSED_PREFIXES)


def is_listener_limit(name: str) -> bool:
    """Whether this option limits the connections of one listener, as ``listener.name.internal.max.connections``."""
    parts = name.split(".", 3)
    return parts[:2] == ["listener", "name"] and parts[3:] in (["max.connections"], ["max.connection.creation.rate"])


def is_secret(name: str) -> bool:
    """Whether the value of an unused option is a secret (also below ``listener.name.…``)."""
    return any(name == secret or name.endswith("." + secret) for secret in SECRET_NAMES)


def is_hidden(name: str) -> bool:
    """Whether the value of a broker's option must not be shown.

    That holds for secrets, and for unknown names, which may be misspelt ones. Kafka hides both, too.
    """
    return is_secret(name) or not is_known(name)


def is_known(name: str) -> bool:
    """Whether Kafka has or had an option of this name, perhaps of one listener."""
    if name in DEFINITIONS or name in UNUSED_NAMES or name in REMOVED_NAMES or is_listener_limit(name):
        return True
    if is_security(name):
        return True
    parts = name.split(".", 3)
    return parts[:2] == ["listener", "name"] and len(parts) == 4 and is_known(parts[3])


DEFINITIONS: Final[Mapping[str, ConfigDefinition]] = {
    definition.name: definition
    for definition in (definition_of_field(field.name, field.metadata) for field in fields(BrokerConfig))
    if definition is not None
}
"""Definitions of all options that this broker uses, by dotted name."""
