"""A second task on the event loop that counts how often it runs."""

from __future__ import annotations

import trio


class Bystander:
    """``turns`` counts the runs so far, while `run` is active in its own task."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        """Run at every checkpoint until cancelled."""
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1
