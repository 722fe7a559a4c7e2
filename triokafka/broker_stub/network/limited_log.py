"""Rate-limited warnings, for warnings that any peer can cause."""

from __future__ import annotations

import logging
from math import inf
from typing import Final

import trio

from triokafka.world import World

LINES: Final = 10
"""Maximum warnings per `SECONDS`."""
SECONDS: Final = 60.0


class LimitedLog:
    """Logs at most `LINES` warnings per `SECONDS`, followed by a summary with the number of the others.

    Warnings beyond the limit are logged at INFO, so that a verbose log contains all. The task `run` logs the summary.

    Args:
        summary: the format of the summary, with placeholders for the number of warnings and for the seconds.
    """

    def __init__(self, logger: logging.Logger, world: World, summary: str) -> None:
        self._logger = logger
        self._world = world
        self._summary = summary
        self._began_at = -inf
        self._logged = 0
        self._left_out = 0
        self._over_limit = trio.Event()

    def warn(self, message: str, *args: object) -> None:
        """Log a warning, or count it beyond the limit."""
        now = self._world.now()
        if now - self._began_at >= SECONDS and not self._left_out:
            self._began_at, self._logged = now, 0
        if self._logged < LINES:
            self._logged += 1
            self._logger.warning(message, *args)
            return
        self._left_out += 1
        self._logger.info(message, *args)
        self._over_limit.set()

    async def run(self) -> None:
        """Log the summaries until cancelled."""
        while True:
            await self._over_limit.wait()
            await trio.sleep(max(self._began_at + SECONDS - self._world.now(), 0))
            self._logger.warning(self._summary, self._left_out, SECONDS)
            self._began_at, self._logged, self._left_out = self._world.now(), 0, 0
            self._over_limit = trio.Event()
