"""Bounds of a bounded read: resolves the user's start and end to current offsets of every partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Unpack
from uuid import UUID

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.log_offsets import LogOffsets
from triokafka.client.consumer.subscription_state import EARLIEST, LATEST
from triokafka.client.keywords import ConsumerKeywords
from triokafka.client.range_session import OffsetRange
from triokafka.errors import ConfigurationError, KafkaError, UnknownTopicOrPartitionError
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition
from triokafka.world import World
from triokafka.world.system import RealWorld

Word = Literal["earliest", "latest"]
Bound = Word | datetime | int | Mapping[TopicPartition, int | Word | datetime] | Mapping[int, int | Word | datetime]
"""Start or end of a read: each partition's current first or last offset; a time, given as a datetime (local time if it
has no time zone) or in milliseconds since the epoch; or an offset, word or datetime for each partition (-2 and -1 stand
for the first and the last offset). With one topic, partitions may be plain numbers.
"""

_SPECIAL: Final = {"earliest": EARLIEST, "latest": LATEST}


class ResolvedRanges(NamedTuple):
    """The offset ranges of a bounded read."""

    ranges: dict[TopicPartition, OffsetRange]
    topic_ids: dict[str, UUID]
    """The topics' ids, fetched before the offsets, so that the reader detects a topic recreated after that (KIP-516).
    Brokers before Kafka 2.8 return no ids."""


async def resolve_ranges(
    topics: Iterable[str],
    start: Bound,
    end: Bound,
    *,
    world: World | None = None,
    **options: Unpack[ConsumerKeywords],
) -> ResolvedRanges:
    """Return the offset ranges of all partitions of ``topics`` between two bounds, from the brokers' current offsets.

    A mapping limits the read to its partitions. A time stands for the first record at or after it, or for the end if
    there is no such record. An end before the start gives an empty range.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist, or a mapping names a partition that does not exist.
        ConfigurationError: a bound is invalid.
        KafkaTimeoutError: no answer within ``default_api_timeout_ms``.
    """
    names = list(topics)
    first, last = _checked("start", start, names), _checked("end", end, names)
    parsed = ConsumerOptions.parse(options)
    actual = world if world is not None else RealWorld()
    network = NetworkClient(parsed.network(client_id="triokafka-reader", allow_auto_create_topics=False), world=actual)
    async with network:
        cluster = await network.metadata_for(names, timeout_ms=parsed.default_api_timeout_ms)
        topic_ids, _ = cluster.ids_of(names)
        partitions = [TopicPartition(topic, number) for topic in names for number in cluster.topics[topic].partitions]
        there = partitions
        for bound in (first, last):
            if isinstance(bound, dict):
                _refuse_missing(bound, there)
                partitions = [partition for partition in partitions if partition in bound]
        offsets = LogOffsets(parsed, network)
        deadline = actual.now() + parsed.default_api_timeout_ms / 1000
        starts = await _resolve(offsets, partitions, first, deadline)
        ends = await _resolve(offsets, partitions, last, deadline)
    ranges = {partition: (starts[partition], max(starts[partition], ends[partition])) for partition in partitions}
    return ResolvedRanges(ranges, topic_ids)


# The timestamp for ListOffsets (a time, or one of its special values), or a known offset.
_Place = tuple[Literal["ask", "offset"], int]


def _checked(name: str, bound: Bound, topics: Sequence[str]) -> _Place | dict[TopicPartition, _Place]:
    if isinstance(bound, Mapping):
        return {_partition(name, key, topics): _place(name, value, is_offset=True) for key, value in bound.items()}
    return _place(name, bound, is_offset=False)


def _partition(name: str, key: Any, topics: Sequence[str]) -> TopicPartition:
    if isinstance(key, int) and len(topics) == 1:
        return TopicPartition(topics[0], key)
    if isinstance(key, tuple) and len(key) == 2 and key[0] in topics:
        return TopicPartition(*key)
    raise ConfigurationError(
        f"{name}: {key!r} is not a partition of {', '.join(topics)}: use TopicPartition(topic, number), or the number"
        " alone when there is one topic"
    )


def _place(name: str, value: Any, *, is_offset: bool) -> _Place:
    if isinstance(value, datetime):
        return ("ask", round(value.timestamp() * 1000))
    if isinstance(value, str) and value in _SPECIAL:
        return ("ask", _SPECIAL[value])
    if isinstance(value, int) and not isinstance(value, bool) and value >= EARLIEST:
        return ("offset", value) if is_offset and value >= 0 else ("ask", value)
    raise ConfigurationError(
        f"{name}={value!r}: use 'earliest', 'latest', a datetime, milliseconds since the epoch, or offsets by partition"
    )


def _refuse_missing(bound: Mapping[TopicPartition, _Place], partitions: Sequence[TopicPartition]) -> None:
    for partition in bound:
        same = [each.partition for each in partitions if each.topic == partition.topic]
        if partition.partition not in same:
            raise UnknownTopicOrPartitionError.of_partition(
                f"there is no partition {partition}: topic {partition.topic!r} has {min(same)} to {max(same)}"
            )


async def _resolve(
    offsets: LogOffsets,
    partitions: Sequence[TopicPartition],
    bound: _Place | dict[TopicPartition, _Place],
    deadline: float,
) -> dict[TopicPartition, int]:
    places = bound if isinstance(bound, dict) else dict.fromkeys(partitions, bound)
    asked = {partition: places[partition][1] for partition in partitions if places[partition][0] == "ask"}
    found = await offsets.list_offsets(asked, deadline=deadline) if asked else {}
    late = [partition for partition in asked if found[partition] is None]
    ends = await offsets.list_offsets(dict.fromkeys(late, LATEST), deadline=deadline) if late else {}
    resolved: dict[TopicPartition, int] = {}
    for partition in partitions:
        if partition not in asked:
            resolved[partition] = places[partition][1]
            continue
        offset = found[partition] or ends.get(partition)
        if offset is None:
            raise KafkaError(f"the leader of {partition} did not return its end offset")
        resolved[partition] = offset.offset
    return resolved
