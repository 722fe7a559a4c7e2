"""Reads MirrorMaker 2's properties file: the flows that it enables, as `MirrorOptions`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from triokafka.errors import ConfigurationError
from triokafka.mirror.options import MirrorOptions

_SECONDS: Final = 1_000
_IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
_PREFIX: Final = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"


class MirrorMakerFlows(NamedTuple):
    """The enabled flows of a file, and the names of settings that have no counterpart here."""

    flows: list[MirrorOptions]
    ignored: list[str]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _seconds(text: str) -> int:
    return int(text) * _SECONDS


def _naming(text: str) -> str:
    if text not in (_IDENTITY, _PREFIX):
        raise ValueError("custom replication policies are not supported: write one with the Python interface")
    return "identity" if text == _IDENTITY else "prefix"


_SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "topics": ("topics", _list),
    "topics.exclude": ("topics_exclude", _list),
    "groups": ("groups", _list),
    "groups.exclude": ("groups_exclude", _list),
    "config.properties.exclude": ("configs_exclude", _list),
    "replication.factor": ("replication_factor", int),
    "replication.policy.class": ("naming", _naming),
    "replication.policy.separator": ("separator", str),
    "sync.topic.configs.enabled": ("sync_topic_configs", _flag),
    "sync.topic.acls.enabled": ("sync_topic_acls", _flag),
    "sync.topic.acls.interval.seconds": ("acl_interval_ms", _seconds),
    "sync.group.offsets.enabled": ("sync_group_offsets", _flag),
    "emit.checkpoints.enabled": ("checkpoints", _flag),
    "emit.heartbeats.enabled": ("heartbeats", _flag),
    "emit.checkpoints.interval.seconds": ("checkpoint_interval_ms", _seconds),
    "emit.heartbeats.interval.seconds": ("heartbeat_interval_ms", _seconds),
    "refresh.topics.interval.seconds": ("refresh_interval_ms", _seconds),
    "offset-syncs.topic.location": ("offset_syncs", str),
    "offset.lag.max": ("offset_lag_max", int),
    "offset.flush.interval.ms": ("commit_interval_ms", int),
}


def parse_mirror_maker(
    properties: Mapping[str, str], client_options: Callable[[Mapping[str, str]], Mapping[str, Any]]
) -> MirrorMakerFlows:
    """Return the flows of a MirrorMaker 2 configuration, in the order of ``clusters``.

    ``client_options`` turns Kafka's names of client options into ours. A setting of a flow (``A->B.topics``) has
    precedence over the common one (``topics``). With ``B.exactly.once.source.support=enabled`` flows to ``B`` are
    exactly once.

    Raises:
        ConfigurationError: no flow is enabled, a cluster has no bootstrap servers, or a value is invalid.
    """
    clusters = _list(properties.get("clusters", ""))
    if not clusters:
        raise ConfigurationError("clusters is not set: it names the clusters, such as clusters = west, east")
    used = {"clusters"}
    flows = []
    for source in clusters:
        for target in clusters:
            prefix = f"{source}->{target}."
            enabled = properties.get(f"{prefix}enabled", properties.get("enabled", "false"))
            used |= {f"{prefix}enabled", "enabled"}
            if source != target and enabled.lower() == "true":
                flows.append(_flow(properties, source, target, client_options, used))
    if not flows:
        raise ConfigurationError(f"no flow is enabled: set {clusters[0]}->{clusters[-1]}.enabled = true")
    return MirrorMakerFlows(flows, sorted(properties.keys() - used))


def _flow(
    properties: Mapping[str, str],
    source: str,
    target: str,
    client_options: Callable[[Mapping[str, str]], Mapping[str, Any]],
    used: set[str],
) -> MirrorOptions:
    options: dict[str, Any] = {"source_alias": source, "target_alias": target}
    acls = {"sync_topic_acls": True}  # MirrorMaker's default, not ours
    for name, (option, convert) in _SETTINGS.items():
        for key in (f"{source}->{target}.{name}", name):
            used.add(key)
            if key in properties and option not in options:
                try:
                    options[option] = convert(properties[key].strip())
                except ValueError as error:
                    raise ConfigurationError(f"{key}={properties[key]!r}: {error}") from error
    support = f"{target}.exactly.once.source.support"
    used.add(support)
    options["exactly_once"] = properties.get(support, "disabled").lower() in ("enabled", "preparing")
    for side, alias in (("source", source), ("target", target)):
        given = {
            key.removeprefix(f"{alias}."): value
            for key, value in properties.items()
            if key.startswith(f"{alias}.") and key != support
        }
        used |= {f"{alias}.{key}" for key in given}
        if "bootstrap.servers" not in given:
            raise ConfigurationError(f"{alias}.bootstrap.servers is not set")
        options[side] = client_options(given)
    return MirrorOptions(**{**acls, **options})
