"""The pending calls of rebalance listeners."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


async def call_listener(listener: object, method: str, partitions: Sequence[TopicPartition]) -> None:
    """Call one method of a listener, plain or async, if the listener has it; log its exception."""
    function: Callable[[Sequence[TopicPartition]], Any] | None = getattr(listener, method, None)
    if function is None and method == "on_partitions_lost":
        function = getattr(listener, "on_partitions_revoked", None)
    if function is None:
        return
    try:
        result = function(partitions)
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.exception("%s of the rebalance listener failed for %s", method, [str(one) for one in partitions])


class _Call(NamedTuple):
    listener: object
    method: str
    partitions: tuple[TopicPartition, ...]


class ListenerCalls:
    """A queue of calls, in order. False if it is empty."""

    def __init__(self) -> None:
        self._waiting: deque[_Call] = deque()
        self._running: _Call | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, listener: object, method: str, partitions: tuple[TopicPartition, ...]) -> None:
        """Queue a call of this listener; a later listener does not replace it."""
        self._waiting.append(_Call(listener, method, partitions))

    def replace(self, listener: object, method: str, held: tuple[TopicPartition, ...]) -> None:
        """Replace all calls by one that reports every partition of the listener as lost or revoked."""
        running = self._running
        if running is not None and running.method != "on_partitions_assigned":
            # The listener has ended the subscription during a revocation.
            reported = frozenset(running.partitions)
            held = tuple(partition for partition in held if partition not in reported)
        self._waiting.clear()
        if held:
            self.add(listener, method, held)

    async def drain(self) -> None:
        """Make all calls. The next `drain` repeats a cancelled call."""
        while self._waiting:
            self._running = call = self._waiting[0]
            try:
                await call_listener(*call)
            finally:
                self._running = None
            # Only now: a cancelled listener may have done half of its work.
            if self._waiting and self._waiting[0] is call:
                self._waiting.popleft()
