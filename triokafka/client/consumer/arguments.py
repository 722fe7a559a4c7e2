"""Checks of the arguments of `Consumer`: partitions, offsets and time limits."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from math import isnan
from operator import index
from typing import Final

from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.topic_names import check_topic_name

_MOST_PARTITION: Final = 2**31 - 1
_MOST_OFFSET: Final = 2**63 - 1
_MOST_RECORDS: Final = sys.maxsize


def checked_partitions(given: Iterable[object]) -> list[TopicPartition]:
    """Return partitions given as `TopicPartition` or as pairs of topic and number.

    Raises:
        TypeError: an element is neither.
        InvalidTopicError: the topic name is invalid.
        ValueError: the number is negative, or larger than the maximum.
    """
    if isinstance(given, (str, bytes, TopicPartition)) or not isinstance(given, Iterable):
        raise TypeError(f"partitions must be an iterable of TopicPartition, not {given!r}")
    partitions: list[TopicPartition] = []
    for one in given:
        if not isinstance(one, tuple) or len(one) != 2:
            raise TypeError(f"a partition must be a TopicPartition, not {one!r}")
        topic, number = one
        check_topic_name(topic)
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise TypeError(f"partition {number!r} of topic {topic!r}: the number of a partition is an int")
        if not 0 <= number <= _MOST_PARTITION:
            raise ValueError(f"partition {number} of topic {topic!r}: partitions count from 0 to {_MOST_PARTITION}")
        partitions.append(TopicPartition(topic, index(number)))
    return partitions


def checked_offset(partition: TopicPartition, given: object) -> OffsetAndMetadata:
    """Return an offset of a call, checked. Raises `TypeError` and `ValueError`."""
    target = OffsetAndMetadata(given) if isinstance(given, int) and not isinstance(given, bool) else given
    if not isinstance(target, OffsetAndMetadata) or not isinstance(target.offset, int):
        raise TypeError(f"{partition}: an offset must be an int or OffsetAndMetadata, not {given!r}")
    if target.offset > _MOST_OFFSET:
        raise ValueError(f"{partition}: offset {target.offset} is larger than the largest offset")
    return target


def checked_offsets(given: object, what: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets of call ``what`` by partition, checked. Raises `TypeError` and `ValueError`."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: offsets must be a mapping of partitions to offsets, not {given!r}")
    return {
        partition: checked_offset(partition, offset)
        for partition, offset in zip(checked_partitions(given), given.values(), strict=True)
    }


def checked_limit(max_records: int) -> int:
    """Return a maximum number of records, checked. Raises `TypeError` and `ValueError`."""
    if isinstance(max_records, bool) or not hasattr(max_records, "__index__"):
        raise TypeError(f"max_records must be an int, not {max_records!r}")
    if max_records < 1:
        raise ValueError(f"max_records={max_records}: it must be at least 1")
    return min(max_records, _MOST_RECORDS)


def checked_timeout_ms(given: float) -> float:
    """Return a time limit of a call, checked. Raises `TypeError`."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or isnan(given):
        raise TypeError(f"timeout_ms must be a number of milliseconds, not {given!r}")
    return given
