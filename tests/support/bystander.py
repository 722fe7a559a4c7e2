"""Somebody else on the event loop, who counts how often it is their turn."""

from __future__ import annotations

import trio


class Bystander:
    """``turns`` were had so far, while `run` runs in a task of its own."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        """Have turns until cancelled."""
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1
