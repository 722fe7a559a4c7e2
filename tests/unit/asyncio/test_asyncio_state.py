"""The asyncio side of a consumer: news of the loop thread that comes too late."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from triokafka import TopicPartition
from triokafka.asyncio.consumer.asyncio_state import AsyncioState
from triokafka.errors import NoOffsetForPartitionError

A, B = TopicPartition("topic", 0), TopicPartition("topic", 1)


def records(*offsets: int) -> list[Any]:
    """Return records with these offsets."""
    return [SimpleNamespace(offset=offset) for offset in offsets]


def new() -> tuple[AsyncioState, list[tuple[TopicPartition, int, int]]]:
    """Return a state with both partitions assigned, and the list of its releases."""
    released: list[Any] = []
    local = AsyncioState(asyncio.new_event_loop(), None, None, lambda *arguments: released.append(arguments))
    local.loop.close()
    local.set_assignment(frozenset([A, B]), 0)
    return local, released


def test_news_of_the_former_assignment_does_not_count_for_the_next() -> None:
    local, _ = new()
    plan = local.begin_plan(frozenset([A]))
    local.deliver({A: (0, records(0, 1), ())}, plan - 1)
    assert local.positions() == (1, {})
    local.set_assignment(frozenset([A, B]), plan - 1)
    local.set_assignment(frozenset(), plan - 1)
    assert local.assignment == {A}
    local.deliver({A: (0, records(5), ())}, plan)
    assert [record.offset for record in local.buffer.take(None)[A]] == [5]


def test_new_assignment_drops_records_pauses_and_errors_of_the_former() -> None:
    local, released = new()
    local.deliver({A: (0, records(0, 1), ()), B: (0, records(7), ())}, 0)
    local.buffer.paused.add(A)
    local.fail(NoOffsetForPartitionError(B))
    local.begin_plan(frozenset([A]))
    assert sorted(released) == [(A, 2, 1), (B, 1, 1)]
    assert not local.buffer.take(None)
    assert not local.buffer.paused
    assert local.next_error(()) is None


def test_records_wait_until_the_member_has_joined_again() -> None:
    local, _ = new()
    local.deliver({A: (0, records(0, 1), ())}, 0)
    local.await_assignment()
    assert not local.buffer.take(None)
    assert local.positions()[1][A].offset == 0, "they count as not returned"
    local.set_assignment(frozenset([A, B]), 0, listener_follows=True)
    assert not local.buffer.take(None)
    local.finish_assignment()
    assert [record.offset for record in local.buffer.take(None)[A]] == [0, 1]
