"""Closing connections without a request for ``connections.max.idle.ms``."""

from __future__ import annotations

from collections.abc import Collection

import trio

from triokafka.broker_stub.network.processor import ConnectionProcessor
from triokafka.world import World


class IdleConnections:
    """Closes the idle ones among ``connections``, which the owner changes. With a limit of 0 or less it closes none."""

    def __init__(self, connections: Collection[ConnectionProcessor], max_idle_ms: int, world: World) -> None:
        self._connections = connections
        self._max_idle_ms = max_idle_ms
        self._world = world
        self._clock_jumped = trio.Event()

    def clock_jumped(self) -> None:
        """Check all connections again: the world's clock was moved."""
        self._clock_jumped.set()
        self._clock_jumped = trio.Event()

    async def run(self) -> None:
        """Close idle connections until cancelled."""
        limit = self._max_idle_ms / 1000
        while limit > 0:
            now = self._world.now()
            oldest = now
            for connection in list(self._connections):
                if now - connection.idle_since >= limit:
                    connection.close(f"idle for {self._max_idle_ms} ms")
                elif connection.idle_since < oldest:
                    oldest = connection.idle_since
            with trio.move_on_after(max(oldest + limit - now, 0)):
                await self._clock_jumped.wait()
