"""Sending in transactions of a given length, for load runs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import triokafka
from triokafka.client.producer.transactions.transaction import Transaction

SendSome = Callable[[range, float], Awaitable[None]]
"""Sends the records with these numbers; the latency of the first counts from that time."""


class TransactionalSender:
    """Sends records in transactions; each is committed at the first call that ends ``seconds`` after its begin.

    Leave it as a context manager: it commits the last transaction, or aborts it after an error or a cancellation.
    """

    def __init__(self, producer: triokafka.Producer, send_some: SendSome, seconds: float) -> None:
        self._producer = producer
        self._send_some = send_some
        self._seconds = seconds
        self._open: Transaction | None = None
        self._ends_at = 0.0

    async def __call__(self, numbers: range, since: float) -> None:
        """Send the records with these numbers."""
        if self._open is None:
            self._open = await self._producer.transaction().__aenter__()
            self._ends_at = time.perf_counter() + self._seconds
        await self._send_some(numbers, since)
        if time.perf_counter() >= self._ends_at:
            await self._end(None, None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._open is not None:
            await self._end(kind, error, traceback)

    async def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended, self._open = self._open, None
        assert ended is not None
        await ended.__aexit__(kind, error, traceback)
