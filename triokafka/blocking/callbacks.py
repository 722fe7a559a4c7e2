"""The thread in which a client's callbacks run, so that one that blocks stops nothing else."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triokafka.blocking.producer.staging import Chunk, Listening

logger = logging.getLogger(__name__)


class CallbackThread:
    """Settles futures. Its thread begins with the first callback, is a daemon, and ends with `end`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: queue.SimpleQueue[tuple[Chunk, Listening] | threading.Event | None]
        self._waiting = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending = False

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller is a callback."""
        return self._thread is not None and threading.get_ident() == self._thread.ident

    def settle(self, chunk: Chunk, group: Listening) -> None:
        """Settle futures: here if it is one that only threads wait for, else in the thread. Called in the loop."""
        if len(group) == 1 and chunk.settle_unheard(group[0]):
            return
        if self._ending:
            # Somebody asks only now what became of a record; the thread may have ended.
            threading.Thread(target=_settle, args=(chunk, group), name=self._name, daemon=True).start()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._waiting.put((chunk, group))

    def wait(self, timeout: float | None) -> bool:
        """Wait until the callbacks of what was settled before have run; False when the time was over."""
        if self._thread is None or self.is_current_thread:
            return True
        if self._ending:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        passed = threading.Event()
        self._waiting.put(passed)
        return passed.wait(timeout)

    def end(self) -> None:
        """End the thread after what waits. Called in the loop."""
        if not self._ending:
            self._ending = True
            self._waiting.put(None)

    def _run(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            if isinstance(next_one, threading.Event):
                next_one.set()
                continue
            _settle(*next_one)


def _settle(chunk: Chunk, group: Listening) -> None:
    try:
        chunk.settle(group)
    except Exception:
        logger.exception("a callback failed")
