"""Removes expired delegation tokens (``delegation.token.expiry.check.interval.ms``)."""

from __future__ import annotations

import logging

import trio

from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.errors import KafkaError
from triokafka.world import World

logger = logging.getLogger(__name__)


class TokenExpiry:
    """Removes the expired tokens every ``interval`` seconds."""

    def __init__(self, world: World, state: ControllerState, queue: EventQueue, *, interval: float) -> None:
        self._world = world
        self._state = state
        self._queue = queue
        self._interval = interval

    async def run(self) -> None:
        """Remove tokens until cancelled. A failure is logged."""
        tokens = self._state.tokens
        while True:
            await trio.sleep(self._interval)
            now_ms = self._world.wall_ms()
            if not tokens.sweep(self._state.committed, now_ms).records:
                continue
            try:
                removed = await self._queue.submit(
                    "ExpireDelegationTokens", lambda image: tokens.sweep(image, self._world.wall_ms())
                )
            except KafkaError as error:
                logger.error("Expired delegation tokens were not removed; the next check tries again: %s", error)
            else:
                logger.info("%d expired delegation tokens are removed", removed)
