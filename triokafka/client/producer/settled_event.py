"""Waiting for a batch until it is settled: delivered, or failed."""

from __future__ import annotations

import trio

from triokafka.trio_context import require_trio


class SettledEvent:
    """The event of a batch: `trio.Event`, with an error that helps outside of Trio."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Wake the waiters."""
        self._event.set()

    async def wait(self) -> None:
        """Return once the event is set. Raises `RuntimeError` outside of Trio."""
        try:
            await self._event.wait()
        except RuntimeError:
            require_trio("Awaiting a delivery")
            raise
