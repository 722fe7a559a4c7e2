"""The options for the start and the end of a read, with the connector's precedence.

A timestamp for all partitions takes precedence over timestamps by partition, and these over offsets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.bounds import (
    EARLIEST,
    LATEST,
    MAX_OFFSET,
    AtGroup,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    Everywhere,
    names,
)
from triokafka.spark.planning.offsets_json import parse_offsets, parse_timestamps
from triokafka.spark.planning.option_values import choice
from triokafka.structs import TopicPartition

T = TypeVar("T")


def starting_bound(given: Mapping[str, str], *, streaming: bool, group_id: str | None) -> Bound:
    """Return where a query starts. The default is the latest offset for a streaming query, the earliest for a batch.

    Raises:
        ConfigurationError: an option is invalid, or a batch would start at the latest offset.
    """
    found = _bound(given, "starting", LATEST if streaming else EARLIEST, group_id)
    if streaming:
        return found
    if found == Everywhere(LATEST):
        raise ConfigurationError("starting offset can't be latest for batch queries on Kafka")
    for partition in _partitions_at(found, LATEST):
        raise ConfigurationError(f"startingOffsets for {partition} can't be latest for batch queries on Kafka")
    return found


def ending_bound(given: Mapping[str, str]) -> Bound:
    """Return where a batch ends. The default is the latest offset.

    Raises:
        ConfigurationError: an option is invalid, or the batch would end at the earliest offset.
    """
    found = _bound(given, "ending", LATEST, None)
    if found == Everywhere(EARLIEST):
        raise ConfigurationError("ending offset can't be earliest for batch queries on Kafka")
    for partition in _partitions_at(found, EARLIEST):
        raise ConfigurationError(f"ending offset for {partition} can't be earliest for batch queries on Kafka")
    return found


def check_bounds(starting: Bound, ending: Bound, *, missing_ok: bool = False) -> None:
    """Check start and end against each other as far as possible without a broker.

    Args:
        missing_ok: whether either may omit partitions that the other names (``onMissingPartitions``).

    Raises:
        ConfigurationError: the two name different partitions, or a start is after its end.
    """
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        starts, ends, what = starting.offsets, ending.offsets, "offset"
    elif isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        starts, ends, what = starting.timestamps_ms, ending.timestamps_ms, "timestamp"
    else:
        if isinstance(starting, AtTimestamp) and isinstance(ending, AtTimestamp):
            _in_order(starting.timestamp_ms, ending.timestamp_ms, "timestamp", "")
        return
    if set(starts) != set(ends) and not missing_ok:
        raise ConfigurationError(
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET] The specified start offset and end"
            f" offset should have the same topic-partitions. Topic-partitions for start offset: {names(starts)},"
            f" topic-partitions for end offset: {names(ends)}."
        )
    for partition, start in starts.items():
        _in_order(
            start, ends.get(partition, LATEST), what, f" for topic {partition.topic} partition {partition.partition}"
        )


def _in_order(start: int, end: int, what: str, where: str) -> None:
    if start > end and start >= 0 and end >= 0:
        raise ConfigurationError(
            f"[UNRESOLVED_START_{what.upper()}_GREATER_THAN_END_{what.upper()}] The specified start {what} {start} is"
            f" greater than the end {what} {end}{where}."
        )


def _bound(given: Mapping[str, str], side: str, default: int, group_id: str | None) -> Bound:
    otherwise_latest = choice(given, "startingOffsetsByTimestampStrategy", "error", {"error": False, "latest": True})
    everywhere = given.get(f"{side}timestamp")
    if everywhere is not None:
        return AtTimestamp(_read(_milliseconds, everywhere.strip(), f"{side}Timestamp"), otherwise_latest)
    by_partition = given.get(f"{side}offsetsbytimestamp")
    if by_partition is not None:
        return AtTimestamps(_read(_times, by_partition, f"{side}OffsetsByTimestamp"), otherwise_latest)
    text = given.get(f"{side}offsets")
    if text is None:
        return Everywhere(default)
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Everywhere(EARLIEST if word == "earliest" else LATEST)
    if word == "group" and side == "starting":
        chosen = group_id or given.get("commitgroupid")
        if not chosen:
            raise ConfigurationError(
                "startingOffsets=group starts at a consumer group's offsets: name the group with 'kafka.group.id' or"
                " 'commitGroupId'"
            )
        return AtGroup(chosen)
    return AtOffsets(_checked(_read(parse_offsets, text, f"{side}Offsets"), f"{side}Offsets"))


def _read(parse: Callable[[str], T], text: str, option: str) -> T:
    """Parse ``text``; an error names the option."""
    try:
        return parse(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error} in option '{option}'") from None


def _checked(offsets: dict[TopicPartition, int], option: str) -> dict[TopicPartition, int]:
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise ConfigurationError(f"{option} for {partition} is {offset}, which is not a valid offset")
    return offsets


def _milliseconds(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or abs(int(text)) > MAX_OFFSET:
        raise ConfigurationError(f"Expected a single long value, got {text}")
    return _since_1970(int(text))


def _times(text: str) -> dict[TopicPartition, int]:
    found = parse_timestamps(text)
    for time_ms in found.values():
        _since_1970(time_ms)
    return found


def _since_1970(time_ms: int) -> int:
    # In ListOffsets, negative timestamps have special meanings (-1 latest, -2 earliest, and others).
    if time_ms < 0:
        raise ConfigurationError(
            f"Expected milliseconds since 1970, got {time_ms}: for the beginning or the end of partitions use"
            " startingOffsets and endingOffsets"
        )
    return time_ms


def _partitions_at(bound: Bound, offset: int) -> list[TopicPartition]:
    return [one for one, at in bound.offsets.items() if at == offset] if isinstance(bound, AtOffsets) else []
