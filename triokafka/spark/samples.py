"""How many bytes an offset has, by looking at a few records of each partition: for limits of batches in bytes."""

from __future__ import annotations

import logging
from typing import Final

import trio

import triokafka
from triokafka.errors import KafkaError
from triokafka.records import ConsumerRecord
from triokafka.spark.admission import backlog
from triokafka.spark.offsets import Offsets
from triokafka.spark.options import ReadOptions
from triokafka.spark.portal import portal
from triokafka.structs import TopicPartition

_log: Final = logging.getLogger("triokafka.spark")

SAMPLE_OFFSETS: Final = 100
"""How many offsets of each partition are looked at."""
_SAMPLE_BYTES: Final = 1 << 16


def bytes_per_offset(options: ReadOptions, start: Offsets, latest: Offsets) -> dict[TopicPartition, float]:
    """Bytes of key, value and headers per offset at the start of each partition that has anything to read. Blocks.

    Offsets without a record (compaction, control records) count too. A partition that cannot be read now is left out:
    reading it will tell why. Waits at most ``default.api.timeout.ms``.
    """
    ranges = {one: (start[one], start[one] + min(size, SAMPLE_OFFSETS)) for one, size in backlog(start, latest).items()}
    found: dict[TopicPartition, int] = {}

    async def look() -> None:
        settings = {**options.client.keywords(), "max_partition_fetch_bytes": _SAMPLE_BYTES}
        async with triokafka.RangeReader(ranges, **settings) as reader:
            while records := await reader.next_records():
                one = TopicPartition(records[0].topic, records[0].partition)
                found[one] = found.get(one, 0) + sum(_size(record) for record in records)

    if ranges:
        try:
            portal().call(look)
        except (KafkaError, trio.TooSlowError) as error:
            _log.warning("the size of records could not be sampled, so bytes do not limit this batch: %s", error)
    return {one: size / (ranges[one][1] - ranges[one][0]) for one, size in found.items()}


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
