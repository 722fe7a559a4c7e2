"""How much of a partition one `getmany` returns."""

from __future__ import annotations

from triokafka import TopicPartition
from triokafka.asyncio.consumer.portions import Portions

A, B = TopicPartition("topic", 0), TopicPartition("topic", 1)


def test_portion_ends_before_the_piece_that_would_make_it_too_large() -> None:
    portions = Portions(100)
    assert portions.cuts([(A, 0, 60), (B, 0, 90), (A, 10, 40), (A, 20, 1)]) == {A: [20]}
    assert portions.cuts([(B, 5, 10), (A, 21, 99)]) == {}
    assert portions.cuts([(B, 6, 1)]) == {B: [6]}


def test_piece_larger_than_a_portion_is_one_by_itself() -> None:
    portions = Portions(100)
    assert portions.cuts([(A, 0, 10), (A, 1, 500)]) == {A: [1]}
    assert portions.cuts([(A, 7, 0)]) == {}  # the rest of that piece
    assert portions.cuts([(A, 9, 10)]) == {A: [9]}


def test_forgotten_partition_begins_a_new_portion() -> None:
    portions = Portions(100)
    assert portions.cuts([(A, 0, 90)]) == {}
    portions.forget(A)
    assert portions.cuts([(A, 50, 90)]) == {}
