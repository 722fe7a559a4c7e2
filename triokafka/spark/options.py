"""What ``spark.read.format("triokafka")`` can be told: names, values and refusals of Spark's own Kafka connector."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from triokafka.errors import ConfigurationError

EARLIEST: Final = -2
LATEST: Final = -1

_KNOWN: Final = (
    "subscribe", "startingOffsets", "endingOffsets", "includeHeaders", "failOnDataLoss", "kafka.bootstrap.servers",
)  # fmt: skip
_NOT_YET: Final = (
    "assign", "subscribePattern", "startingTimestamp", "startingOffsetsByTimestamp", "endingTimestamp",
    "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
_REFUSED_CLIENT: Final = {
    "kafka.key.deserializer": "keys are always read as bytes; decode them with DataFrame operations",
    "kafka.value.deserializer": "values are always read as bytes; decode them with DataFrame operations",
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.auto.offset.reset": "use startingOffsets instead",
    "kafka.interceptor.classes": "interceptors of the JVM cannot run here",
    "kafka.group.id": "a batch read belongs to no group",
}

# Settings of the client that are text even where they look like a number.
_TEXT_SETTINGS: Final = frozenset(("client_id", "client_rack"))

OffsetBound = int | Mapping[str, Mapping[int, int]]
"""`EARLIEST`, `LATEST`, or an offset for each partition of each topic (which may be one of these as well)."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of one read, checked.

    Args:
        bootstrap_servers: addresses to begin with.
        topics: names, in the order given, each once.
        starting, ending: where each partition's range begins and ends.
        include_headers: whether the ``headers`` column is there.
        client: further settings of the client, under its own names. They may hold passwords, so no repr shows them:
            Spark can print the local variables of a failed task.
    """

    bootstrap_servers: str
    topics: tuple[str, ...]
    starting: OffsetBound
    ending: OffsetBound
    include_headers: bool
    client: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Check the options that the user gave to Spark, which compares their names without regard to case.

        Raises:
            ConfigurationError: one is missing, unknown or cannot be used; the message names it.
        """
        given = {name.lower(): value for name, value in options.items()}
        client = _client_settings(given)
        _refuse_unknown(given)
        servers = given.get("kafka.bootstrap.servers", "").strip()
        if not servers:
            raise ConfigurationError(
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"
            )
        topics = tuple(dict.fromkeys(name.strip() for name in given.get("subscribe", "").split(",") if name.strip()))
        if not topics:
            raise ConfigurationError("Option 'subscribe' must name at least one topic, as in 'orders,payments'")
        if not _flag("failOnDataLoss", given.get("failondataloss", "true")):
            raise ConfigurationError(
                "Option 'failOnDataLoss' can only be 'true' in format 'triokafka': deleted offsets fail the read"
            )
        _check_client(servers, client)
        return cls(
            bootstrap_servers=servers,
            topics=topics,
            starting=_bound("startingOffsets", given.get("startingoffsets", "earliest"), topics, EARLIEST, LATEST),
            ending=_bound("endingOffsets", given.get("endingoffsets", "latest"), topics, LATEST, EARLIEST),
            include_headers=_flag("includeHeaders", given.get("includeheaders", "false")),
            client=client,
        )


def _client_settings(given: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if not name.startswith("kafka.") or name == "kafka.bootstrap.servers":
            continue
        if name in _REFUSED_CLIENT:
            raise ConfigurationError(
                f"Kafka option '{name.removeprefix('kafka.')}' is not supported: {_REFUSED_CLIENT[name]}"
            )
        setting = name.removeprefix("kafka.").replace(".", "_")
        settings[setting] = _value(setting, value)
    return settings


def _check_client(servers: str, settings: Mapping[str, Any]) -> None:
    """Let the client look at its settings now, so that a wrong one fails ``load()`` and not the first query."""
    import triokafka

    try:
        triokafka.RangeReader({}, bootstrap_servers=servers, **settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"A 'kafka.' option cannot be used: {error}") from None


def _value(setting: str, text: str) -> Any:
    if setting in _TEXT_SETTINGS:
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return text


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*_KNOWN, *_NOT_YET)}
    for name in given:
        if name.startswith("kafka.") and name not in known:
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean '{known[near[0]]}'?" if near else ""
            raise ConfigurationError(f"Unknown option '{name}'{hint}")
        if known[name] in _NOT_YET:
            raise ConfigurationError(f"Option '{known[name]}' is not supported yet by format 'triokafka'")


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"Option '{name}' must be 'true' or 'false', not '{text}'")
    return text.lower() == "true"


def _bound(name: str, text: str, topics: tuple[str, ...], word_value: int, refused: int) -> OffsetBound:
    """Read ``earliest``, ``latest`` or ``{"topic": {"0": 23}}``; a range cannot start at latest or end at earliest."""
    word = {EARLIEST: "earliest", LATEST: "latest"}
    cleaned = text.strip()
    if cleaned.lower() == word[word_value]:
        return word_value
    if cleaned.lower() == word[refused]:
        side = "starting" if refused == LATEST else "ending"
        raise ConfigurationError(f"{side} offset can't be {word[refused]} for batch queries on Kafka")
    try:
        parsed = json.loads(cleaned)
        offsets = {topic: {int(p): _whole(o) for p, o in parts.items()} for topic, parts in parsed.items()}
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(
            f'Option \'{name}\' expects {word[word_value]} or JSON like {{"topic": {{"0": 23, "1": -2}}}}, got {text}'
        ) from None
    if set(offsets) != set(topics):
        raise ConfigurationError(
            f"If {name} contains specific offsets, you must specify all topics: "
            f"expected {sorted(topics)}, got {sorted(offsets)}"
        )
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if offset == refused:
                what = "startingOffsets" if refused == LATEST else "ending offset"
                raise ConfigurationError(
                    f"{what} for {topic}-{partition} can't be {word[refused]} for batch queries on Kafka"
                )
            if offset < EARLIEST:
                raise ConfigurationError(f"{name} for {topic}-{partition} is {offset}, which is no offset")
    return offsets


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no offset")
    return value
