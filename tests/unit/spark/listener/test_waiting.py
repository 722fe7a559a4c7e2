"""awaitTermination of a query ends on Ctrl-C and on SIGTERM, without a traceback."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from triokafka.spark import wait_for_query


class Query:
    """Stands in for Spark's query. ``within`` is called when a task waits for it."""

    def __init__(self, within: Callable[[int], bool]) -> None:
        self.within = within
        self.waits: list[float | None] = []
        self.stopped = 0

    def awaitTermination(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.within(len(self.waits))

    def stop(self) -> None:
        self.stopped += 1


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_query_and_leaves_signals_as_they_were(number: signal.Signals) -> None:
    before = handlers()
    query = Query(lambda waits: waits == 3 and signal.raise_signal(number) is not None)  # type: ignore[func-returns-value]
    assert wait_for_query(query) is False
    assert (query.stopped, len(query.waits)) == (1, 3)
    assert handlers() == before


def test_a_query_that_ends_is_not_stopped() -> None:
    before = handlers()
    query = Query(lambda waits: waits == 2)
    assert wait_for_query(query) is True
    assert query.stopped == 0
    assert handlers() == before


def test_failure_of_a_query_is_raised() -> None:
    before = handlers()

    def fail(waits: int) -> bool:
        raise RuntimeError("a task failed")

    with pytest.raises(RuntimeError, match="a task failed"):
        wait_for_query(Query(fail))
    assert handlers() == before


def test_a_second_signal_waits_for_nothing() -> None:
    """Stopping a batch may take long."""
    before = handlers()
    query = Query(lambda waits: signal.raise_signal(signal.SIGINT) is not None)  # type: ignore[func-returns-value]
    query.stop = lambda: signal.raise_signal(signal.SIGINT)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        wait_for_query(query)
    assert handlers() == before


def test_another_thread_only_waits() -> None:
    query = Query(lambda waits: True)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(wait_for_query(query)))
    thread.start()
    thread.join()
    assert (found, query.waits) == ([True], [None])
