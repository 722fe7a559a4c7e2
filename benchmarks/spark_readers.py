"""Python data sources for Spark that show the limits for our reader.

- ``ceiling``: fetches the same bytes from the same broker in a thread, drops them, and yields prepared record batches.
No reader in Python can be much faster.
- ``ready``: the same without fetching: the cost of Spark alone.

Readers that yield a tuple for each record are in `benchmarks.spark_tuples`.
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from triokafka.client.consumer.completed_fetch import end_of
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from triokafka.protocol.frames import decode_response, encode_request

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
ROWS: Final = 10_000
"""The largest record batch, and the largest fetch of a client."""
_VERSION: Final = 12  # the last with topics by name
PARTITION_BYTES: Final = 4 << 20
"""The size of a Fetch response for all clients: the value that our Spark reader requests. With less, others need more
round trips."""
_BYTES: Final = 1 << 20
_AHEAD: Final = 2
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True)
class Range(InputPartition):  # type: ignore[misc] # pyspark has no types here
    """One partition from its start."""

    partition: int
    end: int


class Source(DataSource):  # type: ignore[misc] # pyspark has no types here
    """Options: ``bootstrap``, ``topic``, ``ends`` (JSON list of end offsets by partition), ``size`` of values."""

    reading: type[PartitionReader]
    called: str

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return cls.called

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return self.reading(dict(self.options))


class PartitionReader(DataSourceReader):  # type: ignore[misc] # pyspark has no types here
    """Reads each partition of the options from its start to its end."""

    def __init__(self, options: dict[str, str]) -> None:
        self.bootstrap, self.topic = options["bootstrap"], options["topic"]
        self.ends: list[int] = json.loads(options["ends"])
        self.size = int(options["size"])

    def partitions(self) -> list[Range]:
        return [Range(partition, end) for partition, end in enumerate(self.ends) if end]


class _Ready(PartitionReader):
    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        batch = made(self.topic, partition.partition, self.size)
        yield from _cut(batch, partition.end)


class _Ceiling(PartitionReader):
    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        batch = made(self.topic, partition.partition, self.size)
        counts: queue.Queue[int | BaseException] = queue.Queue(_AHEAD)
        threading.Thread(target=_fetch_all, args=(self, partition, counts), daemon=True).start()
        rows = 0
        while rows < partition.end:
            found = counts.get()
            if isinstance(found, BaseException):
                raise found
            yield from _cut(batch, found)
            rows += found


class CeilingSource(Source):
    """A source that fetches and drops."""

    reading = _Ceiling
    called = "ceiling"


class ReadySource(Source):
    """A source that does not fetch."""

    reading = _Ready
    called = "ready"


def made(topic: str, partition: int, size: int) -> pa.RecordBatch:
    """Return about a megabyte of records with values of ``size`` bytes, at most `ROWS`."""
    import pyarrow as pa

    rows = max(1, min(ROWS, _BYTES // (size + 60)))
    return pa.record_batch(
        {
            "key": pa.array([b"%08d" % n for n in range(rows)], pa.binary()),
            "value": pa.array([bytes(size)] * rows, pa.binary()),
            "topic": pa.array([topic] * rows, pa.string()),
            "partition": pa.array([partition] * rows, pa.int32()),
            "offset": pa.array(range(rows), pa.int64()),
            "timestamp": pa.array([1_790_000_000_000_000 + n for n in range(rows)], pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * rows, pa.int32()),
        }
    )


def _cut(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    while rows > 0:
        yield batch if rows >= batch.num_rows else batch.slice(0, rows)
        rows -= batch.num_rows


def _fetch_all(reader: _Ceiling, wanted: Range, counts: queue.Queue[int | BaseException]) -> None:
    """Fetch one response after the other."""
    try:
        host, _, port = reader.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            offset = 0
            while offset < wanted.end:
                records = _fetch(connection, reader.topic, wanted.partition, offset)
                after = end_of(records)
                if after is None:
                    raise RuntimeError(f"partition {wanted.partition} has no more at offset {offset}")
                counts.put(min(after, wanted.end) - offset)
                offset = after
    except Exception as error:
        counts.put(error)


def _fetch(connection: socket.socket, topic: str, partition: int, offset: int) -> Any:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )
    connection.sendall(b"".join(encode_request(request, version=_VERSION, correlation_id=1, client_id="ceiling")))
    (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size))
    _, answer = decode_response(FetchResponse, _exactly(connection, size), version=_VERSION)
    return answer.responses[0].partitions[0].records or b""


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        count = connection.recv_into(view[got:])
        if not count:
            raise ConnectionError("the broker closed the connection")
        got += count
    return data
