"""Fences brokers that send no heartbeats (``broker.session.timeout.ms``)."""

from __future__ import annotations

import logging

import trio

from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.errors import KafkaError
from triokafka.world import World

logger = logging.getLogger(__name__)


class SessionFencing:
    """Waits for the end of the oldest session of a broker, and fences the broker then.

    Args:
        timeout: how long a broker may be silent, in seconds.
    """

    def __init__(self, world: World, state: ControllerState, queue: EventQueue, *, timeout: float) -> None:
        self._world = world
        self._state = state
        self._queue = queue
        self._timeout = timeout

    async def run(self) -> None:
        """Fence brokers as their sessions end, one by one, until cancelled."""
        cluster, timeout, now = self._state.cluster, self._timeout, self._world.now
        while True:
            oldest = cluster.oldest_session(self._state.committed)
            # A session that begins during the sleep ends no earlier than a whole timeout from now.
            due_at = now() + timeout if oldest is None else oldest[1]
            await trio.sleep(max(0.0, due_at - now()))
            if now() > due_at + timeout / 2:  # this process was stopped for a while, and received nothing
                cluster.resume(now())
                continue
            oldest = cluster.oldest_session(self._state.committed)
            if oldest is None or oldest[1] >= now():
                await trio.sleep(0.001)  # a session is valid up to and including its last moment
                continue
            try:
                fenced = await self._queue.submit(
                    "FenceStaleBroker", lambda image: cluster.fence_stale(image, now=now())
                )
            except KafkaError as error:
                logger.error("Broker %d: cannot be fenced: %s", oldest[0], error)
                await trio.sleep(timeout)
            else:
                if fenced is not None:
                    logger.warning("broker %d is fenced: it was silent for more than %g s", fenced, timeout)
