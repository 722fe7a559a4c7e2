"""The bound on records that were sent and not taken by the loop thread yet. Used in the asyncio loop."""

from __future__ import annotations

import asyncio

from triokafka.errors import KafkaTimeoutError


class StagingRoom:
    """Counts ``staged`` bytes; above ``most`` senders wait, until half of it is free again."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.staged = 0
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_full(self) -> bool:
        """Whether senders must wait."""
        return self.staged > self._most

    def release(self, size: int) -> None:
        """Return ``size`` bytes."""
        self.staged -= size
        if self._waiters and self.staged <= self._most // 2:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        """Wait until there is room, at most ``seconds``. Raises `KafkaTimeoutError`."""
        while self.is_full:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout(seconds):
                    await waiter
            except TimeoutError:
                raise KafkaTimeoutError(
                    f"no room for a record within {seconds:g} s (request_timeout_ms): the brokers are too slow, or do"
                    " not answer"
                ) from None
