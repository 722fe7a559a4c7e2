"""Estimates of the bytes per offset from a few records of each partition, for limits of batches in bytes."""

from __future__ import annotations

import logging
from typing import Final

import trio

import triokafka
from triokafka.errors import KafkaError
from triokafka.loop_thread import loop_thread
from triokafka.records import ConsumerRecord
from triokafka.spark.planning.admission import backlog
from triokafka.spark.planning.bounds import Offsets
from triokafka.spark.planning.client_settings import in_option_names
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.structs import TopicPartition

_log: Final = logging.getLogger("triokafka.spark")

SAMPLE_OFFSETS: Final = 100
"""The number of offsets to sample per partition."""
_SAMPLE_BYTES: Final = 1 << 16


def bytes_per_offset(options: ReadOptions, start: Offsets, latest: Offsets) -> dict[TopicPartition, float]:
    """Return the bytes of key, value and headers per offset at the start of each partition with a backlog. Blocks.

    Offsets without a record (compaction, control records) count too. If a sample has no records at all, the first
    records after it are used for the whole partition. Waits at most ``default.api.timeout.ms``. If a read fails, the
    result is empty, because a partial sample would be too low.
    """
    ends = {one: start[one] + size for one, size in backlog(start, latest).items()}
    ranges = {one: (start[one], min(end, start[one] + SAMPLE_OFFSETS)) for one, end in ends.items()}
    if not ranges:
        return {}
    try:
        return loop_thread().call(lambda: _look(options, ranges, ends))
    except (KafkaError, trio.TooSlowError) as error:
        said = in_option_names(str(error))
        _log.warning("sampling record sizes failed, so this batch uses earlier samples: %s", said)
        return {}


async def _look(
    options: ReadOptions, ranges: dict[TopicPartition, tuple[int, int]], ends: Offsets
) -> dict[TopicPartition, float]:
    settings = {**options.client.keywords(), "max_partition_fetch_bytes": _SAMPLE_BYTES}
    found: dict[TopicPartition, int] = {}
    async with triokafka.RangeReader(ranges, **settings) as reader:
        while records := await reader.next_records():
            one = TopicPartition(records[0].topic, records[0].partition)
            found[one] = found.get(one, 0) + sum(map(_size, records))
    sizes = {one: size / (ranges[one][1] - ranges[one][0]) for one, size in found.items()}
    for one in ranges.keys() - found.keys():
        sizes[one] = 0.0  # unless records follow
        if ranges[one][1] < ends[one]:
            async with triokafka.RangeReader({one: (ranges[one][1], ends[one])}, **settings) as reader:
                if records := await reader.next_records(SAMPLE_OFFSETS):
                    sizes[one] = sum(map(_size, records)) / len(records)
    return sizes


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
