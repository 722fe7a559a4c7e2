"""Resolution of the bounds of a read into offsets, with the brokers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.bounds import (
    EARLIEST,
    LATEST,
    AtGroup,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    Everywhere,
    Offsets,
    names,
)
from triokafka.spark.planning.brokers import Brokers
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.structs import TopicPartition

_log: Final = logging.getLogger("triokafka.spark")
_SPECIAL: Final = (EARLIEST, LATEST)


async def resolve(
    brokers: Brokers,
    options: ReadOptions,
    bound: Bound,
    partitions: Iterable[TopicPartition],
    *,
    side: Literal["start", "end"],
) -> dict[TopicPartition, int]:
    """Return an offset for each of the ``partitions``, in their order. `EARLIEST` and `LATEST` stay; see `settle`.

    Raises:
        ConfigurationError: the bound names other partitions than exist, a group has no committed offset for one, or no
            record is at or after a start timestamp.
    """
    assigned = list(partitions)
    if not assigned and side == "start":
        # Absent named topics were an error before, so this is a pattern.
        _log.warning(
            "no topic at %s matches %s; the pattern is a regular expression and must match whole names",
            options.client.bootstrap_servers,
            options.topics,
        )
    if isinstance(bound, Everywhere):
        return dict.fromkeys(assigned, bound.offset)
    if isinstance(bound, AtOffsets):
        _check(bound.offsets, assigned, options, side, timestamps=False)
        return {one: bound.offsets.get(one, _missing(options, side)) for one in assigned}
    if isinstance(bound, AtGroup):
        return await _committed(brokers, options, bound.group_id, assigned)
    if isinstance(bound, AtTimestamp):
        times = dict.fromkeys(assigned, bound.timestamp_ms)
    else:
        _check(bound.timestamps_ms, assigned, options, side, timestamps=True)
        times = {one: bound.timestamps_ms[one] for one in assigned if one in bound.timestamps_ms}
    found = await brokers.at_timestamps(times)
    return {
        one: _at_time(bound, one, times[one], found[one], side) if one in times else _missing(options, side)
        for one in assigned
    }


async def settle(
    brokers: Brokers,
    offsets: Offsets,
    *,
    earliest: Offsets | None = None,
    latest: Offsets | None = None,
) -> dict[TopicPartition, int]:
    """Return the offsets with `EARLIEST` and `LATEST` replaced by real ones.

    Args:
        earliest, latest: the known ones; the brokers provide the others.
    """
    known: dict[int, Mapping[TopicPartition, int]] = {}
    for special, given, ask in ((EARLIEST, earliest, brokers.earliest), (LATEST, latest, brokers.latest)):
        wanted = [one for one, offset in offsets.items() if offset == special]
        have = given or {}
        known[special] = {**have, **await ask([one for one in wanted if one not in have])}
    return {one: known[offset][one] if offset in _SPECIAL else offset for one, offset in offsets.items()}


def _check(
    given: Offsets, assigned: list[TopicPartition], options: ReadOptions, side: str, *, timestamps: bool
) -> None:
    unknown, left_out = given.keys() - set(assigned), set(assigned) - given.keys()
    if not unknown and (not left_out or options.on_missing_partitions is not None):
        return
    what = "TIMESTAMP_OFFSET" if timestamps else "START_OFFSET"
    kind = f"timestamp based {side}" if timestamps else side
    raise ConfigurationError(
        f"[KAFKA_{what}_DOES_NOT_MATCH_ASSIGNED] Partitions specified for Kafka {kind} offsets don't match what are"
        " assigned: you must specify all TopicPartitions, unless option onMissingPartitions gives the bound of"
        f" the others. Use -1 for latest, -2 for earliest. Specified: {names(given)} Assigned: {names(assigned)}"
    )


def _missing(options: ReadOptions, side: str) -> int:
    # A batch whose end is before its start would be refused, so a missing end is always the latest offset.
    return LATEST if side == "end" or options.on_missing_partitions is None else options.on_missing_partitions


def _at_time(bound: AtTimestamp | AtTimestamps, one: TopicPartition, time_ms: int, found: int | None, side: str) -> int:
    if found is not None:
        return found
    if side == "start" and not bound.otherwise_latest:
        raise ConfigurationError(
            f"No offset matched from request of topic-partition {one} and timestamp {time_ms}: it has no record at or"
            " after that time. Option startingOffsetsByTimestampStrategy=latest starts at its end"
        )
    return LATEST


async def _committed(
    brokers: Brokers, options: ReadOptions, group_id: str, assigned: list[TopicPartition]
) -> dict[TopicPartition, int]:
    found = await brokers.committed(group_id, assigned)
    without = [one for one in assigned if one not in found]
    if without and options.on_missing_partitions is None:
        raise ConfigurationError(
            f"group {group_id!r} has no committed offset for {names(without)}: set option onMissingPartitions to"
            " earliest or latest"
        )
    return {one: found.get(one, _missing(options, "start")) for one in assigned}
