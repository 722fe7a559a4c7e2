"""Cached clients: connections and fetch sessions outlive the calls that use them.

Spark reuses a Python worker for many tasks, and the process that plans offsets for a whole query, and does not report
the end of either. So cached clients need no explicit closing; their number and idle time are bounded.
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
"""The maximum number of idle clients; beyond it the least recently used is closed."""
IDLE_SECONDS: Final = 300.0
"""How long an idle client is kept, as in Spark's own connector. Its connections close then, and it stops reconnecting
to brokers that are gone permanently."""

_caches: Final[dict[LoopThread, ClientCache]] = {}
_log: Final = logging.getLogger("triokafka.spark")


@dataclass(eq=False, slots=True)
class _Entry:
    key: Hashable
    value: Any
    users: int = 0
    used_at: float = 0.0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


def client_cache() -> ClientCache:
    """Return the cache of this process's loop. A forked child starts with an empty one."""
    loop = loop_thread()
    return _caches.setdefault(loop, ClientCache(loop.nursery))


class ClientCache:
    """Open clients by key, each in a task of its own. Use it within one Trio loop only."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._entries: list[_Entry] = []  # least recently used first

    @asynccontextmanager
    async def shared(self, key: Hashable, make: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """Yield the client of ``key``, opened with ``make`` if there is none. Others may use it at the same time.

        If a use ends with an exception, the client is closed, and the next use opens new connections.
        """
        async with self._use(key, make, lambda entry: True) as value:
            yield value

    @asynccontextmanager
    async def alone(self, key: Hashable, make: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """Yield a client of ``key`` that has no other user; otherwise like `shared`."""
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
            # Counted as in use from the start: otherwise another task could close it as idle before this one runs.
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
            # Its user has left, and one client must not end the loop of all.
            _log.debug("closing a client failed", exc_info=True)


async def _disuse(entry: _Entry) -> None:
    """Wait until the client has been idle for `IDLE_SECONDS`."""
    left = IDLE_SECONDS
    while left > 0:
        await trio.sleep(left)
        left = IDLE_SECONDS if entry.users else entry.used_at + IDLE_SECONDS - trio.current_time()
