"""Which objects count as left behind by a test (`tests.support.left_behind`)."""

from __future__ import annotations

import _thread
import threading

from tests.support.left_behind import _running
from tests.support.waiting import until


def _dummies() -> set[str]:
    return {one.name for one in _running() if isinstance(one, threading._DummyThread)}


def test_a_thread_that_python_does_not_know_counts_as_long_as_it_runs() -> None:
    listed, end = _thread.allocate_lock(), _thread.allocate_lock()
    listed.acquire(), end.acquire()
    seen: list[threading.Thread] = []

    def run() -> None:
        seen.append(threading.current_thread())
        listed.release()
        end.acquire()

    _thread.start_new_thread(run, ())
    listed.acquire()
    try:
        assert _dummies() >= {seen[0].name}
    finally:
        end.release()
    _until_gone(seen[0])


def _until_gone(thread: threading.Thread) -> None:
    """There is no event for the end of a thread that Python does not know."""
    until(lambda: thread.name not in _dummies(), "a thread that has ended still counts", 20)
