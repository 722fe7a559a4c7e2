"""A bell that a thread can ring for a task without the interpreter."""

from __future__ import annotations

import os
from typing import Self

import trio


class Doorbell:
    """A pipe that wakes one waiting task: any thread writes a byte to ``descriptor``. Leaving the block closes it."""

    def __init__(self) -> None:
        self._heard, self.descriptor = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(self.descriptor, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.notify_closing(self._heard)
        os.close(self._heard)
        os.close(self.descriptor)

    async def wait(self) -> None:
        """Wait for at least one ring. Cancelling loses no ring."""
        await trio.lowlevel.wait_readable(self._heard)
        os.read(self._heard, 4096)
