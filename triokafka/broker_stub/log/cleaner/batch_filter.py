"""Filtering the records of one batch during compaction.

A batch that keeps all its records is copied unchanged. The filter removes records superseded by a newer record with the
same key, tombstones past their delete horizon (KIP-534), records of aborted transactions, and markers of transactions
that have no batches left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from triokafka.broker_stub.log.cleaner.offset_map import OffsetMap
from triokafka.broker_stub.log.cleaner.transactions import CleanedTransactions
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import BatchInfo
from triokafka.records.kernel import ConsumerRecord
from triokafka.records.rewritable_batch import RewritableBatch, empty_batch
from triokafka.structs import Buffer

_LATEST_MS: Final = 2**63 - 1


class LastOfProducer(NamedTuple):
    """The newest state of a producer in the log: the offset of its last data batch (None if it has only a marker), and
    its epoch.

    Compaction keeps that batch, if necessary without records: a restart reads the producer's sequence number from it.
    """

    last_offset: int | None
    epoch: int


@dataclass(slots=True)
class FilterCounts:
    """Counts of records and batches read and kept. ``keyless`` counts records without a key, which compaction drops."""

    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0


class BatchFilter:
    """The rules of one pass over a log.

    Args:
        offsets: the newest offset of every key up to ``offsets.latest_offset``.
        transactions: receives every batch in offset order.
        producers: the active producers by id.
        now_ms: wall clock; tombstones whose delete horizon is at or before it are removed.
        delete_retention_ms: how long tombstones stay after this pass (``delete.retention.ms``).
        codec: the id of the topic's codec; None keeps each batch's codec.
        level: the compression level; None for Kafka's default.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastOfProducer],
        *,
        now_ms: int,
        delete_retention_ms: int,
        codec: int | None = None,
        level: int | None = None,
    ) -> None:
        self.counts = FilterCounts()
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._new_horizon_ms = min(now_ms + delete_retention_ms, _LATEST_MS)
        self._codec: Final = codec
        self._level: Final = level

    def filter(self, info: BatchInfo, data: Buffer, *, keep_last_offset: bool = False) -> Buffer | None:
        """Return the batch to write: the original, a filtered copy, or None if the batch is dropped.

        Args:
            data: the bytes of exactly this batch.
            keep_last_offset: True for the last batch of the cleaned range; at least its header stays, so that the last
                offset stays known.

        Raises:
            CorruptRecordError: the records contradict the header.
        """
        kept = self._control(info, data) if info.is_control else self._data(info, data)
        if kept is None and (keep_last_offset or self._is_last_of_producer(info)):
            return empty_batch(info) if info.record_count else data
        return kept

    def _data(self, info: BatchInfo, data: Buffer) -> Buffer | None:
        if self._transactions.read_data(info):
            self.counts.records_read += max(info.record_count, 0)
            return None
        if not info.record_count:
            return None
        batch = RewritableBatch(data, info)
        horizon = batch.delete_horizon_ms
        kept = self._newest(batch.records, keep_tombstones=horizon is None or self._now_ms < horizon)
        self.counts.records_read += len(batch.records)
        self.counts.records_kept += len(kept)
        if not kept:
            return None
        new_horizon = None
        is_clean = info.last_offset <= self._offsets.latest_offset
        if is_clean and horizon is None and any(batch.records[index].value is None for index in kept):
            new_horizon = self._new_horizon_ms
        if len(kept) == len(batch.records) and new_horizon is None:
            return data
        return batch.with_only(kept, delete_horizon_ms=new_horizon, codec=self._codec, level=self._level)

    def _newest(self, records: list[ConsumerRecord], *, keep_tombstones: bool) -> list[int]:
        """Return the indexes of the records to keep."""
        newest_of = self._offsets.get
        latest = self._offsets.latest_offset
        kept = []
        for index, record in enumerate(records):
            offset = record.offset
            if offset > latest:
                kept.append(index)  # beyond the map: a later pass decides
            elif record.key is None:
                self.counts.keyless += 1
            elif offset >= newest_of(record.key) and (keep_tombstones or record.value is not None):
                kept.append(index)
        return kept

    def _control(self, info: BatchInfo, data: Buffer) -> Buffer | None:
        batch = RewritableBatch(data, info)
        self.counts.records_read += len(batch.records)
        gone = self._transactions.read_marker(info, marker_kind(batch.records))
        horizon = batch.delete_horizon_ms
        if not batch.records or (gone and horizon is not None and horizon <= self._now_ms):
            return None
        self.counts.records_kept += len(batch.records)
        if gone and horizon is None:
            return batch.with_only(range(len(batch.records)), delete_horizon_ms=self._new_horizon_ms)
        return data

    def _is_last_of_producer(self, info: BatchInfo) -> bool:
        last = self._producers.get(info.producer_id)
        if last is None:
            return False
        if last.last_offset is None:
            return info.is_control and info.producer_epoch == last.epoch
        return info.last_offset == last.last_offset


def marker_kind(records: list[ConsumerRecord]) -> int | None:
    """Return the type of a control batch: 0 abort, 1 commit, -1 another type; None without records."""
    if not records:
        return None
    key = records[0].key
    return int.from_bytes(key[2:4], "big") if key is not None and len(key) >= 4 else -1
