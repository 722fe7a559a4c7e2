"""Taking snapshots of the metadata, and deleting the old snapshots and the log before them."""

from __future__ import annotations

import logging

import trio

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.local_metadata_log import LocalMetadataLog
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.snapshots import Quorum, SnapshotSchedule
from triokafka.broker_stub.raft.metadata_log_files import MetadataLogFiles
from triokafka.errors import KafkaError
from triokafka.world import World

logger = logging.getLogger(__name__)


class SnapshotGenerator:
    """Writes the committed image as a snapshot after a number of committed bytes, or after an interval.

    `metadata_changed` is a subscriber of the controller's publisher.

    Args:
        image: the committed image.
        replayed_bytes: bytes of the log after the newest snapshot at the start.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        files: MetadataLogFiles,
        log: LocalMetadataLog,
        quorum: Quorum,
        image: MetadataImage,
        *,
        replayed_bytes: int,
    ) -> None:
        self._world = world
        self._config = config
        self._files = files
        self._log = log
        self._quorum = quorum
        self._image = image
        self._counted_bytes = log.committed_bytes
        self._schedule = SnapshotSchedule(
            config.metadata_log_max_record_bytes_between_snapshots, config.metadata_log_max_snapshot_interval_ms
        )
        self._schedule.taken(replayed_bytes, world.now())
        self._due = trio.Event()

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Count committed bytes, and store the image."""
        self._image = image
        size, self._counted_bytes = self._log.committed_bytes - self._counted_bytes, self._log.committed_bytes
        if self._schedule.appended(size):
            self._due.set()

    async def run(self) -> None:
        """Take snapshots by the schedule, until cancelled. A failure is logged."""
        schedule, now = self._schedule, self._world.now
        while True:
            due_in = schedule.due_in(now())
            with trio.move_on_after(due_in if schedule.bytes else max(due_in, 1.0)):
                await self._due.wait()
            # Replace the event: a snapshot in progress may cover the changes that set it.
            self._due = trio.Event()
            if not schedule.due(now()):
                if not schedule.due_in(now()):
                    schedule.taken(0, now())  # nothing has changed: the next interval begins
                continue
            try:
                await self.take()
            except (OSError, KafkaError) as error:
                logger.error("Metadata log %s: cannot write a snapshot: %s", self._files.directory, error)
                schedule.taken(0, now())  # not again immediately: the disk may be full

    async def take(self) -> int:
        """Write a snapshot, and delete old ones by retention; return its end offset.

        Raises:
            KafkaStorageError, OSError: the disk failed. Earlier snapshots are not affected.
        """
        files, image, quorum, config = self._files, self._image, self._quorum, self._config
        timestamp_ms = files.last_append_ms
        with trio.CancelScope(shield=True):  # a thread cannot be stopped, and must not outlive the log
            written = await self._world.run_in_thread(
                lambda: files.write_snapshot(image, quorum, timestamp_ms=timestamp_ms)
            )
        self._schedule.taken(files.bytes_since(written.end_offset), self._world.now())
        logger.info("wrote the snapshot %s", written.file_name)
        dropped = files.clean(
            max_bytes=config.metadata_max_retention_bytes,
            max_age_ms=config.metadata_max_retention_ms,
            now_ms=self._world.wall_ms(),
        )
        if dropped:
            logger.info("dropped %d old snapshots; the log begins at offset %d", len(dropped), files.start_offset)
        return written.end_offset
