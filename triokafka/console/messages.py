"""Reads records of a topic for the page: a bounded number, from an offset, a time or the end, with filters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from triokafka.client.admin import AdminClient
from triokafka.client.consumer.consumer import Consumer
from triokafka.console.limits import ConsoleLimits
from triokafka.console.shown_value import MOST_CHARACTERS, shown
from triokafka.errors import LeaderNotAvailableError
from triokafka.records import ConsumerRecord
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.formats.value_codecs import ValueDecoder

MOST_RECORDS: Final = 500
_MOST_ANSWER: Final = 16 << 20
"""Characters of all values of one answer together: with a higher limit, each value is cut earlier."""
_YIELD_EVERY: Final = 50
_QUIET_ROUNDS: Final = 12
"""Rounds of a live tail without records, of about 1.2 seconds each, after which it reports that there are none."""
_HEADERS: Final = 100
_HEADER: Final = 4_096
"""Headers of one record that the page shows, and characters of each."""
_POLL_MS: Final = 250
_OPTIONS: Final = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "fetch_max_bytes": 4 << 20,
    "max_partition_fetch_bytes": 1 << 20,
    "prefetch_max_bytes": 8 << 20,
    "client_id": "triokafka-console",
}


@dataclass(frozen=True)
class Search:
    """A search for messages of a topic. ``start`` is "newest", "oldest", an offset, or a time as ``@MILLISECONDS``."""

    topic: str
    partition: int | None = None
    start: str = "newest"
    limit: int = 50
    key: str = ""
    text: str = ""
    isolation_level: str = "read_uncommitted"

    def __post_init__(self) -> None:
        number = self.start.removeprefix("@")
        if self.start not in ("newest", "oldest") and not (number.isdigit() and len(number) < 19):
            raise ValueError("start must be newest, oldest, an offset, or @ and milliseconds since 1970")
        if not 1 <= self.limit <= MOST_RECORDS:
            raise ValueError(f"limit must be from 1 to {MOST_RECORDS}")
        if self.isolation_level not in ("read_uncommitted", "read_committed"):
            raise ValueError("isolation_level must be read_uncommitted or read_committed")

    def accepts(self, record: ConsumerRecord) -> bool:
        """Whether key and content have the texts that were asked for."""
        if self.key and self.key.encode() not in (record.key or b""):
            return False
        wanted = self.text.encode()
        return (
            not wanted
            or wanted in (record.value or b"")
            or any(wanted in name.encode() or wanted in (value or b"") for name, value in record.headers)
        )


def record_json(record: ConsumerRecord, decoder: ValueDecoder | None, most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """Return a record as the page shows it, with at most ``most`` characters of each value."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown(record.key, decoder, most),
        "value": shown(record.value, decoder, most),
        "headers": [
            {"name": name, "value": shown(value, None, min(most, _HEADER))} for name, value in record.headers[:_HEADERS]
        ],
    }


async def search(
    options: Mapping[str, Any],
    admin: AdminClient,
    wanted: Search,
    decoder: ValueDecoder | None,
    limits: ConsoleLimits,
) -> dict[str, Any]:
    """Return ``{"records": […], "read": N, "complete": bool, "left_out": […]}``: the newest first when ``start`` is
    "newest". ``left_out`` has the numbers of partitions whose leader does not answer.

    ``complete`` is false when the search ended because of its limits of time or records, before its end.
    """
    partitions, left_out = await _partitions(admin, wanted)
    longest = limits.partial_max_ms
    first = await admin.list_offsets(dict.fromkeys(partitions, "earliest"), timeout_ms=longest)
    last = await admin.list_offsets(
        dict.fromkeys(partitions, "latest"), isolation_level=wanted.isolation_level, timeout_ms=longest
    )
    silent = {**first.errors, **last.errors}
    if silent and len(silent) == len(partitions):
        raise next(iter(silent.values()))
    partitions = [one for one in partitions if one not in silent]
    left_out = sorted([*left_out, *(one.partition for one in silent)])
    starts = {one: first[one].offset for one in partitions}
    ends = {one: last[one].offset for one in partitions}
    if wanted.start.startswith("@"):
        times = await admin.list_offsets(dict.fromkeys(partitions, int(wanted.start[1:])), timeout_ms=longest)
        starts = {one: times[one].offset if times[one].offset >= 0 else ends[one] for one in partitions}
    elif wanted.start.isdigit():
        starts = {one: min(max(starts[one], int(wanted.start)), ends[one]) for one in partitions}
    elif wanted.start == "newest" and not (wanted.key or wanted.text):
        starts = {one: max(starts[one], ends[one] - wanted.limit) for one in partitions}
    most = min(MOST_CHARACTERS, _MOST_ANSWER // wanted.limit)
    found: list[tuple[tuple[int, int, int], dict[str, Any]]] = []  # age and the record as it is shown, which is small
    read = 0
    left = {one for one in partitions if starts[one] < ends[one]}
    settings = {**options, **_OPTIONS, "isolation_level": wanted.isolation_level}
    newest = wanted.start == "newest"
    with trio.move_on_after(limits.search_max_ms / 1_000):
        async with Consumer(**settings) as consumer:
            if left:
                consumer.assign(left)
            for one in left:
                consumer.seek(one, starts[one])
            while left and read < limits.search_max_records and (newest or len(found) < wanted.limit):
                batch: list[ConsumerRecord] = []
                for records in (await consumer.poll(timeout_ms=_POLL_MS, max_records=2_000)).values():
                    read += len(records)
                    batch += [record for record in records if wanted.accepts(record)]
                batch.sort(key=_age)
                for number, record in enumerate(batch[-wanted.limit :] if newest else batch[: wanted.limit]):
                    if number % _YIELD_EVERY == _YIELD_EVERY - 1:
                        await trio.lowlevel.checkpoint()
                    found.append((_age(record), record_json(record, decoder, most)))
                if newest:  # the end decides, so only the last ones are kept
                    found = sorted(found, key=_first)[-wanted.limit :]
                for one in list(left):
                    if await consumer.position(one) >= ends[one]:
                        left.discard(one)
    chosen = sorted(found, key=_first)
    chosen = chosen[-wanted.limit :][::-1] if newest else chosen[: wanted.limit]
    complete = not left or (not newest and len(found) >= wanted.limit)
    return {"records": [record for _, record in chosen], "read": read, "complete": complete, "left_out": left_out}


async def tail(
    options: Mapping[str, Any], admin: AdminClient, wanted: Search, decoder: ValueDecoder | None
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield new records as they come, or ``{"skipped": N}`` when more come than a person can read. Never ends.

    ``{"quiet": True}`` comes about every 15 seconds without records: a browser that is gone is noticed by it.
    """
    partitions, _ = await _partitions(admin, wanted)
    async with Consumer(**{**options, **_OPTIONS, "isolation_level": wanted.isolation_level}) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_end(*partitions)
        for one in partitions:
            await consumer.position(one)
        yield {"ready": True}
        quiet = 0
        while True:
            records = [
                record
                for each in (await consumer.poll(timeout_ms=1_000, max_records=2_000)).values()
                for record in each
                if wanted.accepts(record)
            ]
            if len(records) > wanted.limit:
                yield {"skipped": len(records) - wanted.limit}
            for record in sorted(records, key=_age)[-wanted.limit :]:
                yield record_json(record, decoder)
            quiet = 0 if records else quiet + 1
            if quiet == _QUIET_ROUNDS:
                yield {"quiet": True}
                quiet = 0
            await trio.sleep(0.2)  # at most five rounds a second reach the page


async def _partitions(admin: AdminClient, wanted: Search) -> tuple[list[TopicPartition], list[int]]:
    """Return the partitions to read, and the numbers of those that have no leader.

    Raises:
        LeaderNotAvailableError: none of them has a leader.
    """
    if wanted.partition is not None:
        return [TopicPartition(wanted.topic, wanted.partition)], []
    described = (await admin.describe_topics([wanted.topic]))[wanted.topic]
    led = [one.partition for one in described.partitions if one.leader is not None]
    if described.partitions and not led:
        raise LeaderNotAvailableError(f"no partition of topic {wanted.topic} has a leader: its brokers are down")
    left_out = [one.partition for one in described.partitions if one.leader is None]
    return [TopicPartition(wanted.topic, number) for number in led], left_out


def _age(record: ConsumerRecord) -> tuple[int, int, int]:
    return record.timestamp, record.offset, record.partition


def _first(found: tuple[tuple[int, int, int], dict[str, Any]]) -> tuple[int, int, int]:
    return found[0]
