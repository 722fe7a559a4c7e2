"""The background tasks of a node: one nursery, and what happens when a task fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from triokafka.errors import IllegalStateError

logger = logging.getLogger(__name__)


class NodeTasks:
    """Runs the tasks of a node. The tasks run until they are cancelled; the first that fails stops the node from
    serving.

    Args:
        stop_serving: is called when a task fails.
    """

    def __init__(self, stop_serving: Callable[[], None]) -> None:
        self._stop_serving = stop_serving
        self._manager: AbstractAsyncContextManager[trio.Nursery, bool | None] | None = None
        self._nursery: trio.Nursery | None = None
        self._closing: trio.Nursery | None = None
        self._stopped = trio.Event()
        self.failure: Exception | None = None

    async def open(self) -> None:
        """Open the nursery.

        Raises:
            IllegalStateError: it was opened before; a node starts once.
        """
        if self._manager is not None:
            raise IllegalStateError("a broker can start only once: create a new one")
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()

    @property
    def is_open(self) -> bool:
        """Whether tasks can be started."""
        return self._nursery is not None

    def start(self, run: Callable[[], Awaitable[object]]) -> None:
        """Start a task."""
        if self._nursery is None:
            raise IllegalStateError("the node is not running")
        self._nursery.start_soon(self._guard, run)

    def refuse(self) -> None:
        """Start no more tasks; those that run continue until `close`."""
        if self._nursery is not None:
            self._closing, self._nursery = self._nursery, None

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended, also when the caller was cancelled."""
        self.refuse()
        manager, nursery = self._manager, self._closing
        if manager is None or nursery is None:
            return
        nursery.cancel_scope.shield = True
        nursery.cancel_scope.cancel()
        await manager.__aexit__(None, None, None)

    def note_stopped(self) -> None:
        """Wake those that wait for the node's end."""
        self._stopped.set()

    async def wait_stopped(self) -> None:
        """Wait until the node has stopped, or until a task has failed (``failure``)."""
        await self._stopped.wait()

    async def _guard(self, run: Callable[[], Awaitable[object]]) -> None:
        try:
            await run()
        except Exception as error:
            logger.critical("the broker stops: %r failed", run, exc_info=True)
            self.failure = error
            self._stop_serving()
            self._stopped.set()
