"""Names of options that begin with ``kafka.``: what Java's clients know, and what is said of a name that nobody knows.

Java's clients only log a line about unknown settings. What looks like a slip of the pen is refused here: a misspelt
isolation level reads aborted records, and nobody looks into the log of a driver. What Java's consumer or producer
knows, and these clients have no use for, is passed over, so that a program moves from the connector as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from triokafka.client.option_names import ABSENT, RENAMED
from triokafka.errors import ConfigurationError

PREFIX: Final = "kafka."

NO_PROTECTION: Final = "TLS and SASL are not there yet, so use a listener of the brokers that is PLAINTEXT"

WITHOUT_EFFECT: Final = frozenset((
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.include.jmx.reporter", "bootstrap.resolve.timeout.ms",
    "config.providers", "enable.metrics.push", "exclude.internal.topics", "group.instance.id", "group.protocol",
    "group.remote.assignor", "heartbeat.interval.ms", "internal.auto.downgrade.txn.commit",
    "internal.leave.group.on.close", "internal.throw.on.fetch.stable.offset.unsupported", "max.poll.interval.ms",
    "max.poll.records", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partition.assignment.strategy", "session.timeout.ms", "share.acknowledgement.mode",
    "share.acquire.mode", "transaction.timeout.ms",
))  # fmt: skip
"""Settings of Java's clients, without the prefix, that change nothing of what is read or written here: they belong to
members of a group, to records handed out one by one, or to Java's own workings."""

OF_CONSUMERS: Final = frozenset((
    "auto.offset.reset", "check.crcs", "client.rack", "default.api.timeout.ms", "enable.auto.commit", "fetch.max.bytes",
    "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "interceptor.classes", "isolation.level", "key.deserializer",
    "max.partition.fetch.bytes", "value.deserializer",
))  # fmt: skip
"""Settings of Java's consumer alone."""

OF_PRODUCERS: Final = frozenset((
    "acks", "batch.size", "buffer.memory", "compression.gzip.level", "compression.lz4.level", "compression.type",
    "compression.zstd.level", "delivery.timeout.ms", "enable.idempotence", "interceptor.classes", "key.serializer",
    "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection", "max.request.size", "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "partitioner.class",
    "partitioner.ignore.keys", "retries", "transaction.two.phase.commit.enable", "transactional.id", "value.serializer",
))  # fmt: skip
"""Settings of Java's producer alone."""

_PREFIXES: Final = ("config.providers.", "metrics.context.")  # of settings that name plug-ins of Java's
_PROTECTION: Final = ("sasl.", "ssl.", "security.")


def is_passed_over(name: str, other_side: frozenset[str]) -> bool:
    """Whether a setting, named without the prefix, is known to Java's clients and does nothing here.

    Args:
        name: of a setting that the client here does not have.
        other_side: what belongs to readers when something is written, and the other way round: one set of options is
            often given to both.
    """
    return name in WITHOUT_EFFECT or name in other_side or name.startswith(_PREFIXES)


def refuse_misspelt(name: str, side: str, known: Iterable[str]) -> None:
    """Say what was probably meant by a setting that neither this package's clients nor Java's have; nothing, when that
    cannot be guessed.

    Args:
        name: without the prefix.
        side: ``read`` or ``write``.
        known: settings that can be given there, as they are called in Python.

    Raises:
        ConfigurationError: it is nearly the name of another one. Tells the name, and never the value.
    """
    settings = {each: each.replace("_", ".") for each in known}
    setting = name.replace(".", "_").replace("-", "_")
    if name.startswith(_PROTECTION):
        # Left out, it would be read without the protection that was asked for.
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
    """Say that a setting of a client lacks its prefix; nothing, when it is none.

    Args:
        name: of an option that neither the source nor Spark knows.
        side: ``read`` or ``write``.
        known: settings that can be given there, as they are called in Python.

    Raises:
        ConfigurationError: with the prefix it is one. Left out, aborted records would be read, say, or without the
            protection that was asked for.
    """
    setting = name.replace(".", "_").replace("-", "_")
    if setting in known or name.startswith(_PROTECTION):
        raise ConfigurationError(
            f"Unknown option '{name}' of a {side}; did you mean '{PREFIX}{setting.replace('_', '.')}'?"
        )


def left_out(unknown: Iterable[str]) -> list[str]:
    """A warning about settings of which nobody knows what was meant, named without the prefix; none without them."""
    listed = ", ".join(f"'{PREFIX}{name}'" for name in sorted(unknown))
    return [f"options that no Kafka client knows are left out: {listed}"] if listed else []


_ABSENT: Final = {
    **ABSENT,
    "consumer_timeout_ms": "option kafkaConsumer.pollTimeoutMs says how long a task waits for records",
}
_JAVAS: Final = WITHOUT_EFFECT | OF_CONSUMERS | OF_PRODUCERS | {"bootstrap.servers", "security.protocol"}
