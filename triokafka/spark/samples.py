"""How many bytes an offset has, by looking at a few records of each partition: for limits of batches in bytes."""

from __future__ import annotations

import logging
from typing import Final

import trio

import triokafka
from triokafka.errors import KafkaError
from triokafka.loop_thread import loop_thread
from triokafka.records import ConsumerRecord
from triokafka.spark.admission import backlog
from triokafka.spark.client_settings import in_option_names
from triokafka.spark.offsets import Offsets
from triokafka.spark.options import ReadOptions
from triokafka.structs import TopicPartition

_log: Final = logging.getLogger("triokafka.spark")

SAMPLE_OFFSETS: Final = 100
"""How many offsets of each partition are looked at."""
_SAMPLE_BYTES: Final = 1 << 16


def bytes_per_offset(options: ReadOptions, start: Offsets, latest: Offsets) -> dict[TopicPartition, float]:
    """Bytes of key, value and headers per offset at the start of each partition that has anything to read. Blocks.

    Offsets without a record (compaction, control records) count too; where there is nothing else, the first records
    after them are looked at, and taken to be everywhere. Waits at most ``default.api.timeout.ms``. When something
    cannot be read, the result is empty: half a sample would say too little.
    """
    ends = {one: start[one] + size for one, size in backlog(start, latest).items()}
    ranges = {one: (start[one], min(end, start[one] + SAMPLE_OFFSETS)) for one, end in ends.items()}
    if not ranges:
        return {}
    try:
        return loop_thread().call(lambda: _look(options, ranges, ends))
    except (KafkaError, trio.TooSlowError) as error:
        said = in_option_names(str(error))
        _log.warning("the size of records could not be looked at, so this batch goes by what is known: %s", said)
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
        sizes[one] = 0.0  # unless there are records further on
        if ranges[one][1] < ends[one]:
            async with triokafka.RangeReader({one: (ranges[one][1], ends[one])}, **settings) as reader:
                if records := await reader.next_records(SAMPLE_OFFSETS):
                    sizes[one] = sum(map(_size, records)) / len(records)
    return sizes


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
