"""Speed of the record codec beside aiokafka's Cython codec, kafka-python's codec, and the CRC alone.

Batches have 1,000 records of 100 bytes; checksums are included everywhere. Each operation is measured with one batch
and with a fetch of 1 MiB (the default for one partition): ten batches, whose records live until all are decoded. All
take short turns in one process, with the garbage collector on, and the medians of the processor time are compared, so
that a slow moment of the machine affects all. The peers yield records one by one from an iterator, as their consumers
use them; ours returns lists.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords
from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from triokafka import kernels
from triokafka.records import BatchBuilder, RecordDecoder, decode_records, encode_batch, to_arrow
from triokafka.records.kernel import ColumnAppender
from triokafka.records.plain_columns import KEY, OFFSET, TIMESTAMP, VALUE

RECORDS = 1000
VALUE_BYTES = 100
FETCH_BATCHES = 10
ROUNDS = 15
_ROUND_SECONDS = 0.005
_START_MS = 1_700_000_000_000

TARGETS = {
    "encode a list of records": ("aiokafka", 4.0),
    "decode by record": ("aiokafka", 5.0),
    "decode by column": ("aiokafka", 20.0),
    "decode by column, views": ("aiokafka", 20.0),
}
"""The least ratio to a peer's speed, for one fetch (decoding) or batch (encoding)."""
CRC_TARGET = 0.3
"""The least ratio of columnar decoding to the speed of the checksum alone."""


class Row(NamedTuple):
    """One row: microseconds per 1,000 records, and the ratio to each peer (None without such a peer)."""

    batches: int
    operation: str
    microseconds: float
    aiokafka: float
    kafka_python: float
    of_crc: float

    @property
    def records_per_second(self) -> float:
        """Records a second."""
        return RECORDS / self.microseconds * 1e6


def _values() -> list[bytes]:
    return [b"%0*d" % (VALUE_BYTES, index) for index in range(RECORDS)]


def _encoders() -> dict[str, Callable[[], Any]]:
    records = [(_START_MS + index, None, value, ()) for index, value in enumerate(_values())]

    def aiokafka() -> Any:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        for index, (timestamp, key, value, _) in enumerate(records):
            builder.append(index, timestamp, key, value, [])
        return builder.build()

    def kafka_python() -> Any:
        builder = KafkaPythonBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        for index, (timestamp, key, value, _) in enumerate(records):
            builder.append(index, timestamp, key, value, [])
        return builder.build()

    def one_by_one() -> Any:
        builder = BatchBuilder(1 << 17)
        append = builder.append
        for timestamp, key, value, _ in records:
            append(timestamp, key, value)
        return builder.build()

    return {
        "aiokafka": aiokafka,
        "kafka-python": kafka_python,
        "encode one by one": one_by_one,
        "encode a list of records": lambda: encode_batch(records),
    }


def _decoders(batches: int) -> dict[str, Callable[[], Any]]:
    records = [(_START_MS + index, None, value, ()) for index, value in enumerate(_values())]
    fetched = b"".join(encode_batch(records, base_offset=RECORDS * number) for number in range(batches))
    size = len(fetched) // batches
    views = [memoryview(fetched)[start + 21 : start + size] for start in range(0, len(fetched), size)]

    def aiokafka() -> Any:
        reader = MemoryRecords(fetched)
        out = []
        while reader.has_next():
            batch = reader.next_batch()
            assert batch.validate_crc()
            for record in batch:
                out.append(record)
        return out

    def kafka_python() -> Any:
        reader = KafkaPythonRecords(fetched)
        out = []
        while reader.has_next():
            batch = reader.next_batch()
            assert batch.validate_crc()
            for record in batch:
                out.append(record)
        return out

    def columns(as_views: bool) -> Any:
        appender = ColumnAppender(OFFSET | TIMESTAMP | KEY | VALUE, as_views)
        decoder = RecordDecoder(fetched)
        while decoder.take_columns(appender, 1 << 60, lambda data: 0):
            pass
        return appender.finish()

    def checksum() -> None:
        for view in views:
            crc32c(view)

    for decode in (aiokafka, kafka_python, lambda: decode_records(fetched)):
        assert [bytes(record.value) for record in decode()] == _values() * batches
    return {
        "aiokafka": aiokafka,
        "kafka-python": kafka_python,
        "checksum": checksum,
        "decode by record": lambda: decode_records(fetched),
        "decode by column": lambda: columns(False),
        "decode by column, views": lambda: columns(True),
        "decode to a pyarrow batch": lambda: to_arrow([(fetched, "topic", 0, 0)]),
        "decode to a pyarrow batch, views": lambda: to_arrow([(fetched, "topic", 0, 0)], values="view"),
    }


def _interleaved(operations: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median processor time of one call of each function, in microseconds."""
    calls = {}
    for name, operation in operations.items():
        operation()
        start = process_time()
        operation()
        calls[name] = max(1, round(_ROUND_SECONDS / max(process_time() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in operations}
    gc.collect()
    for _ in range(ROUNDS):
        for name, operation in operations.items():
            start = process_time()
            for _ in range(calls[name]):
                operation()
            times[name].append((process_time() - start) / calls[name] * 1e6)
    return {name: statistics.median(taken) for name, taken in times.items()}


def run() -> list[Row]:
    """Measure everything. Return one row per operation and amount, the peers and the checksum among them."""
    decoding = {batches: _interleaved(_decoders(batches)) for batches in (1, FETCH_BATCHES)}
    rows = []
    for batches, times in [(1, _interleaved(_encoders())), *decoding.items()]:
        crc = decoding[1]["checksum"]
        for name, taken in times.items():
            kind = "encode" if "encode one by one" in times else "decode"
            rows.append(
                Row(
                    batches,
                    f"{name} {kind}" if name in ("aiokafka", "kafka-python") else name,
                    taken / batches,
                    times["aiokafka"] / taken,
                    times["kafka-python"] / taken,
                    crc / (taken / batches),
                )
            )
    return rows


def show(rows: list[Row]) -> None:
    """Print the table, and whether each target is met."""
    print(f"Record codec ({kernels.implementation()} kernels): {RECORDS} records of {VALUE_BYTES} bytes a batch")
    print(f"{'':36}{'us/1000':>9}{'M rec/s':>9}{'x aiokafka':>12}{'x kafka-py':>12}{'of CRC':>8}")
    before = None
    for row in rows:
        title = ("encode", 1) if "encode" in row.operation else ("decode", row.batches)
        if title != before:
            print(f"{title[0]}, {title[1]} batch{'es' if title[1] > 1 else ''} at a time")
            before = title
        print(
            f"  {row.operation:34}{row.microseconds:9.1f}{row.records_per_second / 1e6:9.2f}"
            f"{row.aiokafka:12.1f}{row.kafka_python:12.1f}{row.of_crc:8.0%}"
        )
    for row in rows:
        target = TARGETS.get(row.operation)
        if target is None or (row.batches == 1 and "decode" in row.operation):
            continue
        peer, factor = target
        reached = row.aiokafka
        verdict = "reached" if reached >= factor else "MISSED"
        print(f"{row.operation}: {reached:.1f} times {peer}, target {factor:.0f}: {verdict}")
        if "column" in row.operation:
            verdict = "reached" if row.of_crc >= CRC_TARGET else "MISSED"
            print(f"{row.operation}: {row.of_crc:.0%} of the checksum's speed, target {CRC_TARGET:.0%}: {verdict}")


if __name__ == "__main__":
    show(run())
