"""A Trio run in its own thread, with calls from other threads."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")


class Portal(Generic[T]):
    """Holds an asynchronous context manager open in a thread, and lets other threads call into its Trio run.

    Args:
        open_block: makes the context manager, in the thread; `start` returns the value of entering it.
        name: the thread's name.
    """

    def __init__(self, open_block: Callable[[], AbstractAsyncContextManager[T]], *, name: str) -> None:
        self._open_block = open_block
        self._entered: Future[T] = Future()
        self._ended: Future[None] = Future()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._leave = trio.Event()
        self._is_leaving = False
        # A daemon, so that a program that never leaves the block can still exit.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def begin(self) -> Future[T]:
        """Start the thread; return the future of what entering the block gives. Then `stop` must be called."""
        self._thread.start()
        return self._entered

    def start(self) -> T:
        """Start the thread and enter the block. If entering raises, raise the same error; nothing is left running."""
        try:
            return self.begin().result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Leave the block and wait for the thread to end; a second call does nothing. Raises the block's error on
        exit."""
        self._is_leaving = True  # the thread checks this once it can be reached: start() may have been interrupted
        if self._token is not None and self._thread.is_alive():
            try:
                self._token.run_sync_soon(self._leave.set)
            except trio.RunFinishedError:
                pass
        self._thread.join()
        if self._ended.done() and self._entered.done() and self._entered.exception() is None:
            ended, self._ended = self._ended, Future()
            self._ended.set_result(None)
            ended.result()

    def call(self, function: Callable[..., R], *args: object, **options: object) -> R:
        """Call ``function`` in the Trio run and return its result; the calling thread waits.

        Raises the function's error, and `RuntimeError` if the block was left.
        """

        async def run() -> R:
            return function(*args, **options)

        return self.wait(run)

    def wait(self, function: Callable[..., Awaitable[R]], *args: object, **options: object) -> R:
        """As `call`, for an asynchronous function."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("call this from another thread; in the broker's own Trio run, await its calls")
        return self.submit(function, *args, **options).result()

    def submit(self, function: Callable[..., Awaitable[R]], *args: object, **options: object) -> Future[R]:
        """Run an asynchronous function in the Trio run; return the future of its result. Raises as `call`."""
        done: Future[R] = Future()

        async def run() -> None:
            try:
                done.set_result(await function(*args, **options))
            except Exception as error:
                done.set_exception(error)
            except BaseException:
                done.set_exception(_stopped())
                raise

        def start() -> None:
            if self._nursery is None:
                done.set_exception(_stopped())
            else:
                self._nursery.start_soon(run)

        try:
            if self._token is None:
                raise _stopped()
            self._token.run_sync_soon(start)
        except trio.RunFinishedError:
            raise _stopped() from None
        return done

    def _run(self) -> None:
        try:
            trio.run(self._hold)
        except BaseException as error:
            if not self._entered.done():
                self._entered.set_exception(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _hold(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._is_leaving:
            return
        async with self._open_block() as value, trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                self._entered.set_result(value)
                await self._leave.wait()
            finally:
                self._nursery = None  # before it closes: a call from another thread may come at any time
            nursery.cancel_scope.cancel()


def _stopped() -> RuntimeError:
    return RuntimeError("the broker's block was left")
