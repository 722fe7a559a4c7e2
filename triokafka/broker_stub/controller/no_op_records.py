"""Records without an effect, which show the other nodes that the active controller is alive (KIP-835)."""

from __future__ import annotations

import logging

import trio

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.errors import KafkaError
from triokafka.protocol.stored.cluster_metadata import NoOpRecord

logger = logging.getLogger(__name__)


class NoOpRecords:
    """Appends a NoOpRecord when nothing was appended for ``metadata.max.idle.interval.ms``.

    A node without any other voter or broker writes none: no node would read it.
    """

    def __init__(self, config: BrokerConfig, metadata: NodeMetadata, queue: EventQueue) -> None:
        self._node_id = config.node_id
        self._interval = config.metadata_max_idle_interval_ms / 1000
        self._metadata = metadata
        self._queue = queue
        self._needed = trio.Event()

    async def run(self) -> None:
        """Append records until cancelled. A failure is logged."""
        publisher = self._metadata.publisher
        publisher.subscribe(self._published)
        try:
            await self._append_when_idle()
        finally:
            publisher.unsubscribe(self._published)

    def _published(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._has_followers():
            self._needed.set()

    async def _append_when_idle(self) -> None:
        seen = -1
        while True:
            await self._needed.wait()
            await trio.sleep(self._interval)
            end = self._metadata.raft.end_offset
            if end == seen and self._has_followers():
                try:
                    await self._queue.submit("Idle", lambda image: Outcome([NoOpRecord()], None))
                except KafkaError as error:
                    logger.debug("Controller: the no-op record of an idle metadata log was not appended: %s", error)
            elif not self._has_followers():
                self._needed = trio.Event()
            seen = self._metadata.raft.end_offset

    def _has_followers(self) -> bool:
        nodes = {*self._metadata.raft.voters.ids, *self._metadata.image.brokers}
        return bool(nodes - {self._node_id})
