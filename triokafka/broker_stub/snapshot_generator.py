"""Taking snapshots of the metadata when they are due, and deleting the old snapshots and the log before them."""

from __future__ import annotations

import logging
import math
from typing import Final

import trio

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage
from triokafka.broker_stub.metadata.snapshots import SnapshotId, encode_image
from triokafka.broker_stub.raft.metadata_log import MetadataLogFiles
from triokafka.broker_stub.raft.raft_client import RaftClient
from triokafka.broker_stub.raft.raft_log_interface import SnapshotWriter
from triokafka.errors import KafkaError
from triokafka.world import World

logger = logging.getLogger(__name__)

_NEEDED_AGAIN: Final = 10.0
"""Seconds until a snapshot that is needed, and could not be written, is tried again."""


class SnapshotSchedule:
    """Determines when the next snapshot is due: after a number of bytes, or an interval after the last one. Pure.

    Args:
        max_bytes: ``metadata.log.max.record.bytes.between.snapshots``.
        max_interval_ms: ``metadata.log.max.snapshot.interval.ms``; 0 for no limit.
    """

    def __init__(self, max_bytes: int, max_interval_ms: int, *, now: float = 0.0) -> None:
        self._max_bytes = max_bytes
        self._max_interval = max_interval_ms / 1000
        self.bytes = 0
        """Bytes written since the last snapshot."""
        self._since = now

    def appended(self, size: int) -> bool:
        """Count ``size`` bytes written to the log; return whether they make a snapshot due."""
        self.bytes += size
        return self.bytes >= self._max_bytes

    def due_in(self, now: float) -> float:
        """Return the seconds until a snapshot is due by time; infinite without an interval."""
        if not self._max_interval:
            return math.inf
        return max(0.0, self._since + self._max_interval - now)

    def due(self, now: float) -> bool:
        """Whether a snapshot is due; never if the log is unchanged since the last one."""
        return self.bytes > 0 and (self.bytes >= self._max_bytes or self.due_in(now) == 0)

    def taken(self, size: int, now: float) -> None:
        """Record that a snapshot covers all but the last ``size`` bytes, or that none was necessary."""
        self.bytes = size
        self._since = now


class SnapshotGenerator:
    """Writes the committed image as a snapshot after a number of bytes, or after an interval. Every node has one.

    `metadata_changed` is a subscriber of the node's publisher. ``newest_bytes`` is the size of the newest snapshot of
    this run, 0 before the first, and ``newest_at`` its time, or the time of the start, on the world's clock.
    """

    def __init__(self, world: World, config: BrokerConfig, files: MetadataLogFiles, raft: RaftClient) -> None:
        self.newest_bytes = 0
        self.newest_at = world.now()
        self._world = world
        self._config = config
        self._files = files
        self._raft = raft
        self._image = EMPTY_IMAGE
        self._counted_bytes = files.appended_bytes
        self._schedule = SnapshotSchedule(
            config.metadata_log_max_record_bytes_between_snapshots, config.metadata_log_max_snapshot_interval_ms
        )
        self._due = trio.Event()
        self._waits_for_change = False
        self._is_needed = False

    def begin(self, *, replayed_bytes: int) -> None:
        """Begin to count; ``replayed_bytes`` is the size of the log after the newest snapshot."""
        self._schedule.taken(replayed_bytes, self._world.now())

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Count committed bytes, and store the image."""
        self._image = image
        size, self._counted_bytes = self._files.appended_bytes - self._counted_bytes, self._files.appended_bytes
        if self._schedule.appended(size) or self._waits_for_change:
            self._due.set()

    def need(self) -> None:
        """Take a snapshot soon, whatever the schedule says: the log has lost records."""
        self._is_needed = True
        self._due.set()

    async def run(self) -> None:
        """Take snapshots by the schedule, until cancelled. A failure is logged."""
        schedule, now = self._schedule, self._world.now
        while True:
            due_in = schedule.due_in(now())
            if self._is_needed:
                due_in = min(due_in, _NEEDED_AGAIN)
            with trio.move_on_after(due_in if schedule.bytes else max(due_in, 1.0)):
                await self._due.wait()
            # Replace the event: a snapshot in progress may cover the changes that set it.
            self._due = trio.Event()
            if not (schedule.due(now()) or self._is_needed):
                if not schedule.due_in(now()):
                    schedule.taken(0, now())  # nothing has changed: the next interval begins
                continue
            if self._image.offset >= self._raft.high_watermark:
                # A started node has the image of its newest snapshot, and does not know yet what is committed after it.
                self._waits_for_change = True
                await self._due.wait()
                self._waits_for_change = False
                continue
            is_needed, self._is_needed = self._is_needed, False
            try:
                await self.take()
            except (OSError, KafkaError) as error:
                self._is_needed |= is_needed
                logger.error(
                    "Metadata log %s: cannot write a snapshot; trying again later: %s", self._files.directory, error
                )
                schedule.taken(0, now())  # not again immediately: the disk may be full

    async def take(self) -> int:
        """Write a snapshot, and delete old ones by retention; return its end offset.

        Raises:
            KafkaStorageError, OSError: the disk failed. Earlier snapshots are not affected.
        """
        files, image, config = self._files, self._image, self._config
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        timestamp_ms = files.last_append_ms
        writer = self._raft.create_snapshot(snapshot_id, timestamp_ms=timestamp_ms)
        if writer is not None:
            first_offset = 3 if self._raft.kraft_version else 1
            with trio.CancelScope(shield=True):  # a thread cannot be stopped, and must not outlive the log
                await self._world.run_in_thread(
                    lambda: _write(writer, image, first_offset=first_offset, timestamp_ms=timestamp_ms)
                )
            self.newest_bytes, self.newest_at = writer.size, self._world.now()
        self._schedule.taken(files.bytes_since(snapshot_id.end_offset), self._world.now())
        logger.info("wrote the snapshot %s", snapshot_id.file_name)
        dropped = files.clean(
            max_bytes=config.metadata_max_retention_bytes,
            max_age_ms=config.metadata_max_retention_ms,
            now_ms=self._world.wall_ms(),
        )
        if dropped:
            logger.info("dropped %d old snapshots; the log begins at offset %d", len(dropped), files.start_offset)
        return snapshot_id.end_offset


def _write(writer: SnapshotWriter, image: MetadataImage, *, first_offset: int, timestamp_ms: int) -> None:
    """Write the records of an image after the header of its snapshot, and finish the snapshot, in a thread."""
    try:
        for batch in encode_image(image, first_offset=first_offset, timestamp_ms=timestamp_ms):
            writer.append(batch)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
