"""Where a read starts and ends, and offsets as JSON: the forms of Spark's own Kafka connector. No I/O.

The JSON of offsets is what Spark writes into checkpoints and compares as text, so it always comes out in the same
order: topics by name, partitions by number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.structs import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
MAX_OFFSET: Final = 2**63 - 1

Offsets = Mapping[TopicPartition, int]
"""An offset for each partition: the next one to be read."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The beginning (`EARLIEST`) or the end (`LATEST`) of every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, or `EARLIEST` or `LATEST`."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after ``timestamp_ms`` in every partition.

    ``otherwise_latest``: what holds for a start without such a record. True stands for the end of the partition, False
    for an error. An end without such a record is always the end of the partition.
    """

    timestamp_ms: int
    otherwise_latest: bool = False


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The same with a time for each partition."""

    timestamps_ms: Offsets
    otherwise_latest: bool = False


@dataclass(frozen=True, slots=True)
class AtGroup:
    """What a consumer group has committed, in every partition."""

    group_id: str


Bound = Everywhere | AtOffsets | AtTimestamp | AtTimestamps | AtGroup
"""One end of a read: where it starts, or where it ends."""


def offsets_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as Spark keeps them: ``{"topic": {"0": 23}}``, always in the same order."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(number)] = offset
    return nested


def format_offsets(offsets: Offsets) -> str:
    """Offsets as the connector writes them into checkpoints: JSON without spaces, always in the same order."""
    return json.dumps(offsets_json(offsets), separators=(",", ":"), ensure_ascii=False)


def parse_offsets(text: str | Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Offsets from JSON, as text or parsed already, from a checkpoint or an option. They come out in order.

    Raises:
        ConfigurationError: it is not of that form.
    """
    return _by_partition(text, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got ')


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """Times in milliseconds since 1970 for partitions, from the same form of JSON.

    Raises:
        ConfigurationError: it is not of that form.
    """
    return _by_partition(
        text,
        'Expected e.g. {"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}, got ',
    )


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Partitions from ``{"topicA":[0,1]}``, in order and each once.

    Raises:
        ConfigurationError: it is not of that form.
    """
    try:
        parsed = _strict_json(text)
        found = {
            TopicPartition(topic, _whole(number))
            for topic, numbers in parsed.items()
            for number in _list_of_numbers(numbers)
        }
        if any(partition.partition < 0 for partition in found):
            raise ValueError("partitions are counted from 0")
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(f'Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {text}') from None
    return tuple(sorted(found))


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as ``{"topicA":[0,1]}``, in order."""
    nested: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        nested.setdefault(topic, []).append(number)
    return json.dumps(nested, separators=(",", ":"), ensure_ascii=False)


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for a sentence: ``orders-0, orders-1``."""
    return ", ".join(str(partition) for partition in sorted(partitions))


def _by_partition(given: str | Mapping[str, Any], expected: str) -> dict[TopicPartition, int]:
    try:
        parsed = given if isinstance(given, Mapping) else _strict_json(given)
        found = {
            TopicPartition(topic, _number(key)): _whole(value)
            for topic, numbers in parsed.items()
            for key, value in numbers.items()
        }
        if len(found) != sum(map(len, parsed.values())):
            raise ValueError("a partition comes twice, as 0 and 00")
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(f"{expected}{given}") from None
    return dict(sorted(found.items()))


def _strict_json(text: str) -> Any:
    """JSON in which no name comes twice: of two offsets for one partition neither can be meant."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name comes twice")
        return found

    decode: Callable[..., Any] = json.loads
    return decode(text, object_pairs_hook=once)


def _number(key: str) -> int:
    if not (key.isascii() and key.isdigit()):
        raise ValueError(f"{key!r} is no partition")
    return int(key)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -MAX_OFFSET <= value <= MAX_OFFSET:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _list_of_numbers(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value
