"""The state of a producer's transactions in the asyncio loop, and the block of `AIOKafkaProducer.transaction`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from triokafka.asyncio.errors import IllegalOperation
from triokafka.errors import IllegalStateError, ProducerFencedError


class TransactionMethods(Protocol):
    """The methods of the producer that its transaction block uses."""

    async def begin_transaction(self) -> None:
        """Begin a transaction."""

    async def commit_transaction(self) -> None:
        """Commit it."""

    async def abort_transaction(self) -> None:
        """Abort it."""


Over = Callable[[BaseException | None], object]


class TransactionState:
    """Whether a transaction is open. ``guarded`` means that sends must ask `check_can_send`.

    The state follows the work in the Trio loop, which goes on when the program's call is cancelled (`follow`).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transactional_id: str | None) -> None:
        self._loop = loop
        self._work: asyncio.Task[None] | None = None
        self._abandoned = False
        self._id = transactional_id
        self._state = "none"
        self.guarded = transactional_id is not None
        self.fatal: ProducerFencedError | None = None
        """The error after which the producer cannot do anything but stop."""

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, and neither being committed nor aborted."""
        return self._state == "open"

    async def follow(self, work: Coroutine[Any, Any, None], over: Over) -> None:
        """Wait for ``work``; cancelling does not cancel it. ``over`` is called with its error, or None, when it has
        ended."""
        task = self._start(work, over)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._abandoned = True
            raise

    def _start(self, work: Coroutine[Any, Any, None], over: Over) -> asyncio.Task[None]:
        task = self._work = self._loop.create_task(work)
        task.add_done_callback(partial(self._end_work, over))
        return task

    def _end_work(self, over: Over, task: asyncio.Task[None]) -> None:
        self._work, self._abandoned = None, False
        over(asyncio.CancelledError() if task.cancelled() else task.exception())

    async def wait_for_abandoned(self) -> None:
        """Wait until nothing goes on whose call was cancelled."""
        while self._work is not None and self._abandoned:
            await asyncio.wait([self._work])

    async def wait_for_work(self) -> None:
        """Wait until no transaction is being begun or ended."""
        while self._work is not None:
            await asyncio.wait([self._work])

    def check_transactional(self) -> None:
        """Raise `IllegalOperation` without a transactional id."""
        if self._id is None:
            raise IllegalOperation("You need to configure transaction_id to use transactions")

    def check_can_send(self) -> None:
        """Raise `IllegalOperation` if the producer is transactional and no transaction is open."""
        self._check_not_fatal()
        if self._id is not None and self._state != "open":
            raise IllegalOperation("Can't send messages while not in transaction")

    def begin(self) -> None:
        """Note that a transaction is about to begin. Raises `IllegalStateError` if one is open, and ``fatal``."""
        self.check_transactional()
        self._check_not_fatal()
        if self._state != "none":
            raise IllegalStateError(f"a transaction of {self._id!r} is {self._state} already")
        self._state = "beginning"

    def begun(self) -> None:
        """Note that the transaction is open. Sends need no check until it ends."""
        self._state = "open"
        self.guarded = False

    def begin_was_cancelled(self, abort: Callable[[], Coroutine[Any, Any, None]], over: Over) -> None:
        """Abort the transaction, now or when it is open: the program does not know it. ``over`` is that of `follow`."""
        if self._state == "beginning" and self._work is not None:
            self._work.add_done_callback(lambda _: self.begin_was_cancelled(abort, over))
        elif self._state == "open":
            self.end("abort")
            self._start(abort(), over)
            self._abandoned = True

    def not_begun(self, error: BaseException) -> None:
        """Note that it could not begin."""
        self._state = "none"
        self._note_fatal(error)

    def end(self, how: str) -> None:
        """Note that the transaction is about to be committed or aborted. Raises as `begin`."""
        self.check_transactional()
        self._check_not_fatal()
        if self._state != "open":
            raise IllegalStateError(f"there is no open transaction to {how}: begin one first")
        self._state = f"in {how}"
        self.guarded = True

    def ended(self) -> None:
        """Note that it was committed or aborted."""
        self._state = "none"

    def failed(self, error: BaseException, *, still_open: bool = False) -> None:
        """Note that ending it, or adding offsets to it, failed; it can be aborted unless the failure is fatal."""
        self._note_fatal(error)
        if not still_open:
            self._state = "none" if self._state == "in abort" else "open"

    def _note_fatal(self, error: BaseException) -> None:
        if isinstance(error, ProducerFencedError):
            self.fatal = error.fresh_copy()

    def _check_not_fatal(self) -> None:
        if self.fatal is not None:
            raise self.fatal.fresh_copy()


class TransactionContext:
    """The block of one transaction."""

    def __init__(self, producer: TransactionMethods, state: TransactionState) -> None:
        self._producer = producer
        self._state = state

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if exc_type is None:
            await self._producer.commit_transaction()
        elif self._state.fatal is None:
            await self._producer.abort_transaction()
