"""The configuration of groups and of client metrics: keys, defaults and limits.

Both exist only in the metadata, and are validated and described as in Kafka. Groups of the consumer protocol use their
session timeout and heartbeat interval; classic groups use none of the keys. Clients push the metrics
of subscriptions (KIP-714).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from triokafka.broker_stub.log.config import ConfigType, LogConfigDefinition
from triokafka.broker_stub.log.config_definition import between, one_of
from triokafka.broker_stub.metadata.client_metrics_match import why_refused
from triokafka.errors import InvalidConfigurationError, InvalidRequestError
from triokafka.protocol.configuration import ConfigResourceType

_T = ConfigType
_MATCH_KEYS: Final = (
    "client_id", "client_instance_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
)  # fmt: skip
_INTERVAL: Final = "interval.ms"
_DURATION: Final = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.ASCII)


def _offset_reset(value: Any) -> str:
    if value in ("latest", "earliest") or _DURATION.fullmatch(value):
        return ""
    return "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."


def _match(value: Any) -> str:
    for item in value:
        key, equals, pattern = item.partition("=")
        if not equals or key not in _MATCH_KEYS:
            return f"{item!r} is not one of {', '.join(_MATCH_KEYS)}, '=' and a regular expression"
        if why := why_refused(pattern):
            return f"{pattern!r} is not a regular expression that this broker can match: {why}"
    return ""


def _table(*definitions: LogConfigDefinition) -> Mapping[str, LogConfigDefinition]:
    return {definition.name: definition for definition in definitions}


def _with_synonym(definition: LogConfigDefinition) -> LogConfigDefinition:
    """Add the broker option that gives a group key its default, where Kafka has one."""
    if definition.name in _WITHOUT_BROKER_KEY:
        return definition
    return definition._replace(broker_keys=((f"group.{definition.name}", 1),))


_WITHOUT_BROKER_KEY: Final = ("share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable")

_GROUP: Final = (
    LogConfigDefinition(
        "consumer.assignment.interval.ms", _T.INT, 1000, "The least time between two assignments.", between(0)
    ),
    LogConfigDefinition(
        "consumer.heartbeat.interval.ms", _T.INT, 5000, "How often members send heartbeats.", between(1)
    ),
    LogConfigDefinition(
        "consumer.session.timeout.ms", _T.INT, 45_000, "How long a member may send no heartbeat.", between(1)
    ),
    LogConfigDefinition(
        "share.assignment.interval.ms", _T.INT, 1000, "The least time between two assignments.", between(0)
    ),
    LogConfigDefinition(
        "share.auto.offset.reset", _T.STRING, "latest", "Where a share group begins in a partition.", _offset_reset
    ),
    LogConfigDefinition("share.delivery.count.limit", _T.INT, 5, "How often a record is tried at most.", between(2)),
    LogConfigDefinition("share.heartbeat.interval.ms", _T.INT, 5000, "How often members send heartbeats.", between(1)),
    LogConfigDefinition(
        "share.isolation.level",
        _T.STRING,
        "read_uncommitted",
        "Whether records of transactions that are open or were aborted are left out.",
        one_of("read_committed", "read_uncommitted"),
    ),
    LogConfigDefinition(
        "share.partition.max.record.locks",
        _T.INT,
        2000,
        "Records of a partition that are lent at a time.",
        between(100),
    ),
    LogConfigDefinition(
        "share.record.lock.duration.ms", _T.INT, 30_000, "How long a record is lent to a member.", between(1000)
    ),
    LogConfigDefinition(
        "share.renew.acknowledge.enable", _T.BOOLEAN, True, "Whether a member may ask for a longer lease of a record."
    ),
    LogConfigDefinition(
        "share.session.timeout.ms", _T.INT, 45_000, "How long a member may send no heartbeat.", between(1)
    ),
    LogConfigDefinition(
        "streams.assignment.interval.ms", _T.INT, 1000, "The least time between two assignments.", between(0)
    ),
    LogConfigDefinition(
        "streams.heartbeat.interval.ms", _T.INT, 5000, "How often members send heartbeats.", between(1)
    ),
    LogConfigDefinition(
        "streams.initial.rebalance.delay.ms",
        _T.INT,
        3000,
        "How long the first assignment waits for members.",
        between(0),
    ),
    LogConfigDefinition(
        "streams.num.standby.replicas", _T.INT, 0, "Copies of a task's state on other members.", between(0)
    ),
    LogConfigDefinition(
        "streams.session.timeout.ms", _T.INT, 45_000, "How long a member may send no heartbeat.", between(1)
    ),
)

GROUP_DEFINITIONS: Final = _table(*map(_with_synonym, _GROUP))
"""Configuration of a group, by name."""

CLIENT_METRICS_DEFINITIONS: Final = _table(
    LogConfigDefinition(_INTERVAL, _T.INT, 300_000, "How often clients are to push the metrics."),
    LogConfigDefinition(
        "match", _T.LIST, (), "Which clients are meant, as key=regular expression; all by default.", _match
    ),
    LogConfigDefinition("metrics", _T.LIST, (), "Prefixes of the metrics that are wanted; * for all."),
)
"""Configuration of a subscription of client metrics, by name."""

DEFINITIONS: Final[Mapping[int, Mapping[str, LogConfigDefinition]]] = {
    ConfigResourceType.GROUP: GROUP_DEFINITIONS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_DEFINITIONS,
}
"""The tables by type of resource."""


BOUNDS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "consumer.assignment.interval.ms": (0, 15_000),
    "consumer.heartbeat.interval.ms": (5000, 15_000),
    "consumer.session.timeout.ms": (45_000, 60_000),
    "share.assignment.interval.ms": (0, 15_000),
    "share.delivery.count.limit": (2, 10),
    "share.heartbeat.interval.ms": (5000, 15_000),
    "share.partition.max.record.locks": (100, 4000),
    "share.record.lock.duration.ms": (15_000, 60_000),
    "share.session.timeout.ms": (45_000, 60_000),
    "streams.assignment.interval.ms": (0, 15_000),
    "streams.heartbeat.interval.ms": (5000, 15_000),
    "streams.num.standby.replicas": (None, 2),
    "streams.session.timeout.ms": (45_000, 60_000),
}
"""The keys of groups that the broker bounds, with the defaults of its two options."""


def validate(
    resource_type: int, configs: Mapping[str, str], bounds: Mapping[str, tuple[int | None, int | None]]
) -> None:
    """Check the whole configuration of a group or subscription; ``bounds`` are the broker's limits of group keys.

    Raises:
        InvalidConfigurationError, InvalidRequestError: a key is unknown, or a value is out of its bounds; the error
            type is the same as in Kafka.
    """
    table = DEFINITIONS[resource_type]
    of_group = resource_type == ConfigResourceType.GROUP
    for name, text in configs.items():
        definition = table.get(name)
        if definition is None:
            if of_group:
                raise InvalidConfigurationError(f"Unknown group config name: {name}; known are {', '.join(table)}")
            raise InvalidRequestError(f"Unknown client metrics configuration: {name}; known are {', '.join(table)}")
        value = definition.parse(text)
        if name == _INTERVAL and not 100 <= value <= 3_600_000:
            raise InvalidRequestError(
                f"Invalid value {value} for {name}, interval must be between 100 and 3600000 (1 hour)"
            )
        low, high = bounds.get(name, (None, None)) if of_group else (None, None)
        if low is not None and value < low:
            raise InvalidConfigurationError(f"{name} must be greater than or equal to {bound_name(name, 'min')}, {low}")
        if high is not None and value > high:
            raise InvalidConfigurationError(f"{name} must be less than or equal to {bound_name(name, 'max')}, {high}")


def bound_name(name: str, which: str) -> str:
    """Return the broker's option with the lowest ("min") or highest ("max") value of a group's key."""
    protocol, _, rest = name.partition(".")
    return f"group.{protocol}.{which}.{rest.removeprefix('num.')}"  # group.streams.max.standby.replicas
