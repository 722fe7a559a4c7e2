"""Offsets as JSON, in the form of Spark's own Kafka connector: in options, and in checkpoints. No I/O.

Spark writes the JSON of offsets into checkpoints and compares it as text, so its order is fixed: topics by name,
partitions by number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.bounds import MAX_OFFSET, Offsets
from triokafka.structs import TopicPartition


def offsets_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in Spark's form, ``{"topic": {"0": 23}}``, in the fixed order."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(number)] = offset
    return nested


def format_offsets(offsets: Offsets) -> str:
    """Return offsets as the connector writes them into checkpoints: JSON without spaces, in the fixed order."""
    return json.dumps(offsets_json(offsets), separators=(",", ":"), ensure_ascii=False)


def parse_offsets(text: str | Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Parse offsets from JSON, as text or already parsed, from a checkpoint or an option. The result is sorted.

    Raises:
        ConfigurationError: it does not have this form.
    """
    return _by_partition(text, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got ')


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """Parse timestamps by partition, in milliseconds since 1970, from the same form of JSON.

    Raises:
        ConfigurationError: it does not have this form.
    """
    return _by_partition(
        text,
        'Expected e.g. {"topicA": {"0": 123456789, "1": 123456789}, "topicB": {"0": 123456789, "1": 123456789}}, got ',
    )


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Parse partitions from ``{"topicA":[0,1]}``; the result is sorted and without duplicates.

    Raises:
        ConfigurationError: it does not have this form.
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


def _by_partition(given: str | Mapping[str, Any], expected: str) -> dict[TopicPartition, int]:
    try:
        parsed = given if isinstance(given, Mapping) else _strict_json(given)
        found = {
            TopicPartition(topic, _number(key)): _whole(value)
            for topic, numbers in parsed.items()
            for key, value in numbers.items()
        }
        if len(found) != sum(map(len, parsed.values())):
            raise ValueError("a partition appears twice, as 0 and 00")
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(f"{expected}{given}") from None
    return dict(sorted(found.items()))


def _strict_json(text: str) -> Any:
    """Parse JSON and refuse duplicate names: two offsets for one partition are ambiguous."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name appears twice")
        return found

    decode: Callable[..., Any] = json.loads
    return decode(text, object_pairs_hook=once)


def _number(key: str) -> int:
    if not (key.isascii() and key.isdigit()):
        raise ValueError(f"{key!r} is not a partition")
    return int(key)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -MAX_OFFSET <= value <= MAX_OFFSET:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _list_of_numbers(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value
