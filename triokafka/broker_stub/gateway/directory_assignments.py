"""Tells the controller which data directory each replica of a broker is in (AssignReplicasToDirs, KIP-858).

The controller needs it to elect other leaders when a directory fails. A broker with one directory reports
nothing: the controller assigns that one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.metadata.features import assigns_directories
from triokafka.errors import KafkaError, for_code
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.protocol.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 2_250  # as Kafka's brokers do


class DirectoryAssignments:
    """The replicas whose directories the controller does not know yet.

    Args:
        broker_epoch: returns the epoch of the broker's registration.
        directory_of: returns the directory id of a replica's log; None when the log is offline.
    """

    def __init__(
        self,
        node_id: int,
        gateway: ControllerGateway,
        *,
        broker_epoch: Callable[[], int],
        directory_of: Callable[[TopicPartition], UUID | None],
    ) -> None:
        self._node_id = node_id
        self._gateway = gateway
        self._broker_epoch = broker_epoch
        self._directory_of = directory_of
        self._image = MetadataImage()
        self._waiting: dict[TopicPartition, None] = {}
        self._changed = trio.Event()

    def __len__(self) -> int:
        """Return the number of replicas that wait to be reported."""
        return len(self._waiting)

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Look at the replicas that are new or changed; the broker has applied ``image``."""
        newly_known = assigns_directories(image) and not assigns_directories(self._image)
        self._image = image
        local = delta.local_changes(self._node_id)
        self.look_at(image.replicas_on(self._node_id) if newly_known else [*local.leaders, *local.followers])

    def look_at(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Report the directories of these replicas if they differ from the metadata."""
        for topic_partition in topic_partitions:
            if self._difference(topic_partition) is not None:
                self._waiting[topic_partition] = None
                self._changed.set()

    def _difference(self, topic_partition: TopicPartition) -> UUID | None:
        state = self._image.partition(*topic_partition)
        directory = self._directory_of(topic_partition)
        if (
            state is None
            or directory is None
            or self._node_id not in state.replicas
            or not assigns_directories(self._image)
        ):
            return None
        return directory if state.directory_of(self._node_id) != directory else None

    async def run(self) -> None:
        """Report until cancelled; a failed request is repeated after a pause."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            while self._waiting:
                request, sent = self._request()
                if request is None:
                    break
                try:
                    response = await self._gateway.assign_replicas_to_dirs(request)
                    if response.error_code:
                        raise for_code(response.error_code)("AssignReplicasToDirs")
                    for topic_partition in sent:  # a later change of the metadata adds those that were refused
                        self._waiting.pop(topic_partition, None)
                except KafkaError as error:
                    logger.info("AssignReplicasToDirs failed and is retried: %s", error)
                    await trio.sleep(_RETRY_SECONDS)

    def _request(self) -> tuple[AssignReplicasToDirsRequest | None, list[TopicPartition]]:
        """Return a request with replicas that still wait, and these; the others are known meanwhile."""
        from triokafka.protocol.api.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            DirectoryData,
            PartitionData,
            TopicData,
        )

        directories: dict[UUID, dict[UUID, list[PartitionData]]] = {}
        sent: list[TopicPartition] = []
        for topic_partition in list(self._waiting):
            if len(sent) == _MOST_AT_ONCE:
                break
            directory = self._difference(topic_partition)
            if directory is None:
                del self._waiting[topic_partition]
                continue
            topic_id = self._image.topics[topic_partition.topic].topic_id
            partitions = directories.setdefault(directory, {}).setdefault(topic_id, [])
            partitions.append(PartitionData(partition_index=topic_partition.partition))
            sent.append(topic_partition)
        if not sent:
            return None, []
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                DirectoryData(
                    id=directory,
                    topics=[
                        TopicData(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()
                    ],
                )
                for directory, topics in directories.items()
            ],
        )
        return request, sent
