"""What runs in this process: threads, tasks of the loops beside blocking code, and child processes.

What a test has started ends with it, clients above all: one whose broker is gone asks for it forever, and says so in
the log of whatever test comes next. Fixtures of more than one test may keep what they started. One loop lives as long
as the process, in a thread of its own, but nothing runs in it between tests: clients that are kept beside Spark's code
for the next read are closed after each test. Trio's own worker threads end when they have idled for a while.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

_SECONDS_TO_END: Final = 20.0
"""What a client may still take to end that nobody has any more, or that was closed without patience."""

_LOOP: Final = "triokafka"
"""The thread that lives as long as the process."""

_FOREIGN: Final = ("py4j", "pyspark")
"""Packages that start threads for the life of their session when they need one first."""


class LeftBehind:
    """A plugin: compares what runs after a test with what ran before it or was started by longer-lived fixtures."""

    def __init__(self) -> None:
        self._before: set[Any] = set()
        self._kept: set[Any] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        self._before = set(_running())
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before = set(_running())
        try:
            return (yield)
        finally:
            self._kept |= set(_running()) - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        _end_what_spark_keeps()
        result = yield
        _let_begin()
        left = self._left(may_hang=item.get_closest_marker("may_hang") is not None)
        if left:
            pytest.fail("the test has left running:\n" + "\n".join(left), pytrace=False)
        return result

    def _left(self, *, may_hang: bool) -> list[str]:
        """Waits for what is ending anyway. Threads of others' clients that hang count only where they must not."""
        if not self._new():
            return []
        gc.collect()  # clients that nobody has any more end themselves
        until = time.monotonic() + _SECONDS_TO_END
        while (new := self._new()) and time.monotonic() < until:
            time.sleep(0.01)
        return sorted(str(one) for one in new if not (may_hang and isinstance(one, threading.Thread)))

    def _new(self) -> set[Any]:
        return set(_running()) - self._before - self._kept


def _running() -> Iterator[Any]:
    for thread in threading.enumerate():
        ours = thread.name == _LOOP or thread.name.startswith("Trio thread ")
        if not ours and not _is_foreign(thread) and not _has_ended(thread):
            yield thread
    for nursery in _loops():
        yield from _tasks(nursery)
    yield from _children()


def _is_foreign(thread: threading.Thread) -> bool:
    modules = (type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", None) or "")
    return any(module.partition(".")[0] in _FOREIGN for module in modules)


def _has_ended(thread: threading.Thread) -> bool:
    """Whether Python lists the thread but the system knows it no more.

    A thread that logs something after Python has taken it off its list, as a finalizer may make it do in its very last
    moment, is put on the list again under another name, and for good (until Python 3.13).
    """
    if not isinstance(thread, threading._DummyThread):
        return False
    system = Path("/proc/self/task")
    return system.exists() and not (system / f"{thread.native_id}").exists()


def _loops() -> Iterator[Any]:
    """The nursery of the loop beside blocking code, where there is one; nothing is imported for that."""
    beside_blocking = sys.modules.get("triokafka.loop_thread")
    if beside_blocking is not None and beside_blocking._process.loop is not None:
        yield beside_blocking._process.loop._nursery


def _end_what_spark_keeps() -> None:
    """Close the cached clients of the Spark source; the next read opens new ones."""
    module = sys.modules.get("triokafka.spark.client_cache")
    for loop, cache in list(getattr(module, "_caches", {}).items()):
        for entry in list(cache._entries):
            loop.soon(cache._close, entry)


def _let_begin() -> None:
    """What the loop beside blocking code was told to start runs then."""
    beside_blocking = sys.modules.get("triokafka.loop_thread")
    loop = None if beside_blocking is None else beside_blocking._process.loop
    told = threading.Event()
    if loop is not None and loop.soon(told.set):
        told.wait(_SECONDS_TO_END)


def _tasks(nursery: Any) -> set[Any]:
    while True:
        try:
            return set(nursery.child_tasks)
        except RuntimeError:  # the loop has changed it meanwhile, in its own thread
            pass


def _children() -> Iterator[str]:
    """The commands of the child processes that have not ended, as Linux tells them. Not their numbers: a server of a
    longer-lived fixture may be started again by a test."""
    threads = Path("/proc/self/task")
    for thread in os.listdir(threads) if threads.exists() else ():
        try:
            numbers = Path(threads, thread, "children").read_text().split()
        except OSError:  # the thread has just ended, or the system does not say
            continue
        for number in numbers:
            command = _command(Path("/proc", number))
            if command and b"multiprocessing.resource_tracker" not in command:
                yield f"process: {command.replace(bytes(1), b' ').decode(errors='replace')}"


def _command(process: Path) -> bytes:
    """The command of a process, empty once it has ended. One that is about to begin has none yet: ``Popen`` returns
    before the system has set it, and a server of a longer-lived fixture would be taken for one that a test left."""
    try:
        while not (command := Path(process, "cmdline").read_bytes()):
            state = Path(process, "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state in b"ZX":
                break
            time.sleep(0)
    except OSError:  # it is gone
        return b""
    return command
