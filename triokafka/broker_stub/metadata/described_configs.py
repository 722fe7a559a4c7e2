"""Configuration entries for DescribeConfigs: each key with its value, its source and its synonyms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from triokafka.broker_stub.config import DEFINITIONS, BrokerConfig, UpdateMode
from triokafka.broker_stub.config.broker_config import ALIASES, is_hidden, is_known
from triokafka.broker_stub.log import config as log_config
from triokafka.broker_stub.log.config import LogConfigDefinition as TopicDefinition
from triokafka.broker_stub.metadata import group_and_metrics_configs
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.configuration import ConfigResourceType, ConfigSource

_WEAKER: Final = {
    name: tuple(other for other, _ in definition.broker_keys[number + 1 :])
    for definition in log_config.DEFINITIONS.values()
    for number, (name, _) in enumerate(definition.broker_keys)
}
"""Alternative broker options with the same meaning, by option: ``log.retention.hours`` for the minutes."""


class ConfigSynonym(NamedTuple):
    """A key and value that apply unless an earlier synonym is set."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One key. The first of ``synonyms`` applies; a secret has no value. ``type`` is the protocol's number."""

    name: str
    value: str | None
    source: ConfigSource
    type: int
    documentation: str | None
    sensitive: bool
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]


def _broker_synonyms(name: str, config: BrokerConfig, image: MetadataImage) -> list[ConfigSynonym]:
    """Return the values of a broker option by source, the strongest first."""
    definition = DEFINITIONS[name]
    dynamic = image.broker_configs(config.node_id).get(name)
    cluster = image.broker_configs(None).get(name)
    static = None if config.is_default(name) else config.text(name)
    found = [
        (dynamic, ConfigSource.DYNAMIC_BROKER),
        (cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (static, ConfigSource.STATIC_BROKER),
        (definition.default_text, ConfigSource.DEFAULT),
    ]
    hidden = definition.sensitive
    return [ConfigSynonym(name, None if hidden else text, source) for text, source in found if text is not None]


def _scaled(text: str | None, factor: int) -> str | None:
    # Only whole numbers are converted; -1 means "no limit" in each unit.
    return text if text is None or factor == 1 or int(text) <= 0 else str(int(text) * factor)


def _by_source(names: Sequence[str], config: BrokerConfig, image: MetadataImage) -> list[ConfigSynonym]:
    """Return the values of several broker options: dynamic ones before static ones, defaults at the end."""
    found = [synonym for name in names for synonym in _broker_synonyms(name, config, image)]
    return sorted(found, key=lambda synonym: synonym.source)


def _inherited(
    definition: TopicDefinition, config: BrokerConfig, image: MetadataImage
) -> tuple[str | None, list[ConfigSynonym]]:
    """Return the value of a key that a topic does not override, and the broker options that give it.

    Options in another unit (``log.retention.hours``) keep their names and values. If only the default of such an option
    applies, it is omitted, as in Kafka.
    """
    factors = dict(definition.broker_keys)
    names = list(factors)
    synonyms = _by_source(names, config, image)
    if not synonyms or (synonyms[0].source is ConfigSource.DEFAULT and synonyms[0].name != names[0]):
        return definition.format(definition.default), []
    value = _scaled(synonyms[0].value, factors[synonyms[0].name])
    if definition.name == "retention.ms" and value is not None and int(value) < 0:
        value = "-1"  # the broker's options take any negative number for "no limit"
    return value, synonyms


def inherited_entries(config: BrokerConfig, image: MetadataImage) -> dict[str, ConfigEntry]:
    """Return every key of a topic without overrides, by name."""
    entries = {}
    for name, definition in sorted(log_config.DEFINITIONS.items()):
        value, synonyms = _inherited(definition, config, image)
        entries[name] = _entry(name, definition, value, synonyms)
    return entries


def topic_entries(inherited: Mapping[str, ConfigEntry], overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every key of a topic with ``overrides``, by name. Inherited keys are the given objects."""
    entries = []
    for name, entry in inherited.items():
        value = overrides.get(name)
        if value is not None:
            own = ConfigSynonym(name, value, ConfigSource.TOPIC)
            entry = entry._replace(value=value, source=ConfigSource.TOPIC, synonyms=(own, *entry.synonyms))
        elif log_config.DEFINITIONS[name].internal:
            continue
        entries.append(entry)
    return entries


def resource_entries(resource_type: int, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every key of a group or client metrics subscription with ``overrides``, by name."""
    source = ConfigSource.GROUP if resource_type == ConfigResourceType.GROUP else ConfigSource.CLIENT_METRICS
    entries = []
    for name, definition in sorted(group_and_metrics_configs.DEFINITIONS[resource_type].items()):
        value = definition.format(definition.default)
        keys = [key for key, _ in definition.broker_keys]
        if resource_type == ConfigResourceType.GROUP and not keys:
            keys = [name]
        synonyms = [ConfigSynonym(key, value, ConfigSource.DEFAULT) for key in keys]
        if name in overrides:
            value = overrides[name]
            synonyms.insert(0, ConfigSynonym(name, value, source))
        entries.append(_entry(name, definition, value, synonyms))
    return entries


def _entry(name: str, definition: TopicDefinition, value: str | None, synonyms: Sequence[ConfigSynonym]) -> ConfigEntry:
    """Return the entry of a writable, non-secret key; the first synonym applies."""
    return ConfigEntry(
        name=name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=definition.type,
        documentation=definition.doc,
        sensitive=False,
        read_only=False,
        synonyms=tuple(synonyms),
    )


def logger_entries(levels: Mapping[str, str]) -> list[ConfigEntry]:
    """Return the levels of loggers, by logger name."""
    return [
        ConfigEntry(
            name=name,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            type=log_config.ConfigType.STRING,
            documentation="",
            sensitive=False,
            read_only=False,
            synonyms=(),
        )
        for name, level in levels.items()
    ]


def broker_entries(config: BrokerConfig, image: MetadataImage, *, cluster_wide: bool) -> list[ConfigEntry]:
    """Return every option of this broker, by name; with ``cluster_wide`` the dynamic ones of the whole cluster only."""
    cluster = image.broker_configs(None)
    own = image.broker_configs(config.node_id)
    if cluster_wide:
        return [_dynamic_entry(name, cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER) for name in sorted(cluster)]
    entries = []
    for name, definition in DEFINITIONS.items():
        others = _WEAKER.get(name, ())
        synonyms = _by_source((name, *others), config, image) if others else _broker_synonyms(name, config, image)
        if synonyms and synonyms[0].name != name:
            synonyms = []
        if definition.internal and synonyms and synonyms[0].source is ConfigSource.DEFAULT:
            continue
        entries.append(
            ConfigEntry(
                name=name,
                value=synonyms[0].value if synonyms else None,
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                type=definition.type,
                documentation=definition.documentation,
                sensitive=definition.sensitive,
                read_only=definition.update_mode is UpdateMode.READ_ONLY,
                synonyms=tuple(synonyms),
            )
        )
    described = {entry.name: entry for entry in entries}
    for alias, name in ALIASES.items():  # Kafka lists such an option under both names
        same = described[name]
        renamed = tuple(synonym._replace(name=alias) for synonym in same.synonyms)
        entries.append(same._replace(name=alias, synonyms=renamed))
    for name in sorted({*cluster, *own} - set(DEFINITIONS)):
        values, source = (own, ConfigSource.DYNAMIC_BROKER)
        if name not in own:
            values, source = (cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        entries.append(_dynamic_entry(name, values, source))
    for name, text in {**(config.unused or {}), **(config.security or {})}.items():
        if name not in own and name not in cluster:
            entries.append(_dynamic_entry(name, {name: text}, ConfigSource.STATIC_BROKER))
    return sorted(entries, key=lambda entry: entry.name)


def _dynamic_entry(name: str, values: Mapping[str, str], source: ConfigSource) -> ConfigEntry:
    definition = DEFINITIONS.get(name)
    hidden = is_hidden(name) or (definition is not None and definition.sensitive)
    value = None if hidden else values[name]
    return ConfigEntry(
        name=name,
        value=value,
        source=source,
        type=definition.type if definition else 0,
        documentation=definition.documentation if definition else None,
        sensitive=hidden,
        read_only=source is ConfigSource.STATIC_BROKER or not is_known(name),
        synonyms=(ConfigSynonym(name, value, source),),
    )
