"""The log of one partition: segments on disk, the offsets in them, and who wrote what.

`PartitionLog` is synchronous and belongs to one thread; a call either succeeds or leaves the log as it was. Time is an
argument. A failing disk is `KafkaStorageError`; nothing else of the process suffers. Written records are in the
operating system's hands at once, which survives the death of the process; they survive the machine's once `flush` has
moved ``recovery_point`` past them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.damage import MAX_JUMP, DamagedLogError
from triokafka.broker_stub.log.disk_guard import DiskGuard
from triokafka.broker_stub.log.durability import Durability, FlushJob
from triokafka.broker_stub.log.index import CorruptIndexError
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.log_segments import LogSegments
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.producer_snapshots import ProducerSnapshots
from triokafka.broker_stub.log.recovery import KnownOffsets, load_log
from triokafka.broker_stub.log.truncation import LogTruncation
from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchInfo
from triokafka.records.rewritable_batch import empty_batch
from triokafka.structs import TopicPartition
from triokafka.world import Storage

logger = logging.getLogger(__name__)

PRODUCER_EXPIRATION_MS: Final = 86_400_000


class PartitionLog(LogTruncation):
    """The log of one partition. Make it with `open`.

    ``topic_partition``, ``config`` and ``directory`` say whose log it is; ``leader_epochs`` and ``producers`` are what
    it knows about leaders and producers. ``recovered_bytes`` is what opening had to cut off, ``lost_offsets`` how many
    offsets are known to have no records any more because of damage. ``settled_offset`` is the
    offset up to which records may be acknowledged: with ``flush.messages`` those that are not flushed in time are
    behind it. Where ``now_ms`` may be left out, the last one that any call brought counts.
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
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        before_cut: Callable[[int], None] | None = None,
        checkpoint_start: Callable[[], None] | None = None,
        request_flush: Callable[[PartitionLog], bool] | None = None,
        disk_failed: Callable[[OSError], None] | None = None,
        files: OpenFiles | None = None,
    ) -> PartitionLog:
        """Open the log in ``directory`` (its own, ``topic-partition``), making or recovering it as needed.

        Args:
            recovery_point: from its checkpoint: everything below is known to be on disk.
            high_watermark: from its checkpoint: everything below was committed.
            log_start_offset: from its checkpoint; 0 for the first record there is.
            clean: the last stop was clean, so that nothing needs to be recovered.
            refuse_damage: raise instead of going on without the records that damage took.
            before_cut: called before records at and after an offset are given up, with that offset, to write
                checkpoints that do not promise them.
            checkpoint_start: called before several segments are dropped at once, to checkpoint the start offset.
            request_flush: called when ``flush.messages`` wants a flush; False when nobody is there to do it, so that
                the append does it before it returns.
            disk_failed: called with an error that is not just a lack of room; see `DiskGuard`.
            files: shared by the logs of a broker, so that not too many files are open.

        Raises:
            KafkaStorageError: the directory cannot be read or written, or is damaged below the recovery point.
            DamagedLogError: with ``refuse_damage``; nothing was cut.
        """
        known = KnownOffsets(recovery_point, high_watermark, log_start_offset)
        try:
            make = partial(
                cls,
                storage,
                directory,
                topic_partition,
                config,
                now_ms=now_ms,
                known=known,
                refuse_damage=refuse_damage,
                producer_expiration_ms=producer_expiration_ms,
                before_cut=before_cut,
                checkpoint_start=checkpoint_start,
                request_flush=request_flush,
                disk_failed=disk_failed,
                files=OpenFiles(storage) if files is None else files,
            )
            try:
                return make(clean=clean)
            except (CorruptRecordError, CorruptIndexError):
                if not clean:
                    raise
                return make(clean=False)  # somebody has changed the files since
        except (OSError, CorruptRecordError, CorruptIndexError) as error:
            raise KafkaStorageError(f"the log of {topic_partition} in {directory} cannot be opened: {error}") from error

    def __init__(
        self,
        storage: Storage,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        known: KnownOffsets,
        clean: bool,
        refuse_damage: bool,
        producer_expiration_ms: int,
        before_cut: Callable[[int], None] | None,
        checkpoint_start: Callable[[], None] | None,
        request_flush: Callable[[PartitionLog], bool] | None,
        disk_failed: Callable[[OSError], None] | None,
        files: OpenFiles,
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.config = config
        self._storage = storage
        self._producer_expiration_ms = producer_expiration_ms
        self._before_cut = None
        self._checkpoint_start = checkpoint_start
        self._request_flush = None
        self._last_time_ms = now_ms
        self._guard = DiskGuard(topic_partition, disk_failed)
        self._durability = Durability(storage, directory, self._guard)
        if not storage.is_dir(directory):
            storage.make_dirs(directory)
        self.leader_epochs = LeaderEpochs(storage, directory)
        self._snapshots = ProducerSnapshots(storage, directory)
        loaded = load_log(
            files,
            directory,
            topic_partition,
            config,
            self.leader_epochs,
            self._snapshots,
            known=known,
            clean=clean,
            refuse_damage=refuse_damage,
            now_ms=now_ms,
        )
        self.producers, self.recovered_bytes, self.lost_offsets = loaded.producers, loaded.dropped_bytes, 0
        self._segments = LogSegments(files, directory, config, loaded.segments)
        self.log_start_offset = max(known.log_start, self._segments[0].base_offset)
        end = self.log_end_offset
        self._durability.recovery_point = end if clean else min(known.recovery_point, end)
        self.settled_offset = end
        self._report_late_start(known, clean=clean)
        self.leader_epochs.truncate_to(end)
        self.producers.expire(now_ms, producer_expiration_ms)
        self._bytes_since_snapshot = 0
        self.reported_damage: set[str] = set()
        """The damage that readers have met, as far as it is reported in the log of the broker."""
        if end < (known.committed if refuse_damage else known.end):
            self._skip_lost(known, now_ms, refuse=refuse_damage)
        if self.log_start_offset > self.log_end_offset:
            # A crash took records that a reader was promised to be deleted: nothing before the start may come back.
            self._start_afresh(self.log_start_offset, now_ms)
        self.leader_epochs.drop_before(self.log_start_offset)
        self._before_cut = before_cut
        if request_flush is not None:
            self._request_flush = partial(request_flush, self)

    def _report_late_start(self, known: KnownOffsets, *, clean: bool) -> None:
        """Report segments that are missing before the first one, as far as leader epochs and checkpoint can tell."""
        entries, base = self.leader_epochs.entries(), self._segments[0].base_offset
        promised = max(known.log_start, entries[0][1]) if entries else base
        if promised >= base or self.leader_epochs.lost:
            return
        # A power cut may bring back an epoch file from before retention; after a clean stop it is up to date.
        level = logging.ERROR if clean else logging.WARNING
        logger.log(
            level,
            "%s: the first segment in %s begins at offset %d, but the log began at %d when it was last written: "
            "offsets %d to %d are lost, unless retention removed them just before a crash.",
            self.topic_partition,
            self.directory,
            base,
            promised,
            promised,
            base - 1,
        )
        if clean:
            self.lost_offsets += base - promised

    def _skip_lost(self, known: KnownOffsets, now_ms: int, *, refuse: bool) -> None:
        """Go on at the offset where the log is known to have ended: consumers may have seen the offsets before it.

        Everything before is on disk afterwards, and the recovery point is there.
        """
        end, known_end, empty = self.log_end_offset, known.end, not self.size
        what = (
            f"{self.topic_partition}: the records in {self.directory} end at offset {end}, but the log had "
            f"{known_end} (recovery point {known.recovery_point}, high watermark {known.committed})"
        )
        if known_end - end >= MAX_JUMP:
            logger.error("%s. That is not plausible: the checkpoints are damaged, and are ignored.", what)
            return
        if refuse:
            raise DamagedLogError(what)
        logger.error("%s. Offsets %d to %d are lost. The log goes on at %d.", what, end, known_end - 1, known_end)
        self.lost_offsets += known_end - end
        if empty:
            self._start_afresh(known_end, now_ms)
            return
        # A batch without records, as compaction leaves them: readers that stop at the end of the log come past the gap,
        # also where nothing is appended any more.
        placeholder = BatchInfo(
            position=0,
            base_offset=end,
            length=HEADER_SIZE - LOG_OVERHEAD,
            partition_leader_epoch=max(0, self.leader_epochs.latest),
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=known_end - end - 1,
            base_timestamp=-1,
            max_timestamp=-1,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=0,
        )
        self.append_as_follower(empty_batch(placeholder), now_ms=now_ms)
        self.flush()

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def named_start_offset(self) -> int:
        """Where the names of the segments say that the log starts, also after a power cut."""
        return 0 if self._durability.names_unsynced else self._segments[0].base_offset

    # -- compacting

    def new_cleaned_segment(self, base_offset: int, files: OpenFiles, *, now_ms: int) -> LogSegment:
        """An empty segment beside the log, to be filled and then given to `replace_segments`.

        Args:
            files: of the thread that fills it. It may be another one than the log's, as long as it alone does.

        Raises:
            OSError: the disk failed. Nobody is told, for it may be another thread than the log's.
            KafkaStorageError: the log is closed or offline.
        """
        self._guard.check()
        return self._segments.new_cleaned(base_offset, files, now_ms)

    def replace_segments(self, old: Sequence[LogSegment], new: Sequence[LogSegment], *, now_ms: int) -> None:
        """`replacing`, from its beginning to its end."""
        steps = self.replacing(old, new, now_ms=now_ms)
        for sync in steps:
            try:
                sync()
            except BaseException as error:
                steps.throw(error)

    def replacing(
        self, old: Sequence[LogSegment], new: Sequence[LogSegment], *, now_ms: int
    ) -> Generator[Callable[[], None], None, None]:
        """Let ``new`` take the place of ``old``, whose files are removed ``file.delete.delay.ms`` later.

        Yields functions to be called one after the other, in a thread when the log is to go on meanwhile; when one of
        them fails, throw its `OSError` into the iterator. The log has the old records or the new ones at any time, and
        after a crash. Closing the iterator early leaves it with one or the other.

        Args:
            old: neighbours in `segments`, without the active one.
            new: ascending, from `new_cleaned_segment`, the first with the base offset of the first of ``old``. They
                belong to the log afterwards.

        Raises:
            IllegalStateError: ``old`` are not, or no longer, what the log has; nothing has changed.
            KafkaStorageError: the disk failed; which records are there shows when the log is opened again.
        """
        self._guard.check()
        with self._guard.during("compaction", or_offline=True):
            yield from self._segments.replacing(old, new, remove_at_ms=now_ms + self.config.file_delete_delay_ms)
            kept = {segment.base_offset for segment in new}
            for segment in old:
                if segment.base_offset not in kept:
                    self._snapshots.remove(segment.base_offset)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers whose newest record is ``expiration_ms`` old; from now on that is the limit."""
        self._producer_expiration_ms = expiration_ms
        self.producers.expire(now_ms, expiration_ms)

    # -- end of life

    def close(self) -> None:
        """Flush and close; opening it again with ``clean`` then needs no recovery. A second call does nothing.

        Raises:
            KafkaStorageError: the disk failed; the files are closed, and the next opening must recover.
        """
        if self._guard.closed:
            return
        try:
            self._finish(self.begin_close(), "close")
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
            self._take_snapshot()
        return self.begin_flush()

    def on_refusal(self, listener: Callable[[OSError], None]) -> None:
        """Have ``listener`` called with errors of the disk that get better, for want of room or files, say."""
        self._guard.on_refusal = listener

    @property
    def usable(self) -> bool:
        """Whether it is neither closed nor offline."""
        return not self._guard.closed and self._guard.failure is None

    def take_offline(self, error: OSError) -> None:
        """The disk cannot be trusted any more: close the files, and refuse every call from now on."""
        self._guard.failure = self._guard.failure or error
        self.abandon()

    def adopt(self, files: OpenFiles) -> None:
        """Belong to another set of open files, and so to another thread, from now on."""
        self._segments.adopt(files)

    def abandon(self) -> None:
        """Close the files without writing anything."""
        self._guard.closed = True
        self._request_flush = None  # who knows this log: without it nobody need look for the two as garbage
        self._segments.close()

    def delete(self) -> None:
        """Remove the log with all its files, at once.

        Raises:
            KafkaStorageError: the disk failed; some files may be left.
        """
        self.abandon()
        with self._guard.during("deletion"):
            self._storage.remove_tree(self.directory)
