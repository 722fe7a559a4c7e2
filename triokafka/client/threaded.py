"""An asynchronous iteration for callers outside of Trio: a loop in a thread of its own, one item ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

import trio

from triokafka.errors import IllegalStateError

T = TypeVar("T")

_END: Final = object()


class ThreadedIteration(Generic[T]):
    """Opens what ``make`` returns in a Trio loop in a new thread, and iterates over it there.

    Constructing waits for ``make`` and raises what it raises. The thread ends when the iteration does: at its end, by
    an error, or when the iterator of `items` is closed or garbage collected.

    Raises:
        IllegalStateError: called inside a Trio task, which it would block.
    """

    def __init__(self, make: Callable[[], Awaitable[AbstractAsyncContextManager[AsyncIterator[T]]]]) -> None:
        if trio.lowlevel.in_trio_run():
            raise IllegalStateError("this call blocks, and would stop all Trio tasks: use RangeReader inside Trio")
        self._make = make
        self._scope = trio.CancelScope()
        self._failure: BaseException | None = None
        self._send: trio.MemorySendChannel[Any]
        self._receive: trio.MemoryReceiveChannel[Any]
        self._send, self._receive = trio.open_memory_channel(1)
        self._started: queue.SimpleQueue[trio.lowlevel.TrioToken | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="triokafka iteration", daemon=True)
        self._thread.start()
        token = self._started.get()
        if token is None:
            self._thread.join()
            assert self._failure is not None
            raise self._failure
        self._token = token

    def _work(self) -> None:
        try:
            trio.run(self._iterate)
        except BaseException as error:
            self._failure = error
            self._started.put(None)

    async def _iterate(self) -> None:
        opened = await self._make()
        self._started.put(trio.lowlevel.current_trio_token())
        with self._scope:
            try:
                async with opened as iterator:
                    async for item in iterator:
                        await self._send.send(item)
                await self._send.send(_END)
            except Exception as error:
                await self._send.send(error)
            # The caller fetches what was sent last through this loop, so it must not end before it is told to.
            await trio.sleep_forever()

    def items(self) -> Iterator[T]:
        """The items in order. Raises what the iteration raised."""
        try:
            while True:
                item = trio.from_thread.run(self._receive.receive, trio_token=self._token)
                if item is _END:
                    return
                if isinstance(item, Exception):
                    raise item
                yield item
        except (trio.RunFinishedError, trio.Cancelled) as gone:
            raise IllegalStateError("the thread that reads has ended") from (self._failure or gone)
        finally:
            # Not trio.from_thread: the garbage collector may get here in any thread, also in a Trio task.
            try:
                self._token.run_sync_soon(self._scope.cancel)
            except trio.RunFinishedError:
                pass
            if threading.current_thread() is not self._thread:
                self._thread.join()
