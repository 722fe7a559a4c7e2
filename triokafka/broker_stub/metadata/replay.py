"""Replaying the batches of a metadata log into an image, with the transactions of Kafka's controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage
from triokafka.broker_stub.metadata.records import LogBatch
from triokafka.protocol.stored.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
)
from triokafka.protocol.stored.metadata_record import MetadataRecord


class CompleteTransactions:
    """Holds back the records of a metadata transaction until its end (KIP-868).

    Records between BeginTransactionRecord and EndTransactionRecord are one change. Without an end, or with an
    AbortTransactionRecord, they have no effect.
    """

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._held is not None

    def take(self, records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
        """Yield the records that take effect with these ones."""
        for record in records:
            match record:
                case BeginTransactionRecord():
                    self._held = []
                case AbortTransactionRecord():
                    self._held = None
                case EndTransactionRecord():
                    held, self._held = self._held, None
                    yield from held or ()
                case _ if self._held is not None:
                    self._held.append(record)
                case _:
                    yield record


_CHUNK = 50_000
"""The most records of one delta; this limits the data that loading holds twice."""


class LogReplay:
    """Replays batches into an image; ``image`` and ``kraft_version`` are the state after the last batch.

    ``removed_topics`` are the ids of the topics that the replayed records removed.
    """

    def __init__(self) -> None:
        self.kraft_version = 0
        self.removed_topics: set[UUID] = set()
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._count = 0
        self._offset = EMPTY_IMAGE.offset
        self._epoch = EMPTY_IMAGE.epoch
        self._transaction = CompleteTransactions()

    def replay(self, batches: Iterable[LogBatch]) -> None:
        """Replay further batches.

        Raises:
            ValueError: a record does not fit the state before it: the metadata log is incomplete.
        """
        for batch in batches:
            for record in self._transaction.take(batch.records):
                self._apply(record)
            self._offset, self._epoch = batch.last_offset, batch.epoch
            if batch.kraft_version is not None:
                self.kraft_version = batch.kraft_version
            if self._count >= _CHUNK:
                self._fold()

    def load(self, batches: Iterable[LogBatch], *, end_offset: int, epoch: int) -> None:
        """Load a snapshot, the state before the record at ``end_offset``. Call it before any `replay`."""
        self.replay(batches)
        self._offset, self._epoch = end_offset - 1, epoch

    def _apply(self, record: MetadataRecord) -> None:
        if isinstance(record, RemoveTopicRecord):
            self.removed_topics.add(record.topic_id)
        self._delta.replay(record)
        self._count += 1

    def _fold(self) -> MetadataImage:
        image = self._delta.image(self._offset, self._epoch)
        self._delta = MetadataDelta(image)
        self._count = 0
        return image

    @property
    def image(self) -> MetadataImage:
        """The current image, without records of an unfinished transaction."""
        return self._fold() if self._count else self._delta.base._replace(offset=self._offset, epoch=self._epoch)
