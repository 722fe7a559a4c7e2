"""Records between the loop and the polling thread: order, positions, dropped records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from triokafka import ConsumerRecord, TopicPartition
from triokafka.record_buffer import RecordBuffer

A, B = TopicPartition("topic", 0), TopicPartition("topic", 1)


def records(partition: TopicPartition, first: int, count: int) -> list[ConsumerRecord]:
    """Return ``count`` records from an offset on."""
    return [ConsumerRecord(*partition, offset) for offset in range(first, first + count)]


def filled(*, a: int = 0, b: int = 0) -> RecordBuffer:
    """Return a buffer with ``a`` records of one partition and ``b`` of the other."""
    made = RecordBuffer()
    for partition, count in ((A, a), (B, b)):
        if count:
            made.add(partition, records(partition, 0, count))
    return made


def offsets(taken: dict[TopicPartition, list[ConsumerRecord]]) -> dict[int, list[int]]:
    """By partition number."""
    return {partition.partition: [record.offset for record in found] for partition, found in taken.items()}


def test_partitions_take_turns() -> None:
    buffered = filled(a=3, b=3)
    assert offsets(buffered.take(2)) == {0: [0, 1]}
    assert offsets(buffered.take(2)) == {1: [0, 1]}
    assert offsets(buffered.take(9)) == {0: [2], 1: [2]}
    assert not buffered


def test_paused_partitions_are_skipped_and_keep_their_records() -> None:
    buffered = filled(a=2, b=2)
    buffered.paused.add(A)
    assert offsets(buffered.take(9)) == {1: [0, 1]}
    assert not buffered
    buffered.paused.clear()
    assert offsets(buffered.take(9)) == {0: [0, 1]}


def test_unreturned_records_of_an_iteration_go_back_to_the_front() -> None:
    buffered = filled(a=5)
    assert buffered.next_run(4)
    assert [next(buffered.cursor.iterator).offset for _ in range(2)] == [0, 1]
    assert buffered.first_offset(A) == 2
    buffered.add(A, records(A, 5, 1))
    assert offsets(buffered.take(9)) == {0: [2, 3, 4, 5]}
    assert buffered.first_offset(A) is None


def test_one_call_returns_records_up_to_the_next_cut() -> None:
    buffered = RecordBuffer()
    buffered.add(A, records(A, 0, 3), [2])
    buffered.add(A, records(A, 3, 4), [5, 6])
    buffered.add(B, records(B, 0, 2))
    assert offsets(buffered.take(None)) == {0: [0, 1], 1: [0, 1]}
    assert offsets(buffered.take(2)) == {0: [2, 3]}
    assert buffered.next_run()
    assert [next(buffered.cursor.iterator).offset for _ in range(2)] == [4, 5]
    assert offsets(buffered.take(None)) == {0: [6]}
    buffered.add(A, records(A, 7, 2), [8])
    buffered.drop(A)
    buffered.add(A, records(A, 0, 9))
    assert offsets(buffered.take(None)) == {0: list(range(9))}


def test_dropping_a_partition_ends_its_iteration() -> None:
    buffered = filled(a=5, b=1)
    buffered.next_run(4)
    next(buffered.cursor.iterator)
    buffered.drop(A)
    assert list(buffered.cursor.iterator) == []
    assert offsets(buffered.take(9)) == {1: [0]}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 5)),
            st.tuples(st.just("take"), st.integers(1, 5)),
            st.tuples(st.just("run"), st.integers(1, 5)),
            st.tuples(st.just("next"), st.integers(1, 5)),
        ),
        max_size=40,
    )
)
def test_every_record_is_returned_once_in_order_and_positions_are_correct(steps: list[tuple[str, int]]) -> None:
    buffered = RecordBuffer()
    added = given_out = 0
    for what, number in steps:
        if what == "add":
            buffered.add(A, records(A, added, number))
            added += number
        elif what == "take":
            taken = [record.offset for found in buffered.take(number).values() for record in found]
            assert taken == list(range(given_out, min(added, given_out + number)))
            given_out += len(taken)
        elif what == "run":
            buffered.put_back()
            buffered.next_run(number)
        else:
            for _ in range(number):
                for record in buffered.cursor.iterator:
                    assert record.offset == given_out
                    given_out += 1
                    break
        assert buffered.first_offset(A) == (given_out if given_out < added else None)
