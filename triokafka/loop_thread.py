"""A Trio loop for code without Trio: one thread in each process, which all clients share.

The thread is a daemon and never keeps a process alive. At interpreter exit the loop is cancelled, after the `atexit`
functions that were registered later. A forked child starts without a loop, and gets a new one at
its first use.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

import trio

from triokafka.errors import IllegalStateError

T = TypeVar("T")
R = TypeVar("R")

logger = logging.getLogger(__name__)

_SECONDS_TO_END: Final = 1.0
_SECONDS_TO_NOTICE: Final = 1.0
_END: Final = object()


def take(items: queue.SimpleQueue[T]) -> T:
    """Take the next item of a queue, and wait for it.

    A signal that arrives just before the thread falls asleep does not wake it. So the thread wakes once a second, when
    Python runs the signal's handler.
    """
    while True:
        try:
            return items.get(timeout=_SECONDS_TO_NOTICE)
        except queue.Empty:
            continue


class LoopThread:
    """Runs asynchronous work for threads outside of Trio."""

    def __init__(self) -> None:
        started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=trio.run, args=(_serve, started), name="triokafka", daemon=True)
        self._thread.start()
        self._token, self._nursery = started.get()

    @property
    def alive(self) -> bool:
        """Whether its loop still runs."""
        return self._thread.is_alive()

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery for tasks within the loop; an exception of a task ends the loop."""
        return self._nursery

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in the loop's own thread, and so must not wait for it."""
        return threading.get_ident() == self._thread.ident

    def soon(self, do: Callable[..., object], *arguments: Any) -> bool:
        """Have the loop call ``do``, in order, and log its errors. Return False when the loop has ended."""
        try:
            self._token.run_sync_soon(_called, do, arguments)
        except trio.RunFinishedError:
            return False
        return True

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any, name: str) -> None:
        """Run ``work`` as a task of the loop. Its errors are logged.

        Raises:
            IllegalStateError: the loop has ended.
        """
        if not self.soon(self._start, work, arguments, name):
            raise IllegalStateError("the loop has ended: the interpreter is shutting down")

    def _start(self, work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...], name: str) -> None:
        self._nursery.start_soon(_guarded, work, arguments, name=name)

    def call(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run ``work`` in the loop, wait for its end, and return or raise its result.

        An exception that a signal raises in the waiting thread, such as `KeyboardInterrupt`, cancels the work; when
        that has ended, the exception propagates.

        Raises:
            IllegalStateError: called in the loop's own thread, or the loop has ended.
        """
        if self.is_current_thread:
            raise IllegalStateError("a blocking call in a callback of the loop would wait for itself")
        # A list and not the queue's element: a signal may raise just after the element left the queue.
        answer: list[tuple[Any, BaseException | None]] = []
        answered: queue.SimpleQueue[None] = queue.SimpleQueue()
        scope = trio.CancelScope()

        async def run() -> None:
            value: Any = None
            error: BaseException | None = IllegalStateError("the loop ended before the call did")
            try:
                with scope:
                    value, error = await work(*arguments), None
            except Exception as raised:
                error = raised
            finally:
                answer.append((value, error))
                answered.put(None)

        begun: list[bool] = []

        def begin() -> None:
            begun.append(True)
            self._start(run, (), f"call of {getattr(work, '__qualname__', work)}")

        def give_up() -> None:
            scope.cancel()
            if not begun:  # the exception came before the work was handed over, and so it never will be
                answer.append((None, None))
                answered.put(None)

        try:
            if not self.soon(begin):
                raise IllegalStateError("the loop has ended: the interpreter is shutting down")
            take(answered)
        except BaseException:
            if self.soon(give_up):
                while not answer:
                    take(answered)
            raise
        value, error = answer[0]
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return value  # type: ignore[no-any-return]

    def iterate(
        self, make: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]], *, ahead: int = 2
    ) -> Iterator[T]:
        """The items of an asynchronous iteration, computed in the loop while the caller uses the previous ones.

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
                # Also when the whole loop is torn down: no caller must wait forever.
                handed.put(outcome)

        if not self.soon(self._start, pump, (), "iteration"):
            raise IllegalStateError("the loop that reads has ended")
        try:
            while True:
                item = take(handed)
                if item is _END:
                    return
                if isinstance(item, Exception):
                    raise item
                self.soon(room.release)
                yield item
        finally:
            # Posted without waiting: the garbage collector may get here in the loop's own thread.
            self.soon(scope.cancel)

    def feed(
        self,
        items: Iterable[T],
        work: Callable[[trio.MemoryReceiveChannel[T]], Awaitable[R]],
        *,
        ahead: int = 2,
    ) -> R:
        """Run ``work`` in the loop on ``items``, over which this thread iterates meanwhile; return its result.

        At most ``ahead`` items wait to be received. If the work ends early, the iteration stops. If the iteration
        fails, the work is cancelled, and the failure is raised when it has ended.
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
                # Also when the whole loop is torn down: no caller must wait forever.
                outcome.put((result, failure))

        if not self.soon(self._start, run, (), f"feeding {getattr(work, '__qualname__', work)}"):
            raise IllegalStateError("the loop has ended")
        try:
            for item in items:
                try:
                    trio.from_thread.run(send.send, item, trio_token=self._token)
                except (trio.BrokenResourceError, trio.RunFinishedError):
                    break
        except BaseException:
            self.soon(scope.cancel)
            take(outcome)
            raise
        self.soon(send.close)
        result, failure = take(outcome)
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value] # there is one where nothing failed

    def end(self) -> None:
        """Cancel all that runs in the loop, and wait shortly for its end."""
        self.soon(self._nursery.cancel_scope.cancel)
        if not self.is_current_thread:
            self._thread.join(_SECONDS_TO_END)


async def _serve(started: queue.SimpleQueue[tuple[trio.lowlevel.TrioToken, trio.Nursery]]) -> None:
    async with trio.open_nursery() as nursery:
        started.put((trio.lowlevel.current_trio_token(), nursery))
        await trio.sleep_forever()


def _called(do: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    # Trio ends with whatever a call of `run_sync_soon` raises.
    try:
        do(*arguments)
    except Exception:
        logger.exception("Loop thread: a scheduled call failed")


async def _guarded(work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...]) -> None:
    # One client's failure must not take the loop from the others.
    try:
        await work(*arguments)
    except Exception:
        logger.exception("Loop thread: a background task failed")


class _Process:
    """The loop of this process. ``forks`` counts the forks between the first process and this one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: LoopThread | None = None
        self.forks = 0
        self.registered = False

    def forked(self) -> None:
        """Reset the state in a forked child: the thread is gone, and another thread may have held the lock."""
        self.lock = threading.Lock()
        self.loop = None
        self.forks += 1

    def exit(self) -> None:
        loop = self.loop
        if loop is not None and loop.alive:
            loop.end()


_process: Final = _Process()
os.register_at_fork(after_in_child=_process.forked)


def loop_thread() -> LoopThread:
    """Return the loop of this process; the first call starts it."""
    with _process.lock:
        if not _process.registered:
            _process.registered = True
            atexit.register(_process.exit)
        found = _process.loop
        if found is None or not found.alive:
            found = _process.loop = LoopThread()
        return found


def fork_count() -> int:
    """Return the number of forks between the first process and this one; it identifies objects of a parent process."""
    return _process.forks
