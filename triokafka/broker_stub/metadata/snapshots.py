"""Snapshots of the metadata: an image as records, in Kafka's ``.checkpoint`` files beside the metadata log.

A snapshot is the result of replaying the log up to its end offset, so the log before it may be deleted. Calls block on
the disk; the caller chooses the thread. Images are immutable, so one can be written while the next is being built.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage, PartitionImage, QuotaEntity
from triokafka.broker_stub.metadata.records import (
    LogBatch,
    decode_batches,
    encode_records,
    encode_snapshot_footer,
)
from triokafka.errors import KafkaError, UnsupportedVersionError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.message import Struct
from triokafka.protocol.stored import cluster_metadata as stored
from triokafka.records import iter_batches
from triokafka.structs import Buffer
from triokafka.world import Storage

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
UNFINISHED_SUFFIX: Final = ".part"
"""Ends the name of a snapshot that is being written."""
_BATCH_RECORDS: Final = 1024
"""Records in one batch of a snapshot: Kafka's own bound."""


class SnapshotId(NamedTuple):
    """The id of a snapshot: it has the state before the record at ``end_offset``, and ``epoch`` is that of the record
    before.
    """

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The file name of the snapshot."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class Snapshot(NamedTuple):
    """A complete snapshot."""

    snapshot_id: SnapshotId
    batches: Sequence[LogBatch]


# An image as records


def image_records(image: MetadataImage) -> Iterator[Struct]:
    """Yield the records that build this image from an empty one, in Kafka's order."""
    for name, level in image.features.items():
        yield stored.FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield registration_record(broker)
    yield from image.controllers.values()
    for topic in image.topics.values():
        yield stored.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions.values():
            yield partition_record(topic.topic_id, partition)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield stored.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    for entity, quotas in image.client_quotas.items():
        for key, quota in quotas.items():
            yield quota_record(entity, key, quota)
    if image.producer_ids:
        yield stored.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.producer_ids)
    yield from image.security_records.values()


def registration_record(broker: BrokerImage) -> stored.RegisterBrokerRecord:
    """Return the record that registers a broker in its present state."""
    return stored.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[
            stored.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            stored.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if broker.cordoned_directories is None else list(broker.cordoned_directories),
    )


def partition_record(topic_id: uuid.UUID, partition: PartitionImage) -> stored.PartitionRecord:
    """Return the record that creates a partition in its present state."""
    return stored.PartitionRecord(
        partition_id=partition.partition,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def quota_record(entity: QuotaEntity, key: str, value: float | None) -> stored.ClientQuotaRecord:
    """Return the record that sets one quota; without a value, the one that removes it."""
    return stored.ClientQuotaRecord(
        entity=[stored.ClientQuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


def encode_image(image: MetadataImage, *, first_offset: int, timestamp_ms: int) -> Iterator[bytes]:
    """Yield the batches of a snapshot after its header: the records of the image, and the footer.

    Args:
        first_offset: the number of records in the header batch.
        timestamp_ms: the time of the last change.
    """
    offset, epoch = first_offset, image.epoch
    level = features.metadata_version(image.features)
    waiting: list[Struct] = []

    def batch() -> bytes:
        return encode_records(
            waiting, base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms, metadata_version=level
        )

    for record in image_records(image):
        waiting.append(record)
        if len(waiting) == _BATCH_RECORDS:
            yield batch()
            offset += len(waiting)
            waiting.clear()
    if waiting:
        yield batch()
        offset += len(waiting)
    yield encode_snapshot_footer(base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)


def check_snapshot(content: Buffer, snapshot_id: SnapshotId) -> None:
    """Check that ``content`` is a whole snapshot. Raises ValueError, `CorruptRecordError`."""
    infos = list(iter_batches(content, check_crc=True))
    end = infos[-1].end if infos else 0
    if end < len(content):
        raise ValueError(f"the batch at byte {end} is incomplete")
    if snapshot_id.end_offset > 0 and not (infos and infos[-1].is_control):
        raise ValueError("the snapshot is incomplete")


# Files


class SnapshotFiles:
    """The snapshot files in the directory of the metadata log."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory

    def ids(self) -> list[SnapshotId]:
        """Return the ids of all snapshots, oldest first."""
        found = (_NAME.fullmatch(name) for name in self._storage.list_dir(self._directory))
        return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)

    def complete_ids(self) -> list[SnapshotId]:
        """Return the ids of the snapshots up to the newest complete one, oldest first.

        Newer ones, which are damaged, are left out; an ERROR names them. Raises `OSError`.
        """
        ids = self.ids()
        while ids:
            try:
                self.check(ids[-1])
            except (ValueError, KafkaError) as error:
                logger.error(
                    "%s is damaged: %s. An older snapshot is used, or the log. Check the disk.",
                    self._path(ids[-1]),
                    error,
                )
                del ids[-1]
            else:
                break
        return ids

    def check(self, snapshot_id: SnapshotId) -> None:
        """Read the file of a snapshot, and check that it is whole.

        Raises:
            ValueError, KafkaError: it is damaged.
            OSError: it cannot be read.
        """
        check_snapshot(self._storage.read_file(self._path(snapshot_id)), snapshot_id)

    def remove_unfinished(self) -> None:
        """Remove the snapshots whose writing a stop of the node has interrupted. Raises `OSError`."""
        for name in self._storage.list_dir(self._directory):
            if name.endswith(UNFINISHED_SUFFIX) and _NAME.fullmatch(name.removesuffix(UNFINISHED_SUFFIX)):
                self._storage.remove(os.path.join(self._directory, name))

    def read_part(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Return at most ``max_bytes`` of a snapshot's file from ``position`` on. Raises `OSError`."""
        file = self._storage.open(self._path(snapshot_id), read_only=True)
        try:
            return file.read_at(position, max_bytes)
        finally:
            file.close()

    def size(self, snapshot_id: SnapshotId) -> int:
        """Return the size of a snapshot's file in bytes. Raises `OSError`."""
        file = self._storage.open(self._path(snapshot_id), read_only=True)
        try:
            return file.size()
        finally:
            file.close()

    def read(self, snapshot_id: SnapshotId) -> Snapshot:
        """Read a snapshot.

        Raises:
            ValueError: the snapshot is incomplete.
            CorruptRecordError, ProtocolError, UnsupportedVersionError, OSError: it cannot be read.
        """
        batches = list(decode_batches(self._storage.read_file(self._path(snapshot_id))))
        # The snapshot that Kafka writes when it formats a directory has neither header nor footer.
        if snapshot_id.end_offset > 0 and not (batches and batches[-1].ends_snapshot):
            raise ValueError(f"the snapshot {self._path(snapshot_id)} is incomplete")
        return Snapshot(snapshot_id, batches)

    def newest(self) -> Snapshot | None:
        """Read the newest readable snapshot, or return None. Damaged snapshots are skipped with a warning.

        Raises:
            OSError, UnsupportedVersionError: a snapshot cannot be read, or is of a newer version.
        """
        for snapshot_id in reversed(self.ids()):
            try:
                return self.read(snapshot_id)
            except UnsupportedVersionError:
                raise
            except (ValueError, KafkaError) as error:
                logger.warning("%s: %s. An older snapshot is used.", self._path(snapshot_id), error)
        return None

    def remove(self, snapshot_id: SnapshotId) -> None:
        """Remove a snapshot. Raises `OSError`."""
        self._storage.remove(self._path(snapshot_id))

    def _path(self, snapshot_id: SnapshotId) -> str:
        return os.path.join(self._directory, snapshot_id.file_name)
