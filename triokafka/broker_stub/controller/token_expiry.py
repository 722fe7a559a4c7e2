"""Removes expired delegation tokens (``delegation.token.expiry.check.interval.ms``)."""

from __future__ import annotations

import logging

import trio

from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.outcome import MAX_RECORDS_PER_OPERATION, Outcome
from triokafka.broker_stub.metadata.delegation_tokens import is_expired, tokens_of
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.errors import KafkaError
from triokafka.protocol.stored.cluster_metadata import RemoveDelegationTokenRecord
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
        while True:
            await trio.sleep(self._interval)
            now_ms = self._world.wall_ms()
            if not expired_tokens(self._state.committed, now_ms).records:
                continue
            try:
                removed = await self._queue.submit(
                    "ExpireDelegationTokens", lambda image: expired_tokens(image, self._world.wall_ms())
                )
            except KafkaError as error:
                logger.error("Expired delegation tokens were not removed; the next check tries again: %s", error)
            else:
                logger.info("%d expired delegation tokens are removed", removed)


def expired_tokens(image: MetadataImage, now_ms: int) -> Outcome[int]:
    """Remove expired tokens, at most as many as one operation may; return how many."""
    expired = [token.token_id for token in tokens_of(image) if is_expired(token, now_ms)]
    records = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired[:MAX_RECORDS_PER_OPERATION]]
    return Outcome(records, len(records))
