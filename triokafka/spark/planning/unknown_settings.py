"""Option names with the prefix ``kafka.``: the settings of Java's clients, and errors for unknown names.

Java's clients only log unknown settings. Here a probable typo is refused: with a misspelt isolation level a query reads
aborted records, and a line in the driver's log goes unnoticed. Settings of Java's consumer or producer without use here
are ignored, so that a program can migrate from the connector unchanged.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from triokafka.client.option_names import ABSENT, RENAMED
from triokafka.errors import ConfigurationError

PREFIX: Final = "kafka."

NO_PROTECTION: Final = "this package has no such option of TLS or SASL; docs/security.md lists those that it has"

WITHOUT_EFFECT: Final = frozenset((
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "bootstrap.resolve.timeout.ms",
    "config.providers", "enable.metrics.push", "exclude.internal.topics", "group.instance.id", "group.protocol",
    "group.remote.assignor", "heartbeat.interval.ms", "internal.auto.downgrade.txn.commit",
    "internal.leave.group.on.close", "internal.throw.on.fetch.stable.offset.unsupported", "max.poll.interval.ms",
    "max.poll.records", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode",
    "share.acquire.mode", "transaction.timeout.ms",
))  # fmt: skip
"""Settings of Java's clients, without the prefix, that do not affect reads or writes here: they concern group
membership, record-wise consumption, or Java's internals."""

OF_CONSUMERS: Final = frozenset((
    "auto.offset.reset", "check.crcs", "client.rack", "default.api.timeout.ms", "enable.auto.commit", "fetch.max.bytes",
    "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "interceptor.classes", "isolation.level", "key.deserializer",
    "max.partition.fetch.bytes", "value.deserializer",
))  # fmt: skip
"""Settings of Java's consumer only."""

OF_PRODUCERS: Final = frozenset((
    "acks", "batch.size", "buffer.memory", "compression.gzip.level", "compression.lz4.level", "compression.type",
    "compression.zstd.level", "delivery.timeout.ms", "enable.idempotence", "interceptor.classes", "key.serializer",
    "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection", "max.request.size", "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "partitioner.class",
    "partitioner.ignore.keys", "retries", "transaction.two.phase.commit.enable", "transactional.id", "value.serializer",
))  # fmt: skip
"""Settings of Java's producer only."""

_PREFIXES: Final = ("config.providers.", "metrics.context.")  # settings of Java plug-ins
_PROTECTION: Final = ("sasl.", "ssl.", "security.")


def is_passed_over(name: str, other_side: frozenset[str]) -> bool:
    """Whether a setting, named without the prefix, is known to Java's clients and has no effect here.

    Args:
        name: a setting that the client here does not have.
        other_side: the settings of readers for a write, and of writers for a read: users often pass one set of options
            to both.
    """
    return name in WITHOUT_EFFECT or name in other_side or name.startswith(_PREFIXES)


def refuse_misspelt(name: str, side: str, known: Iterable[str]) -> None:
    """Refuse a setting that neither this client nor Java's has and that resembles a known one. Does nothing otherwise.

    Args:
        name: the setting without the prefix.
        side: ``read`` or ``write``.
        known: the settings that are valid there, under their Python names.

    Raises:
        ConfigurationError: the name resembles a known one. The message has the name and never the value.
    """
    settings = {each: each.replace("_", ".") for each in known}
    setting = name.replace(".", "_").replace("-", "_")
    if name.startswith(_PROTECTION):
        # Ignoring it would read without the requested security.
        raise ConfigurationError(f"Kafka option '{name}' is not supported: {NO_PROTECTION}")
    if setting in settings:
        hint = f"did you mean '{PREFIX}{settings[setting]}'?"
    elif RENAMED.get(setting) in settings:
        hint = f"here it is '{PREFIX}{settings[RENAMED[setting]]}'"
    elif setting in _ABSENT:
        hint = _ABSENT[setting]
    elif near := difflib.get_close_matches(name, sorted({*settings.values(), *_JAVAS}), n=1, cutoff=0.8):
        hint = f"did you mean '{PREFIX}{near[0]}'?"
    else:
        return
    raise ConfigurationError(f"Unknown option '{PREFIX}{name}' of a {side}: {hint}")


def refuse_without_prefix(name: str, side: str, known: Iterable[str]) -> None:
    """Refuse a client setting without its prefix. Does nothing for any other name.

    Args:
        name: an option that neither the source nor Spark knows.
        side: ``read`` or ``write``.
        known: the settings that are valid there, under their Python names.

    Raises:
        ConfigurationError: with the prefix, the name is a setting. Ignoring it could read aborted records, or read
            without the requested security.
    """
    setting = name.replace(".", "_").replace("-", "_")
    if setting in known or name.startswith(_PROTECTION):
        raise ConfigurationError(
            f"Unknown option '{name}' of a {side}; did you mean '{PREFIX}{setting.replace('_', '.')}'?"
        )


def left_out(unknown: Iterable[str]) -> list[str]:
    """Return a warning about ignored unknown settings, named without the prefix; an empty list without any."""
    listed = ", ".join(f"'{PREFIX}{name}'" for name in sorted(unknown))
    return [f"options that no Kafka client knows are left out: {listed}"] if listed else []


_ABSENT: Final = {
    **ABSENT,
    "consumer_timeout_ms": "option kafkaConsumer.pollTimeoutMs says how long a task waits for records",
}
_JAVAS: Final = WITHOUT_EFFECT | OF_CONSUMERS | OF_PRODUCERS | {"bootstrap.servers", "security.protocol"}
