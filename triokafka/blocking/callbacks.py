"""The thread that runs a client's callbacks, so that a blocking callback delays nothing else."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


class CallbackThread:
    """Runs calls in order in a daemon thread, which starts with the first call and ends with `end`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: queue.SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]] | threading.Event | None]
        self._waiting = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending = False
        self._put = self._done = 0

    @property
    def is_current_thread(self) -> bool:
        """Whether the current thread is this one."""
        return self._thread is not None and threading.get_ident() == self._thread.ident

    def put(self, do: Callable[..., object], *arguments: Any) -> None:
        """Have the thread call ``do``. Called in the loop."""
        if self._ending:
            # A waiter asked late for a record's outcome, and the thread may have ended.
            threading.Thread(target=_guarded, args=(do, arguments), name=self._name, daemon=True).start()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._put += 1
        self._waiting.put((do, arguments))

    def wait(self, timeout: float | None) -> bool:
        """Wait until all earlier calls have run. Return False if the time limit passed."""
        if self._thread is None or self._done == self._put or self.is_current_thread:
            return True
        if self._ending:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        passed = threading.Event()
        self._waiting.put(passed)
        return passed.wait(timeout)

    def end(self) -> None:
        """End the thread after the queued calls. Called in the loop."""
        if not self._ending:
            self._ending = True
            self._waiting.put(None)

    def _run(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            if isinstance(next_one, threading.Event):
                next_one.set()
            else:
                _guarded(*next_one)
                self._done += 1


def _guarded(do: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    try:
        do(*arguments)
    except Exception:
        logger.exception("Blocking API: the callbacks of a delivery cannot be called")
