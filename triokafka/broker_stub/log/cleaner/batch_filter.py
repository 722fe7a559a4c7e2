"""What compaction leaves of one batch.

A batch of which everything stays is passed on as it is. What goes: records with a newer one of the same key, tombstones
whose time is over (KIP-534), records of aborted transactions, and markers of transactions of which nothing is left.
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
    """The newest that the log knows of a producer: its last data batch (None: only a marker is known), and its epoch.

    That batch stays, if need be without records: a restart finds the producer's sequence number there.
    """

    last_offset: int | None
    epoch: int


@dataclass(slots=True)
class FilterCounts:
    """What was read and kept. ``keyless`` records have no place in a compacted log and are dropped."""

    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0


class BatchFilter:
    """The rules of one pass over a log.

    Args:
        offsets: the newest offset of every key up to ``offsets.latest_offset``.
        transactions: told of every batch, in order.
        producers: those that are still known.
        now_ms: tombstones whose horizon is not later go.
        delete_retention_ms: how long tombstones stay from now on.
        codec: the id of the topic's codec; None leaves each batch its own.
        level: of that codec; None for Kafka's default.
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
        """What is to be written instead of a batch: itself, another one, or None for nothing.

        Args:
            data: the batch, and nothing else.
            keep_last_offset: it ends what is cleaned; at least its header stays, so that its last offset is known.

        Raises:
            CorruptRecordError: the records are not as the header says.
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
        """The indexes of the records that stay."""
        newest_of = self._offsets.get
        latest = self._offsets.latest_offset
        kept = []
        for index, record in enumerate(records):
            offset = record.offset
            if offset > latest:
                kept.append(index)  # a later pass will know
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
    """What the records of a control batch say: 0 abort, 1 commit, -1 something else; None without records."""
    if not records:
        return None
    key = records[0].key
    return int.from_bytes(key[2:4], "big") if key is not None and len(key) >= 4 else -1
