"""Cutting the log of a partition: at its end, where records are given up, and at its beginning, where they are old."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.broker_stub.log.appender import LogAppender
from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.broker_stub.log.recovery import load_producers
from triokafka.broker_stub.log.retention import count_expired
from triokafka.errors import OffsetOutOfRangeError
from triokafka.world import Storage


class LogTruncation(LogAppender):
    """What `PartitionLog` has for those who make it shorter."""

    _storage: Storage
    _producer_expiration_ms: int
    _before_cut: Callable[[int], None] | None
    _checkpoint_start: Callable[[], None] | None

    # -- at the end

    def truncate_to(self, offset: int, *, now_ms: int | None = None) -> None:
        """Give up all records at or after ``offset``. A batch that reaches over it goes as a whole.

        Raises:
            KafkaStorageError: the disk failed; how far the cut came shows when the log is opened again.
            CorruptRecordError: a batch is damaged; the same.
        """
        self._guard.check()
        if offset >= self.log_end_offset:
            return
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        now_ms = self._time(now_ms)
        with self._guard.during("truncation", or_offline=True):
            cut_at = self._segments.batch_start(offset)
            self._prepare_cut(cut_at)
            self._segments.truncate_to(offset, now_ms)
            self._after_cut(cut_at, now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int | None = None) -> None:
        """Give up all records; the next one gets ``offset``.

        Raises:
            KafkaStorageError: the disk failed; how far the cut came shows when the log is opened again.
        """
        self._guard.check()
        with self._guard.during("truncation", or_offline=True):
            self._start_afresh(offset, self._time(now_ms))

    def _start_afresh(self, offset: int, now_ms: int) -> None:
        self._prepare_cut(min(offset, self.log_start_offset))
        self._segments.start_afresh(offset, now_ms)
        # Also what was before the new start: the records that told of it are gone.
        self._snapshots.remove_after(-1)
        self.leader_epochs.clear()
        self.log_start_offset = offset
        self._after_cut(offset, now_ms)
        self._durability.recovery_point = offset

    def _prepare_cut(self, offset: int) -> None:
        self._durability.cut_at(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        # On disk before the cut: else a crash would trust what is written there next.
        if self._before_cut is not None:
            self._before_cut(offset)

    def _after_cut(self, cut_at: int, now_ms: int) -> None:
        """Make the rest agree with the shorter log, durably."""
        end = self.log_end_offset
        # A cut within a gap comes out before it.
        if max(cut_at, self.log_start_offset, self._durability.recovery_point) > end:
            self._prepare_cut(end)
        self._snapshots.remove_after(self.log_end_offset)
        self.leader_epochs.truncate_to(self.log_end_offset)
        self.leader_epochs.write()
        if self.leader_epochs.unsynced:
            sync_path(self._storage, self.leader_epochs.path)
            self.leader_epochs.unsynced = False
        self._durability.sync_names()
        self.producers = load_producers(self._snapshots, self.segments, self.log_end_offset)
        self.producers.expire(now_ms, self._producer_expiration_ms)
        self._settle()

    # -- at the beginning

    def advance_log_start_offset(self, offset: int) -> None:
        """Records before ``offset`` are gone for readers; their segments go with the next `apply_retention`.

        Raises:
            OffsetOutOfRangeError: ``offset`` is after the log's end.
        """
        if offset > self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition} ends at {self.log_end_offset}: it cannot start at {offset}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.drop_before(offset)

    def apply_retention(self, now_ms: int, *, up_to_offset: int | None = None, remove_files: bool = True) -> int:
        """Drop old segments by time, size and log start offset; returns how many.

        Their files are renamed now and removed ``file.delete.delay.ms`` later, by a later call.

        Args:
            up_to_offset: the high watermark; nothing at or after it is dropped. The log's end when None.
            remove_files: False to leave the files whose time has come to `take_doomed_files`.

        Raises:
            KafkaStorageError: the disk failed.
        """
        self._guard.check()
        with self._guard.during("retention"):
            if remove_files:
                self._segments.remove_doomed(now_ms)
            end = self.log_end_offset if up_to_offset is None else min(up_to_offset, self.log_end_offset)
            count = count_expired(
                self._segments,
                self.config,
                log_start_offset=self.log_start_offset,
                up_to_offset=end,
                now_ms=now_ms,
            )
            if not count:
                return 0
            if count == len(self._segments):
                self._roll(self.log_end_offset, now_ms)
            if self._durability.names_unsynced:
                # Else a power cut could take the segment that stays, and with it the offset where the log ends.
                self._durability.sync_names()
            remove_at_ms = now_ms + self.config.file_delete_delay_ms
            self._durability.names_unsynced = True
            if count > 1:
                # A crash may keep one that is dropped and take the next. Then it must be known that what is missing in
                # between was before the start, else the log would seem to end there.
                self.advance_log_start_offset(self._segments[count].base_offset)
                if self._checkpoint_start is not None:
                    self._checkpoint_start()
            try:
                for base_offset in self._segments.drop_oldest(
                    count, remove_at_ms=remove_at_ms, one_by_one=self._checkpoint_start is None
                ):
                    self._snapshots.remove(base_offset)
            finally:  # it may have come only a part of the way
                self.advance_log_start_offset(self._segments[0].base_offset)
                self.leader_epochs.write()  # its first entry says, beside the names of the files, where the log starts
            if remove_files:
                self._segments.remove_doomed(now_ms)
        return count

    def take_doomed_files(self, now_ms: int) -> list[str]:
        """Paths of files that belong to the log no more, and are to be removed now; to remove a large one takes long,
        and needs nothing of the log."""
        return self._segments.take_doomed(now_ms)
