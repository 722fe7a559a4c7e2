from __future__ import annotations

import pytest

from tests.unit.broker_stub.clusters import cluster, replayed
from triokafka import errors
from triokafka.broker_stub.controller.producer_ids import allocate_producer_ids
from triokafka.protocol.stored.cluster_metadata import ProducerIdsRecord


def test_block_begins_where_the_last_one_ended() -> None:
    image = cluster()
    for first in (0, 1000, 2000):
        outcome = allocate_producer_ids(image, 1, 101)
        assert outcome.response == (first, 1000)
        image = replayed(outcome.records, image)


def test_block_is_only_for_the_broker_that_is_registered() -> None:
    for broker_id, epoch in ((1, 100), (2, 101)):
        with pytest.raises(errors.StaleBrokerEpochError):
            allocate_producer_ids(cluster(), broker_id, epoch)


def test_ids_end_at_the_largest_number() -> None:
    image = cluster(ProducerIdsRecord(broker_id=1, broker_epoch=101, next_producer_id=2**63 - 1000))
    with pytest.raises(errors.UnknownError, match="allocated"):
        allocate_producer_ids(image, 1, 101)
