"""Fencing of silent brokers when the controller cannot write."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from tests.unit.broker_stub.clusters import MemoryWorld
from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.session_fencing import SessionFencing
from triokafka.errors import KafkaError, KafkaStorageError, NotControllerError

TIMEOUT = 9.0


class Failing:
    """A controller's queue that refuses changes with ``errors`` in turn, and then fences broker 7."""

    def __init__(self, errors: list[KafkaError]) -> None:
        self.attempts: list[float] = []
        self.fenced = trio.Event()
        self._errors = errors

    async def submit(self, name: str, compute: object) -> int:
        self.attempts.append(trio.current_time())
        if self._errors:
            raise self._errors.pop(0)
        self.fenced.set()
        return 7


async def fence(queue: Failing) -> float:
    """Run until ``queue`` has fenced the broker whose session ends first; return when that was."""
    silent_since = trio.current_time()
    ends_at = silent_since + TIMEOUT

    def oldest(image: object) -> tuple[int, float] | None:
        return None if queue.fenced.is_set() else (7, ends_at)

    state = SimpleNamespace(brokers=SimpleNamespace(sessions=SimpleNamespace(oldest=oldest)), committed=None)
    fencing = SessionFencing(
        MemoryWorld(), cast(ControllerState, state), cast(EventQueue, cast(Any, queue)), timeout=TIMEOUT
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fencing.run)
        await queue.fenced.wait()
        nursery.cancel_scope.cancel()
    return trio.current_time() - silent_since


async def test_failed_change_is_repeated_after_a_second(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A silent broker would lead its partitions for another session otherwise."""
    failures = 6  # for longer than half a session: they must not count as a suspended process
    queue = Failing([KafkaStorageError("the disk is full") for _ in range(failures)])
    assert await fence(queue) == pytest.approx(TIMEOUT + failures, abs=0.1)
    assert len(queue.attempts) == failures + 1
    assert sum(record.levelno == logging.ERROR for record in caplog.records) == failures
    assert "cannot fence broker 7; trying again: the disk is full" in caplog.text


async def test_change_of_the_controller_is_no_error(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await fence(Failing([NotControllerError("another node")]))
    assert [r for r in caplog.records if r.levelno > logging.WARNING] == []
