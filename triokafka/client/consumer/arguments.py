"""Checks of partitions and offsets in calls of `Consumer`."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Final

from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.topic_names import check_topic_name

_MOST_PARTITION: Final = 2**31 - 1
_MOST_OFFSET: Final = 2**63 - 1


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
