"""The image that a whole metadata log leads to, without a loader, a publisher or steps."""

from __future__ import annotations

from collections.abc import Iterable

from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage
from triokafka.broker_stub.metadata.metadata_transactions import CompleteTransactions
from triokafka.broker_stub.metadata.records import LogBatch


def replayed_batches(batches: Iterable[LogBatch]) -> tuple[MetadataImage, int]:
    """Return the image at the end of the batches, and the newest ``kraft.version``.

    Records of an unfinished transaction have no effect.

    Raises:
        ValueError: a record does not fit the state before it.
    """
    delta = MetadataDelta(EMPTY_IMAGE)
    transaction = CompleteTransactions()
    offset, epoch, kraft_version = EMPTY_IMAGE.offset, EMPTY_IMAGE.epoch, 0
    for batch in batches:
        for record in transaction.take(batch.records):
            delta.replay(record)
        offset, epoch = batch.last_offset, batch.epoch
        if batch.kraft_version is not None:
            kraft_version = batch.kraft_version
    return delta.image(offset, epoch), kraft_version
