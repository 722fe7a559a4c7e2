"""Clients that outlive the calls that use them: connections and fetch sessions are made once in the life of a process.

Spark keeps a Python worker for many tasks, and the process that asks for offsets for a whole query, and never says when
it is done with either. So nothing kept here needs closing, and there are bounds on how much is kept and for how long.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import trio

from triokafka.loop_thread import LoopThread, loop_thread

T = TypeVar("T")

IDLE_LIMIT: Final = 8
"""Clients that nobody uses now, above which the one that was used longest ago is closed."""
IDLE_SECONDS: Final = 300.0
"""How long a client that nobody uses is kept, as long as Spark's own connector keeps one: connections go, and a broker
that has gone for good is not looked for as long as the process lives."""

_kept: Final[dict[LoopThread, Kept]] = {}
_log: Final = logging.getLogger("triokafka.spark")


@dataclass(eq=False, slots=True)
class _Entry:
    key: Hashable
    value: Any
    users: int = 0
    used_at: float = 0.0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


def kept() -> Kept:
    """What is kept in the loop of this process. A forked child begins with nothing."""
    loop = loop_thread()
    return _kept.setdefault(loop, Kept(loop.nursery))


class Kept:
    """Open clients by key, each in a task of its own. To be used within one Trio loop."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._entries: list[_Entry] = []  # the one used last comes last

    @asynccontextmanager
    async def shared(self, key: Hashable, make: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """The client of ``key``, opened with ``make`` when there is none; others may use it at the same time.

        One whose use ends with an exception is closed: the next use begins with new connections.
        """
        async with self._use(key, make, lambda entry: True) as value:
            yield value

    @asynccontextmanager
    async def alone(self, key: Hashable, make: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """A client of ``key`` that nobody else uses; otherwise as `shared`."""
        async with self._use(key, make, lambda entry: not entry.users) as value:
            yield value

    @asynccontextmanager
    async def _use(
        self,
        key: Hashable,
        make: Callable[[], AbstractAsyncContextManager[T]],
        suits: Callable[[_Entry], bool],
    ) -> AsyncIterator[T]:
        entry = next((known for known in self._entries if known.key == key and suits(known)), None)
        if entry is None:
            # In use from the start: while this task is woken, another one could take it for idle.
            entry = _Entry(key, None, users=1)
            try:
                await self._nursery.start(self._hold, entry, make)
            except BaseException:
                self._close(entry)
                raise
        else:
            entry.users += 1
            self._entries.remove(entry)
            self._entries.append(entry)
        try:
            yield entry.value
        except Exception:
            self._close(entry)
            raise
        finally:
            entry.users -= 1
            entry.used_at = trio.current_time()
            idle = [known for known in self._entries if not known.users]
            for known in idle[: max(0, len(idle) - IDLE_LIMIT)]:
                self._close(known)

    def _close(self, entry: _Entry) -> None:
        if entry in self._entries:
            self._entries.remove(entry)
        entry.scope.cancel()

    async def _hold(
        self,
        entry: _Entry,
        make: Callable[[], AbstractAsyncContextManager[Any]],
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        is_open = False
        try:
            with entry.scope:
                async with make() as entry.value:
                    self._entries.append(entry)
                    is_open = True
                    task_status.started()
                    await _disuse(entry)
                    if entry in self._entries:
                        self._entries.remove(entry)
        except Exception:
            if not is_open:
                raise
            # Nobody waits for it any more, and one client must not end the loop of all.
            _log.debug("a client failed to close", exc_info=True)


async def _disuse(entry: _Entry) -> None:
    """Wait until nobody has used a client for long."""
    left = IDLE_SECONDS
    while left > 0:
        await trio.sleep(left)
        left = IDLE_SECONDS if entry.users else entry.used_at + IDLE_SECONDS - trio.current_time()
