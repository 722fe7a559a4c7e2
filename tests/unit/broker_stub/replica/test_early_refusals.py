"""Claims about the memory of batches that were refused before their broker led."""

from __future__ import annotations

from tests.unit.broker_stub.replica.logs import NOW_MS
from triokafka.broker_stub.replica.early_refusals import EarlyRefusals
from triokafka.records import encode_batch
from triokafka.structs import TopicPartition


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    return bytes(
        encode_batch([(NOW_MS, None, b"v", ())], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )


def test_first_batch_of_each_producer_is_kept_until_it_is_taken() -> None:
    early, partition = EarlyRefusals(), TopicPartition("a", 0)
    for sequence in (4, 3, 5):
        early.note(partition, batch(sequence))
    early.note(partition, batch(9, producer_id=8))
    early.note(partition, batch(0, producer_id=8, epoch=1))
    taken = [(known.producer_id, known.producer_epoch, known.base_sequence) for known in early.take(partition)]
    assert taken == [(7, 0, 3), (8, 1, 0)]
    assert not early and not early.take(partition)


def test_what_is_no_batch_of_an_idempotent_producer_is_not_kept() -> None:
    early = EarlyRefusals()
    for data in (b"", b"\0" * 5, b"\xff" * 100, bytes(encode_batch([(NOW_MS, None, b"v", ())]))):
        early.note(TopicPartition("a", 0), data)
    assert not early


def test_memory_is_bounded() -> None:
    early = EarlyRefusals()
    for number in range(10_050):
        early.note(TopicPartition("a", number), batch(0))
    assert len(early._by_partition) == early._count == 10_000
