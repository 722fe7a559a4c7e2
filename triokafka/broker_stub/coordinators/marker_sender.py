"""The task that writes the markers of decided transactions: here, and on the other brokers (WriteTxnMarkers)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from math import inf

import trio

from triokafka.broker_stub.coordinators.broker_channels import BrokerChannels
from triokafka.broker_stub.coordinators.marker_writer import PartitionMarkers
from triokafka.coordinator.runtime.coordinator_log import TransactionMarker
from triokafka.coordinator.transaction.marker_queue import Completion, MarkerQueue, MarkerRequest
from triokafka.errors import KafkaError
from triokafka.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from triokafka.structs import TopicPartition, by_topic
from triokafka.world import World

logger = logging.getLogger(__name__)


class MarkerSender:
    """Sends the requests of a `MarkerQueue`, one per broker at a time.

    Args:
        local: writes the markers of partitions that this broker leads.
        nodes: reaches the other brokers.
        leader_of: see `MarkerQueue`.
    """

    def __init__(
        self,
        world: World,
        node_id: int,
        local: PartitionMarkers,
        nodes: BrokerChannels,
        leader_of: Callable[[TopicPartition], int | None],
    ) -> None:
        self._world = world
        self._node_id = node_id
        self._local = local
        self._nodes = nodes
        self._queue = MarkerQueue(leader_of)
        self._work_arrived = trio.Event()

    def __len__(self) -> int:
        """Return the number of transactions whose markers are being written."""
        return len(self._queue)

    @property
    def without_leader(self) -> int:
        """The number of markers whose partition has no leader."""
        return self._queue.without_leader

    def add(self, completion: Completion) -> None:
        """See `Completions`."""
        self._queue.add(completion)
        self._work_arrived.set()

    def forget(self, partition: int) -> None:
        """See `Completions`."""
        self._queue.forget(partition)

    async def run(self, completed: Callable[[Completion], None]) -> None:
        """Send until cancelled. ``completed`` is called when all markers of a transaction are written."""
        async with trio.open_nursery() as nursery:
            while True:
                self._work_arrived = trio.Event()
                for request in self._queue.due(self._world.now()):
                    nursery.start_soon(self._send, request)
                for completion in self._queue.take_done():
                    completed(completion)
                deadline = self._queue.next_deadline()
                with trio.CancelScope(deadline=self._world.deadline(inf if deadline is None else deadline)):
                    await self._work_arrived.wait()

    async def _send(self, request: MarkerRequest) -> None:
        codes: Sequence[Mapping[TopicPartition, int]] | None = None
        try:
            if request.node_id == self._node_id:
                codes = await self._local.write([(_marker(known), partitions) for known, partitions in request.markers])
            else:
                codes = _codes(await self._nodes.send(request.node_id, _message(request)), request)
        except (KafkaError, OSError) as error:
            logger.info(
                "Transaction markers: broker %d cannot write them now; trying again: %s", request.node_id, error
            )
        for note in self._queue.answered(request, codes, self._world.now()):
            logger.warning("%s", note)
        self._work_arrived.set()


def _marker(completion: Completion) -> TransactionMarker:
    return TransactionMarker(
        completion.producer_id,
        completion.producer_epoch,
        completion.coordinator_epoch,
        completion.commits,
        completion.version,
    )


def _message(request: MarkerRequest) -> WriteTxnMarkersRequest:
    markers = []
    for completion, partitions in request.markers:
        markers.append(
            WritableTxnMarker(
                producer_id=completion.producer_id,
                producer_epoch=completion.producer_epoch,
                transaction_result=completion.commits,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                    for topic, numbers in by_topic(partitions).items()
                ],
                coordinator_epoch=completion.coordinator_epoch,
                transaction_version=completion.version,
            )
        )
    return WriteTxnMarkersRequest(markers=markers)


def _codes(response: WriteTxnMarkersResponse, request: MarkerRequest) -> list[dict[TopicPartition, int]]:
    """Return the codes in the order of the request; Kafka answers by producer id, in any order."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for marker in response.markers:
        codes = found.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                codes[TopicPartition(topic.name, partition.partition_index)] = partition.error_code
    return [found.get(completion.producer_id, {}) for completion, _ in request.markers]
