"""A client that works in a thread of its own while a test disturbs the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ClientThread:
    """Runs ``work`` for the length of a block.

    ``work`` returns soon after `stopping` is set; `failure` is the exception with which it ended, or None.

    Args:
        name: names the thread, and the client in error messages.
        ends_within: the seconds in which ``work`` returns at the end of the block.
    """

    def __init__(self, name: str, work: Callable[[], None], *, ends_within: float) -> None:
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._name = name
        self._work = work
        self._ends_within = ends_within
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the client for the length of the block. The end raises its failure, unless the block failed itself."""
        self._thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            self._thread.join(self._ends_within)
        assert not self._thread.is_alive(), f"{self._name}: the client did not end within {self._ends_within:.0f} s"
        self.check()

    def check(self) -> None:
        """Raise `AssertionError` if the client has failed."""
        if self.failure is not None:
            raise AssertionError(f"{self._name}: the client failed") from self.failure

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failure = error
