"""Checks and conversions of one record's fields, and the cluster as a partitioner sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from triokafka.blocking.producer.chunk import Headers

_BYTES: Final = (bytes, bytearray, memoryview, type(None))


def checked_headers(headers: Headers | tuple[tuple[str, bytes], ...] | None) -> Headers:
    """Return the headers as a list; a tuple, as consumed records have, is allowed too. Raises `TypeError`."""
    if headers is None:
        return []
    if isinstance(headers, tuple):
        headers = list(headers)
    if not isinstance(headers, list):
        raise TypeError("headers must be list-type")
    for item in headers:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], bytes)):
            raise TypeError("All headers items must be (str, bytes) tuples")
    return headers


def check_timestamp(timestamp_ms: int | None) -> None:
    """Check a timestamp in milliseconds. Raises `TypeError` or `ValueError`."""
    if timestamp_ms is None:
        return
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp_ms must be an int, not {timestamp_ms!r}")
    if not 0 <= timestamp_ms < 2**63:
        raise ValueError(f"timestamp_ms={timestamp_ms} is not a number of milliseconds since the epoch")


def serialized(serializer: Any, topic: str, headers: Headers, given: Any, what: str) -> Any:
    """Return a key or value as bytes, or None. Raises `TypeError`, and errors of the serializer."""
    data = given if serializer is None else serializer.serialize(topic, headers, given)
    if not isinstance(data, _BYTES):
        raise TypeError(f"Unsupported type for serialized {what}: {type(data)}")
    # Copy mutable data: the sender may change it before the record is sent.
    return bytes(data) if isinstance(data, (bytearray, memoryview)) else data


class TopicView:
    """The cluster as a partitioner sees it: one topic."""

    def __init__(self, topic: str, partitions: Sequence[Any]) -> None:
        self._topic = topic
        self._partitions = partitions

    def topics(self) -> set[str]:
        """Return the name of the record's topic, the only one that is known here."""
        return {self._topic}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of the topic's partitions; None for another topic."""
        return {partition.partition for partition in self._partitions} if topic == self._topic else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions that have a leader."""
        if topic != self._topic:
            return None
        return {partition.partition for partition in self._partitions if partition.leader >= 0}
