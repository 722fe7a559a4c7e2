"""Fences brokers that send no heartbeats (``broker.session.timeout.ms``)."""

from __future__ import annotations

import logging
from typing import Final

import trio

from triokafka.broker_stub.controller.broker_control import BrokerControl
from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.errors import KafkaError, NotControllerError
from triokafka.world import World

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class SessionFencing:
    """Waits for the end of the oldest session, and then fences its broker.

    Args:
        timeout: the session timeout in seconds.
    """

    def __init__(self, world: World, state: ControllerState, queue: EventQueue, *, timeout: float) -> None:
        self._world = world
        self._state = state
        self._queue = queue
        self._timeout = timeout

    async def run(self) -> None:
        """Fence brokers when their sessions end, one at a time, until cancelled."""
        brokers, timeout, now = self._state.brokers, self._timeout, self._world.now
        not_before = now()
        while True:
            oldest = brokers.sessions.oldest(self._state.committed)
            # A session that begins during the sleep ends no earlier than a whole timeout from now.
            due_at = max(not_before, now() + timeout if oldest is None else oldest[1])
            await trio.sleep(max(0.0, due_at - now()))
            if now() > due_at + timeout / 2:  # this process was suspended, and received no heartbeats
                brokers.sessions.resume(now())
                continue
            oldest = brokers.sessions.oldest(self._state.committed)
            if oldest is None or oldest[1] >= now():
                await trio.sleep(0.001)  # a session includes its last moment
                continue
            try:
                fenced = await self._queue.submit(
                    "FenceStaleBroker", lambda image: fence_stale(brokers, image, now=now())
                )
            except NotControllerError:
                not_before = now() + timeout  # another controller fences now, and this task is about to be cancelled
            except KafkaError as error:
                logger.error("Controller: cannot fence broker %d; trying again: %s", oldest[0], error)
                not_before = now() + min(_RETRY_SECONDS, timeout)
            else:
                if fenced is not None:
                    logger.warning("broker %d is fenced: it sent no heartbeat for more than %g s", fenced, timeout)


def fence_stale(brokers: BrokerControl, image: MetadataImage, *, now: float) -> Outcome[int | None]:
    """Fence the broker whose session ended first, if any. One at a time: each call sees the effect of the last."""
    oldest = brokers.sessions.oldest(image)
    if oldest is None or oldest[1] >= now:
        return Outcome([], None)
    return Outcome(brokers.fence(image, image.brokers[oldest[0]]), oldest[0])
