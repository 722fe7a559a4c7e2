"""A Trio loop beside Spark's blocking code: one thread in each process, for the life of the process.

Spark calls a reader from the main thread of a Python worker, which it keeps for many tasks. The loop lives as long, and
every read is one task in it.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

import trio

from triokafka.errors import IllegalStateError
from triokafka.spark.kept import Kept

T = TypeVar("T")
R = TypeVar("R")

_END: Final = object()
_portals: Final[dict[int, Portal]] = {}
_lock: Final = threading.Lock()


def portal() -> Portal:
    """The portal of this process; a forked child gets one of its own."""
    with _lock:
        found = _portals.get(os.getpid())
        if found is None or not found.alive:
            found = _portals[os.getpid()] = Portal()
        return found


class Portal:
    """Runs asynchronous work for threads outside of Trio. Its thread is a daemon: it does not keep a process alive.

    ``kept`` holds clients from one call to the next, for use within the loop.
    """

    def __init__(self) -> None:
        started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=trio.run, args=(_serve, started), name="triokafka spark", daemon=True)
        self._thread.start()
        self._token, self._nursery = started.get()
        self.kept = Kept(self._nursery)

    @property
    def alive(self) -> bool:
        """Whether its loop still runs."""
        return self._thread.is_alive()

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` in the loop, wait for its end, and give back what it returned or raised."""
        return trio.from_thread.run(work, trio_token=self._token)

    def iterate(
        self, make: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]], *, ahead: int = 2
    ) -> Iterator[T]:
        """The items of an asynchronous iteration, worked out in the loop while the caller uses the ones before.

        At most ``ahead`` items wait for the caller. An error of the iteration is raised after the items before it. The
        iteration is cancelled when the returned iterator is closed, or garbage collected.
        """
        handed: queue.SimpleQueue[Any] = queue.SimpleQueue()
        room = trio.Semaphore(ahead)
        scope = trio.CancelScope()

        async def pump() -> None:
            outcome: Any = IllegalStateError("the loop that reads has ended")
            try:
                with scope:
                    async with make() as items:
                        async for item in items:
                            await room.acquire()
                            handed.put(item)
                outcome = _END
            except Exception as error:
                outcome = error
            finally:
                # Also when the whole loop is torn down: a caller must never wait for nobody.
                handed.put(outcome)

        if not self._soon(self._nursery.start_soon, pump):
            raise IllegalStateError("the loop that reads has ended")
        try:
            while True:
                item = handed.get()
                if item is _END:
                    return
                if isinstance(item, Exception):
                    raise item
                self._soon(room.release)
                yield item
        finally:
            # Only told, never waited for: the garbage collector may get here in the loop's own thread.
            self._soon(scope.cancel)

    def feed(
        self,
        items: Iterable[T],
        work: Callable[[trio.MemoryReceiveChannel[T]], Awaitable[R]],
        *,
        ahead: int = 2,
    ) -> R:
        """Run ``work`` in the loop on ``items``, which this thread iterates over meanwhile; gives back what it returns.

        At most ``ahead`` items wait to be received. When the work ends early, no more of them are asked for. When
        iterating fails, the work is cancelled, and the failure is raised when it is over.
        """
        send, receive = trio.open_memory_channel[T](max(0, ahead - 1))
        outcome: queue.SimpleQueue[tuple[R | None, Exception | None]] = queue.SimpleQueue()
        scope = trio.CancelScope()

        async def run() -> None:
            result: R | None = None
            failure: Exception | None = IllegalStateError("the work was cancelled, or the loop has ended")
            try:
                with scope, receive:
                    result = await work(receive)
                    failure = None
            except Exception as error:
                failure = error
            finally:
                # Also when the whole loop is torn down: a caller must never wait for nobody.
                outcome.put((result, failure))

        if not self._soon(self._nursery.start_soon, run):
            raise IllegalStateError("the loop has ended")
        try:
            for item in items:
                try:
                    trio.from_thread.run(send.send, item, trio_token=self._token)
                except (trio.BrokenResourceError, trio.RunFinishedError):
                    break
        except BaseException:
            self._soon(scope.cancel)
            outcome.get()
            raise
        self._soon(send.close)
        result, failure = outcome.get()
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value] # there is one where nothing failed

    def _soon(self, do: Callable[..., object], *arguments: Any) -> bool:
        """Have the loop call ``do``; False when the loop has ended."""
        try:
            self._token.run_sync_soon(do, *arguments)
        except trio.RunFinishedError:
            return False
        return True


async def _serve(started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]]) -> None:
    async with trio.open_nursery() as nursery:
        started.put((trio.lowlevel.current_trio_token(), nursery))
        await trio.sleep_forever()
