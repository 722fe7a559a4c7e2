"""The committed image of one node: following the metadata log from committed records to published changes.

A node that does not lead replays the records that the quorum has committed (`MetadataLoader.next_change`). The active
controller has replayed its own records when it staged them, so it brings the finished change
(`MetadataLoader.publish_own`). Either way there is one image, and every change goes through one publisher, in the order
of the log.

Pure: a caller runs the steps and waits where it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage
from triokafka.broker_stub.metadata.image_difference import difference_steps
from triokafka.broker_stub.metadata.metadata_transactions import CompleteTransactions
from triokafka.broker_stub.metadata.publisher import MetadataPublisher
from triokafka.broker_stub.metadata.records import LogBatch
from triokafka.broker_stub.metadata.snapshots import SnapshotId
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.stored.cluster_metadata import RemoveTopicRecord
from triokafka.protocol.stored.metadata_record import MetadataRecord

MAX_RECORDS: Final = 2_000
"""The most records of one change, apart from those of one batch: subscribers apply it in one step of the event loop.

Every change copies the tables that it touches, which costs some milliseconds with 100,000 topics or ACLs.
"""
PORTION: Final = 50
"""The most records of a batch that are replayed in one step."""
_COMPARED: Final = 20
"""Equal entries of two images take together as long as the replay of one record."""


class LoadedChange(NamedTuple):
    """A change that is replayed but not published."""

    delta: MetadataDelta
    image: MetadataImage


class MetadataLoader:
    """Owns the committed image of a node.

    ``image`` is the image published last. ``next_offset`` is the offset of the next record to replay. ``kraft_version``
    is the newest committed one that was replayed. ``removed_topics`` are the ids of topics that replayed records
    removed, until `forget_removed_topics`. ``applied_ms`` is the time, in milliseconds since 1970, at which the last
    published record was written by another node; -1 before the first. ``snapshots`` counts the loaded snapshots.

    The records of an unfinished metadata transaction (KIP-868) are held back, and the image stays before them, so that
    no snapshot ends inside a transaction.
    """

    def __init__(self, publisher: MetadataPublisher) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.kraft_version = 0
        self.next_offset = 0
        self.removed_topics: set[UUID] | None = set()
        self.applied_ms = -1
        self.snapshots = 0
        self._publisher = publisher
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._count = 0
        self._replayed_of_batch = 0
        self._transaction = CompleteTransactions()
        self._settled = (EMPTY_IMAGE.offset, EMPTY_IMAGE.epoch)
        self._settled_ms = -1

    @property
    def in_transaction(self) -> bool:
        """Whether the replayed records end within a metadata transaction."""
        return self._transaction.is_open

    def forget_removed_topics(self) -> None:
        """Stop collecting removed topics: from now on every change is published before the next one."""
        self.removed_topics = None

    def next_change(self, read: Callable[[int], Iterator[LogBatch]]) -> Generator[int, None, LoadedChange | None]:
        """Replay committed records; return the change to publish next, or None when all are published.

        Yields the number of records of each step. Abandoning the steps loses nothing: the next call continues.

        Args:
            read: yields the committed batches from an offset on, and raises the errors of `decode_batches`.

        Raises:
            ValueError: a record does not fit the image: the log is not this cluster's, or incomplete.
        """
        for batch in read(self.next_offset):
            if batch.base_offset < self.next_offset:
                continue  # a batch is replayed as a whole
            records = batch.records
            while len(records) - self._replayed_of_batch > PORTION:
                begin = self._replayed_of_batch
                self._replay(records[begin : begin + PORTION])
                self._replayed_of_batch = begin + PORTION
                yield PORTION
            rest = records[self._replayed_of_batch :]
            self._replay(rest)
            self._replayed_of_batch = 0
            self.next_offset = batch.last_offset + 1
            if batch.kraft_version is not None:
                self.kraft_version = batch.kraft_version
            if not self._transaction.is_open:
                self._settled = (batch.last_offset, batch.epoch)
                self._settled_ms = batch.timestamp_ms
            yield max(1, len(rest))
            if self._count >= MAX_RECORDS:
                break
        offset, epoch = self._settled
        if offset <= self.image.offset:
            return None
        return LoadedChange(self._delta, self._delta.image(offset, epoch))

    def _replay(self, records: Sequence[MetadataRecord]) -> None:
        for record in self._transaction.take(records):
            if isinstance(record, RemoveTopicRecord) and self.removed_topics is not None:
                self.removed_topics.add(record.topic_id)
            self._delta.replay(record)
            self._count += 1

    def load_snapshot(
        self, batches: Iterable[LogBatch], snapshot_id: SnapshotId
    ) -> Generator[int, None, LoadedChange | None]:
        """Replay a snapshot; return the change from the present image to it, None if the image is not older.

        Yields the number of records of each step; the loader is unchanged before the last one.

        Raises:
            ValueError: a record does not fit the snapshot before it.
        """
        if snapshot_id.end_offset <= self.image.offset + 1 and self.image.offset >= 0:
            return None
        whole = MetadataDelta(EMPTY_IMAGE)
        kraft_version = 0
        timestamp_ms = -1
        for batch in batches:
            timestamp_ms = max(timestamp_ms, batch.timestamp_ms)
            for number, record in enumerate(batch.records, 1):
                whole.replay(record)
                if not number % PORTION:
                    yield PORTION
            kraft_version = kraft_version if batch.kraft_version is None else batch.kraft_version
            yield 1
        after = whole.image(snapshot_id.end_offset - 1, snapshot_id.epoch)
        if self.image is EMPTY_IMAGE:
            delta = whole
        else:
            delta = MetadataDelta(self.image)
            equal = 0
            for difference in difference_steps(self.image, after):
                if difference is None:
                    equal += 1
                    if equal % _COMPARED:
                        continue
                else:
                    delta.replay(difference)
                yield 1
        self.kraft_version = kraft_version
        self.next_offset = snapshot_id.end_offset
        self._transaction = CompleteTransactions()
        self._delta, self._count, self._replayed_of_batch = delta, 0, 0
        self._settled, self._settled_ms = (after.offset, after.epoch), timestamp_ms
        self.snapshots += 1
        return LoadedChange(delta, delta.image(*self._settled))

    def publish_own(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Publish a change of the active controller: no replayed record comes between the present image and it.

        A transaction that another controller left open has no effect: the active one aborts it with its first change.
        """
        self._transaction = CompleteTransactions()
        self.publish(delta, image)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Make a committed change that this loader has returned the image, and hand it to the subscribers."""
        self.image = image
        self.applied_ms = self._settled_ms
        self.next_offset = max(self.next_offset, image.offset + 1)
        self._settled = (image.offset, image.epoch)
        self._delta, self._count, self._replayed_of_batch = MetadataDelta(image), 0, 0
        self._publisher.publish(delta, image)
