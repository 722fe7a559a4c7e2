"""The log of one partition: segments on disk, their offsets, leader epochs and producer state.

`PartitionLog` is synchronous and belongs to one thread; a call either succeeds or leaves the log as it was. Time is an
argument. A failing disk raises `KafkaStorageError` and affects nothing else in the process. Written records are in the
operating system's hands immediately, so they survive the death of the process. They survive a power cut once a flush
has moved ``recovery_point`` past them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from triokafka.broker_stub.log.appender import LogAppender
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.index import CorruptIndexError
from triokafka.broker_stub.log.last_stable_offset import last_stable_offset
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.log_flusher import LogFlusher
from triokafka.broker_stub.log.log_loader import open_log
from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.producer_state import ProducerStates
from triokafka.broker_stub.log.reader import LogReader
from triokafka.broker_stub.log.recovery import KnownOffsets
from triokafka.broker_stub.log.recovery_point import FlushJob
from triokafka.broker_stub.log.retention import LogRetention
from triokafka.broker_stub.log.segment_replacement import SegmentReplacement
from triokafka.broker_stub.log.truncation import LogTruncation
from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import Storage

PRODUCER_EXPIRATION_MS: Final = 86_400_000


class PartitionLog:
    """The log of one partition. Make it with `open`.

    A facade: each method is that of the component that does the work, bound at construction. See `LogAppender`,
    `LogReader`, `LogFlusher`, `LogTruncation`, `LogRetention` and `SegmentReplacement`, which share a `LogState`.

    ``now_ms`` defaults to the latest time that any call has passed.
    """

    @classmethod
    def open(
        cls,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        high_watermark: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        refuse_damage: bool = False,
        replicated: bool = False,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        before_cut: Callable[[int], None] | None = None,
        checkpoint_start: Callable[[], None] | None = None,
        request_flush: Callable[[LogFlusher], bool] | None = None,
        disk_failed: Callable[[OSError], None] | None = None,
        disk_refused: Callable[[OSError], None] | None = None,
        files: OpenFiles | None = None,
    ) -> PartitionLog:
        """Open the log in ``directory`` (``topic-partition``), making or recovering it as needed.

        Args:
            recovery_point: from its checkpoint: everything below is known to be on disk.
            high_watermark: from its checkpoint: everything below was committed.
            log_start_offset: from its checkpoint; 0 for the first record in the directory.
            clean: the last stop was clean, so that nothing needs to be recovered.
            refuse_damage: raise `DamagedLogError` instead of continuing without the damaged records.
            replicated: other brokers have replicas, from which the records at a lost end come back. Otherwise the log
                continues behind the lost offsets, which consumers may have seen. A lost beginning does not raise the
                log start offset, at which the other replicas would delete their records.
            before_cut: see `LogTruncation`.
            checkpoint_start: see `LogRetention`.
            request_flush: see `LogFlusher`.
            disk_failed: called with each lasting disk error; see `LogDiskErrors`.
            disk_refused: called with each temporary disk error, such as a full disk or too many open files.
            files: shared by the logs of a broker, so that not too many files are open.

        Raises:
            KafkaStorageError: the directory cannot be read or written, or is damaged below the recovery point.
            DamagedLogError: with ``refuse_damage``; nothing was cut.
        """
        load = partial(
            open_log,
            OpenFiles(storage) if files is None else files,
            directory,
            topic_partition,
            config,
            known=KnownOffsets(recovery_point, high_watermark, log_start_offset),
            refuse_damage=refuse_damage,
            replicated=replicated,
            producer_expiration_ms=producer_expiration_ms,
            disk_failed=disk_failed,
            disk_refused=disk_refused,
            now_ms=now_ms,
        )
        try:
            try:
                state = load(clean=clean)
            except (CorruptRecordError, CorruptIndexError):
                if not clean:
                    raise
                state = load(clean=False)  # the files were changed from outside since the clean stop
        except (OSError, CorruptRecordError, CorruptIndexError) as error:
            raise KafkaStorageError(f"the log of {topic_partition} in {directory} cannot be opened: {error}") from error
        return cls(state, before_cut=before_cut, checkpoint_start=checkpoint_start, request_flush=request_flush)

    def __init__(
        self,
        state: LogState,
        *,
        before_cut: Callable[[int], None] | None = None,
        checkpoint_start: Callable[[], None] | None = None,
        request_flush: Callable[[LogFlusher], bool] | None = None,
    ) -> None:
        self.topic_partition = state.topic_partition
        self.directory = state.directory
        self.leader_epochs: LeaderEpochs = state.leader_epochs
        self.changes = state.segments.changes
        """Tells watchers of changes of the offsets, leader epochs and producers, and of the log's partition."""
        self.reported_damage: set[str] = set()
        """The damage met by readers that the broker's log has reported already."""
        self._state = state
        self._guard = state.guard
        self._segments = state.segments
        self.flusher = flusher = LogFlusher(state, request_flush)
        self.check_files = flusher.check_files
        self.flush = flusher.flush
        self.begin_flush = flusher.begin_flush
        self.flushed = flusher.flushed
        self.put_off = flusher.put_off
        self.flush_due = flusher.flush_due
        appender = LogAppender(state, flusher)
        self.append_as_leader = appender.append_as_leader
        self.append_as_follower = appender.append_as_follower
        self.roll = appender.roll
        self.skip_to = appender.skip_to
        reader = LogReader(state)
        self.read = reader.read
        self.read_to_send = reader.read_to_send
        self.in_one_segment = reader.in_one_segment
        self.bytes_between = reader.bytes_between
        self.offset_for_timestamp = reader.offset_for_timestamp
        self.offset_of_max_timestamp = reader.offset_of_max_timestamp
        self.last_stable_offset = partial(last_stable_offset, state)
        self.aborted_transactions = reader.aborted_transactions
        truncation = LogTruncation(state, before_cut)
        self.truncate_to = truncation.truncate_to
        self.truncate_fully_and_start_at = truncation.truncate_fully_and_start_at
        retention = LogRetention(state, checkpoint_start)
        self.advance_log_start_offset = retention.advance_log_start_offset
        self.apply_retention = retention.apply_retention
        self.take_files_to_delete = retention.take_files_to_delete
        replacement = SegmentReplacement(state)
        self.new_cleaned_segment = replacement.new_cleaned_segment
        self.replace_segments = replacement.replace_segments
        self.replacing = replacement.replacing

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    # -- state

    @property
    def config(self) -> LogConfig:
        """The configuration in use."""
        return self._state.config

    def update_config(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        self._state.config = config
        self._segments.update_config(config)
        self._state.settle()

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may fetch."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._segments.end_offset

    @property
    def named_start_offset(self) -> int:
        """The log start offset that the names of the segments give, also after a power cut."""
        return 0 if self._state.durability.names_unsynced else self._segments[0].base_offset

    @property
    def settled_offset(self) -> int:
        """The offset up to which records may be acknowledged; see `LogState`."""
        return self._state.settled_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it is on disk."""
        return self._state.durability.recovery_point

    @property
    def cuts(self) -> int:
        """How many times the log was truncated. Afterwards its offsets may have other records."""
        return self._state.durability.cuts

    @property
    def recovered_bytes(self) -> int:
        """Bytes that opening the log cut off."""
        return self._state.recovered_bytes

    @property
    def lost_offsets(self) -> int:
        """Offsets whose records are known to be lost to damage."""
        return self._state.lost_offsets

    @property
    def lost_end(self) -> int:
        """The offset after the last record that the log had when it was last written; -1 if it has all of them.

        Other replicas may have the records from the log end offset on.
        """
        return self._state.lost_end

    def add_lost_offsets(self, count: int) -> None:
        """Count ``count`` more offsets as lost."""
        self._state.lost_offsets += count

    @property
    def producers(self) -> ProducerStates:
        """The state of every known producer."""
        return self._state.producers

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers whose newest record is ``expiration_ms`` old, now and after later truncations."""
        self._state.producer_expiration_ms = expiration_ms
        self._state.producers.expire(now_ms, expiration_ms)

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """All segments, ascending; the last one is active."""
        return tuple(self._segments)

    @property
    def active_segment(self) -> LogSegment:
        """The segment that takes new records."""
        return self._segments.active

    @property
    def size(self) -> int:
        """Bytes of records on disk."""
        return self._segments.size

    # -- end of life

    @property
    def usable(self) -> bool:
        """Whether the log is neither closed nor offline."""
        return self._guard.usable

    def adopt(self, files: OpenFiles) -> None:
        """Use another set of open files, and so belong to another thread, from now on."""
        self._segments.adopt(files)

    def close(self) -> None:
        """Flush and close; opening it again with ``clean`` then needs no recovery. A second call does nothing.

        Raises:
            KafkaStorageError: the disk failed; the files are closed, and the next opening must recover.
        """
        if self._guard.closed:
            return
        try:
            self.flusher.finish(self.begin_close(), "close")
        finally:
            self.abandon()

    def begin_close(self) -> FlushJob | None:
        """Prepare a `close` whose slow part may run in a thread; `abandon` the log afterwards.

        Raises:
            KafkaStorageError: the disk failed.
        """
        self._guard.check()
        with self._guard.during("close"):
            self.active_segment.seal()
            self._state.take_snapshot()
        return self.begin_flush()

    def take_offline(self, error: OSError) -> None:
        """Close the files after a failure of the disk, and refuse every later call."""
        self._guard.failure = self._guard.failure or error
        self.abandon()

    def abandon(self) -> None:
        """Close the files without writing anything."""
        self._guard.closed = True
        self._segments.close()

    def delete(self) -> None:
        """Remove the log's directory immediately.

        Raises:
            KafkaStorageError: the disk failed; some files may be left.
        """
        self.abandon()
        with self._guard.during("deletion"):
            self._state.storage.remove_tree(self.directory)
