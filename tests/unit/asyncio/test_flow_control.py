"""Records between the SDK's consumer and the program: the limit of the buffer, and records still to come."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from triokafka import TopicPartition
from triokafka.asyncio.consumer.flow_control import FlowControl

A, B = TopicPartition("topic", 0), TopicPartition("topic", 1)
ENOUGH = FlowControl(1).most_records


def records(first: int, count: int) -> list[Any]:
    """Return records with offsets from ``first`` on."""
    return [SimpleNamespace(offset=first + number) for number in range(count)]


def test_partition_is_full_until_the_program_has_taken_records() -> None:
    flow = FlowControl(1 << 20)
    message, full = flow.send({A: records(0, ENOUGH), B: records(0, 1)}, [(A, 0, 10), (B, 0, 10)])
    assert [(one, epoch, len(some)) for one, (epoch, some, _) in message.items()] == [(A, 0, ENOUGH), (B, 0, 1)]
    assert full == [A]
    assert not flow.release(B, 1, 0), "it was not full"
    assert flow.release(A, 1, 0)
    assert not flow.release(A, 1, 0), "it is resumed once"


def test_consumer_that_has_taken_everything_gets_more_at_once() -> None:
    flow = FlowControl(1 << 20)
    flow.send({A: records(0, 5)}, [])
    flow.release(A, 4, 0)
    assert flow.most_records == ENOUGH
    flow.release(A, 1, 0)
    assert flow.most_records == 2 * ENOUGH


def test_pause_of_the_program_and_a_full_partition_do_not_end_each_other() -> None:
    flow = FlowControl(1 << 20)
    flow.send({A: records(0, ENOUGH)}, [])
    flow.pause(A)
    assert not flow.release(A, ENOUGH, 0), "the program has paused it"
    flow.send({A: records(ENOUGH, 2 * ENOUGH)}, [])
    assert not flow.resume(A), "it is full"
    assert flow.release(A, ENOUGH + 1, 0)


def test_records_in_transit_are_known_until_they_have_arrived_or_a_seek() -> None:
    flow = FlowControl(1 << 20)
    flow.send({A: records(10, 2), B: records(5, 1)}, [])
    flow.send({A: records(12, 2)}, [])
    assert flow.first_in_transit(A, 0) == 10
    assert flow.first_in_transit(A, 1) == 12
    assert flow.first_in_transit(A, 2) is None
    flow.begin_epoch(A, 7)
    assert flow.first_in_transit(A, 0) is None
    assert flow.first_in_transit(B, 0) == 5
    message, _ = flow.send({A: records(3, 1)}, [])
    assert message[A][0] == 7


def test_messages_of_which_a_call_on_its_way_does_not_know_stay_known() -> None:
    flow = FlowControl(1 << 20)
    for first in (0, 1, 2):
        flow.send({A: records(first, 1)}, [])
    flow.release(A, 1, 1)  # the third one is sent, the second one has arrived, and a call was made before it did
    assert flow.first_in_transit(A, 1) == 1
    assert flow.first_in_transit(A, 2) == 2


def test_seek_does_not_count_records_that_nobody_will_take() -> None:
    flow = FlowControl(1 << 20)
    flow.send({A: records(0, ENOUGH)}, [])
    assert flow.begin_epoch(A, 1), "it is resumed"
    _, full = flow.send({A: records(0, ENOUGH)}, [])
    assert full == [A]
    assert flow.release(A, ENOUGH, 2)
    flow.send({A: records(0, ENOUGH)}, [])
    flow.pause(A)
    assert not flow.begin_epoch(A, 2), "the program has paused it"


def test_forgotten_partition_begins_again() -> None:
    flow = FlowControl(1 << 20)
    flow.send({A: records(0, ENOUGH)}, [])
    flow.pause(A)
    flow.forget(A)
    assert flow.first_in_transit(A, 0) is None
    _, full = flow.send({A: records(0, ENOUGH - 1)}, [])
    assert not full
    assert flow.resume(A)
