"""Batches that were refused before the broker knew that it leads their partitions."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.replica.early_refusals import EarlyRefusals
from triokafka.records import encode_batch
from triokafka.structs import TopicPartition


@pytest.mark.parametrize(("name", "count"), [("x" * 249, 1), ("x" * 250, 0)])
def test_only_names_that_a_topic_can_have_are_kept(name: str, count: int) -> None:
    refusals = EarlyRefusals()
    batch = bytes(encode_batch([(0, None, b"value", [])], producer_id=1, producer_epoch=0, base_sequence=0))
    refusals.note(TopicPartition(name, 0), batch)
    assert len(refusals.take(TopicPartition(name, 0))) == count
