"""Blocks of producer ids: the cluster allocates each block once."""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.producer_id_block import BLOCK_SIZE, ProducerIdBlock
from triokafka.protocol.stored.cluster_metadata import ProducerIdsRecord

_LAST: Final = 2**63 - 1


def allocate_producer_ids(image: MetadataImage, broker_id: int, broker_epoch: int) -> Outcome[ProducerIdBlock]:
    """Allocate the next block to a broker.

    Raises:
        StaleBrokerEpochError: the broker is not registered with this epoch.
        UnknownError: there are no ids left.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        raise errors.StaleBrokerEpochError(f"broker {broker_id} is not registered with epoch {broker_epoch}")
    first = image.producer_ids
    if first > _LAST - BLOCK_SIZE:
        raise errors.UnknownError("all producer ids are allocated")
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    return Outcome([record], ProducerIdBlock(first))
