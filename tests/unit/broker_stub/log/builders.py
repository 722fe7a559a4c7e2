"""Batches, logs and disks for the tests of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triokafka.broker_stub.log import AppendInfo, LogConfig, PartitionLog
from triokafka.records import decode_records, encode_batch, iter_batches
from triokafka.structs import TopicPartition
from triokafka.world import Storage

TP = TopicPartition("orders", 3)
DIRECTORY = "data/orders-3"
NOW = 1_700_000_000_000


class Listener:
    """Records the reports of a log manager; every partition has ``high_watermark``."""

    def __init__(self, *, high_watermark: int | None = None) -> None:
        self.high_watermark = high_watermark
        self.flushed: list[TopicPartition] = []
        self.offline: list[tuple[list[TopicPartition], str]] = []
        self.moved: list[tuple[TopicPartition, PartitionLog]] = []

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        return self.high_watermark

    def log_flushed(self, topic_partition: TopicPartition) -> None:
        self.flushed.append(topic_partition)

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        self.offline.append((list(topic_partitions), reason))

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        self.moved.append((topic_partition, log))


def batch(*values: bytes, timestamp: int = NOW, key: bytes | None = b"k", **options: Any) -> bytearray:
    """An encoded batch; timestamps go up by one."""
    records = [(timestamp + i, key, value, ()) for i, value in enumerate(values)]
    return bytearray(encode_batch(records, **options))


def from_producer(*values: bytes, sequence: int, producer_id: int = 9, epoch: int = 0, **options: Any) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def config(**values: Any) -> LogConfig:
    """Small segments with dense indexes."""
    return LogConfig(**{"segment_bytes": 2_000, "index_interval_bytes": 100, **values})


def open_log(storage: Storage, log_config: LogConfig | None = None, **options: Any) -> PartitionLog:
    """The log of `TP`."""
    return PartitionLog.open(storage, DIRECTORY, TP, log_config or config(), **{"now_ms": NOW, **options})


def append(
    log: PartitionLog, data: bytes | bytearray, *, now_ms: int = NOW, epoch: int = 0, **options: Any
) -> AppendInfo:
    """Append as the leader of ``epoch``."""
    return log.append_as_leader(data, leader_epoch=epoch, now_ms=now_ms, **options)


def fill(log: PartitionLog, count: int, *, size: int = 20, step_ms: int = 1000) -> None:
    """Append ``count`` batches of one record with values of ``size`` bytes."""
    for _ in range(count):
        offset = log.log_end_offset
        append(log, batch(b"%0*d" % (size, offset), timestamp=NOW + offset * step_ms), now_ms=NOW + offset * step_ms)


def offsets(log: PartitionLog, start: int | None = None, max_bytes: int = 300) -> list[int]:
    """The offsets that a consumer sees, from ``start`` on."""
    found: list[int] = []
    offset = log.log_start_offset if start is None else start
    while offset < log.log_end_offset and (records := log.read(offset, max_bytes).records):
        found += [r.offset for r in decode_records(records, from_offset=offset)]
        offset = max(info.next_offset for info in iter_batches(records))
    return found
