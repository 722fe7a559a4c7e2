"""The running parts of this process: threads, tasks of the loops for blocking code, and child processes.

Everything that a test starts must end with it, above all clients: a client without a broker would retry forever, and
log its attempts during the next tests. Fixtures that several tests share may keep their parts running. One loop lives
as long as the process, in its own thread, but runs nothing between tests: clients that Spark's code caches are closed
after each test. Trio's own worker threads end after a while without work.
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
"""The time that an abandoned client, or one closed without a time limit, may take to end."""

_LOOP: Final = "triokafka"
"""The thread that lives as long as the process."""

_FOREIGN: Final = ("py4j", "pyspark")
"""Packages that start threads for the rest of the session at their first use."""


class LeftBehind:
    """A plugin: compares the running parts after a test with those from before, or from longer-lived fixtures."""

    def __init__(self) -> None:
        self._before: set[Any] = set()
        self._fixture_parts: set[Any] = set()

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
            self._fixture_parts |= set(_running()) - before

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
        """Wait for parts that are ending, and return the rest.

        Hanging threads of other clients count only in tests in which they must not hang.
        """
        if not self._new():
            return []
        gc.collect()  # abandoned clients end themselves; librdkafka's in threads, see `librdkafka_calls`
        until = time.monotonic() + _SECONDS_TO_END
        while (new := self._new()) and time.monotonic() < until:
            time.sleep(0.01)
        return sorted(str(one) for one in new if not (may_hang and isinstance(one, threading.Thread)))

    def _new(self) -> set[Any]:
        return set(_running()) - self._before - self._fixture_parts


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
    """Whether Python lists a thread that the operating system no longer has.

    A thread that logs after Python has removed it from the list, for example in a finalizer at its very end, is added
    again under another name, and stays there (until Python 3.13).
    """
    if not isinstance(thread, threading._DummyThread):
        return False
    system = Path("/proc/self/task")
    return system.exists() and not (system / f"{thread.native_id}").exists()


def _loops() -> Iterator[Any]:
    """Return the nursery of the loop for blocking code, if there is one; import nothing for that."""
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
    """Wait until the loop for blocking code has run the callbacks that are scheduled now."""
    beside_blocking = sys.modules.get("triokafka.loop_thread")
    loop = None if beside_blocking is None else beside_blocking._process.loop
    scheduled = threading.Event()
    if loop is not None and loop.soon(scheduled.set):
        scheduled.wait(_SECONDS_TO_END)


def _tasks(nursery: Any) -> set[Any]:
    while True:
        try:
            return set(nursery.child_tasks)
        except RuntimeError:  # the loop has changed it meanwhile, in its own thread
            pass


def _children() -> Iterator[str]:
    """Yield the commands of the running child processes, as Linux reports them, without their process ids.

    A test may restart a server of a longer-lived fixture, which changes the id.
    """
    threads = Path("/proc/self/task")
    for thread in os.listdir(threads) if threads.exists() else ():
        try:
            numbers = Path(threads, thread, "children").read_text().split()
        except OSError:  # the thread has just ended, or the system does not report it
            continue
        for number in numbers:
            command = _command(Path("/proc", number))
            if command and b"multiprocessing.resource_tracker" not in command:
                yield f"process: {command.replace(bytes(1), b' ').decode(errors='replace')}"


def _command(process: Path) -> bytes:
    """Return the command of a process, empty once it has ended.

    A new process has none yet: ``Popen`` returns before the system has set it, and a server of a longer-lived fixture
    would count as left by a test.
    """
    try:
        while not (command := Path(process, "cmdline").read_bytes()):
            state = Path(process, "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state in b"ZX":
                break
            time.sleep(0)
    except OSError:  # the process has ended
        return b""
    return command
