"""The state of one log that its appender, reader, flusher, truncation and retention share."""

from __future__ import annotations

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.log_disk_errors import LogDiskErrors
from triokafka.broker_stub.log.log_segments import LogSegments
from triokafka.broker_stub.log.producer_snapshots import ProducerSnapshots
from triokafka.broker_stub.log.producer_state import ProducerStates
from triokafka.broker_stub.log.recovery_point import Durability
from triokafka.structs import TopicPartition
from triokafka.world import Storage


class LogState:
    """Segments, offsets, leader epochs and producers of one log, and operations that several components share.

    ``log_start_offset`` is the first offset that readers may fetch; `start_at` sets it. ``settled_offset`` is the
    offset up to which records may be acknowledged: with ``flush.messages``, records that are not flushed in time are
    behind it. ``recovered_bytes`` counts the bytes that opening the log cut off, ``lost_offsets`` the offsets whose
    records are known to be lost to damage. ``lost_end`` is the offset after the last record that the log had before it
    was opened, if it ends earlier now and other replicas may have the rest; else -1.
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        guard: LogDiskErrors,
        durability: Durability,
        segments: LogSegments,
        leader_epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
        producers: ProducerStates,
        log_start_offset: int,
        recovered_bytes: int,
        producer_expiration_ms: int,
        now_ms: int,
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.guard = guard
        self.durability = durability
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.snapshots = snapshots
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.settled_offset = segments.end_offset
        self.recovered_bytes = recovered_bytes
        self.lost_offsets = 0
        self.lost_end = -1
        self.producer_expiration_ms = producer_expiration_ms
        self.bytes_since_snapshot = 0
        self._last_time_ms = now_ms

    def time(self, now_ms: int | None) -> int:
        """Return ``now_ms``; if it is None, the latest time that any caller passed."""
        if now_ms is not None:
            self._last_time_ms = now_ms
        return self._last_time_ms

    @property
    def flush_wanted(self) -> bool:
        """Whether ``flush.messages`` or more records are not on disk, so that the newest records wait for a flush."""
        return self.segments.end_offset - self.durability.recovery_point >= self.config.flush_messages

    def settle(self) -> None:
        """Recompute ``settled_offset`` after the log end, the recovery point or the configuration has changed."""
        end = self.segments.end_offset
        if not self.flush_wanted:
            self.settled_offset = end
        else:
            self.settled_offset = min(max(self.settled_offset, self.durability.recovery_point), end)

    def take_snapshot(self) -> None:
        """Write the producer state before the log end to disk. Raises `OSError`."""
        if self.snapshots.newest != self.segments.end_offset:
            self.snapshots.take(self.producers, self.segments.end_offset)
        self.bytes_since_snapshot = 0

    def advance_log_start_offset(self, offset: int) -> None:
        """Raise the log start offset; a lower ``offset`` changes nothing."""
        if offset > self.log_start_offset:
            self.start_at(offset)

    def start_at(self, offset: int) -> None:
        """Set ``log_start_offset``, also to a lower one."""
        if offset != self.log_start_offset:
            self.log_start_offset = offset
            self.segments.changes.notify()
