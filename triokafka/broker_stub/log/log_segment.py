"""One segment of a log as it is written, rolled, cut, recovered, renamed and removed.

A segment knows positions and sizes; what offsets to assign and what is valid is the log's affair. Batches are stored as
they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.broker_stub.log.index import CorruptIndexError
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.segment_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from triokafka.broker_stub.log.segment_reader import SegmentReader, TrustedPart
from triokafka.checksum import crc32c
from triokafka.errors import CorruptRecordError
from triokafka.records.batch import LOG_OVERHEAD, BatchInfo
from triokafka.structs import Buffer


class LogSegment(SegmentReader):
    """A range of a log on disk. Not thread safe; errors of the disk are `OSError`.

    Args:
        directory: of the log.
        new: make empty files instead of using those that are there.
        now_ms: the wall clock, for rolling a segment without timestamps.
        suffix: what the names of its files end with: nothing, ``.cleaned`` or ``.swap``.
    """

    def adopt(self, files: OpenFiles) -> None:
        """Belong to another set of open files from now on, for use in another thread than before."""
        self.close()
        self._files = files

    def reopened(self, files: OpenFiles) -> LogSegment:
        """The same sealed segment once more, for reading in another thread with ``files`` of its own."""
        return LogSegment(files, self._directory, self.base_offset, self.config, new=False, now_ms=self.created_ms)

    def change_suffix(self, suffix: str) -> None:
        """Rename the files so that they end with ``suffix``. Raises `OSError` with some of them renamed."""
        self._rename(SEGMENT_SUFFIXES, suffix)
        self._suffix = suffix
        self._update_paths()

    def take_name(self) -> Iterator[None]:
        """Rename the files to their usual names; yields where the names must be on disk before it goes on."""
        for kinds in (SEGMENT_SUFFIXES[:1], SEGMENT_SUFFIXES[1:]):
            self._rename(kinds, "")
            if kinds[0] == LOG_SUFFIX:
                self._log_path = f"{self._directory}/{offset_file_name(self.base_offset, LOG_SUFFIX)}"
            else:
                self._suffix = ""
                self._update_paths()
            yield

    def _rename(self, kinds: Sequence[str], suffix: str) -> None:
        self.close()
        for kind in kinds:
            source = self.path(kind)
            if self._storage.exists(source):
                self._storage.rename(source, source.removesuffix(self._suffix) + suffix)

    def _update_paths(self) -> None:
        self._log_path = self.path(LOG_SUFFIX)
        self.offset_index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)

    # -- writing

    def append(self, batches: Sequence[BatchInfo], data: Buffer) -> None:
        """Write ``data``, which consists of ``batches`` with their final offsets.

        Raises:
            OSError: nothing was added; a later call may succeed.
        """
        self.unsynced = True
        largest = self._max_timestamp or self._largest()  # now: once the bytes are written, nothing may fail any more
        position = self.size
        self._write(data)
        self.size += len(data)
        interval = self.config.index_interval_bytes
        for batch in batches:
            if batch.max_timestamp > largest[0]:
                self._max_timestamp = largest = (batch.max_timestamp, batch.last_offset)
            if self._bytes_since_index_entry > interval:
                self._add_index_entry(batch.last_offset, position)
            size = batch.length + LOG_OVERHEAD
            position += size
            self._bytes_since_index_entry += size

    def _write(self, data: Buffer) -> None:
        if self._torn:
            self._take_back_torn()
        try:
            self.file.write_at(self.size, data)
        except OSError:
            self._torn = True
            try:
                self.file.truncate(self.size)
                self._torn = False
            except OSError:
                pass  # tried again before the next write; until then nobody reads past `size`
            raise

    def _take_back_torn(self) -> None:
        if self._torn:
            self.file.truncate(self.size)
            self._torn = False

    def should_roll(self, *, incoming_bytes: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether a set of batches must go to a new segment."""
        config = self.config
        if self.size > config.segment_bytes - incoming_bytes:
            return self.size > 0
        if last_offset - self.base_offset > 2**31 - 1:
            return True
        if self.size == 0:
            return False
        first = self.first_timestamp
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        limit = config.roll_after_ms
        jitter = min(config.segment_jitter_ms, limit)
        if jitter:
            # Of each its own, also of the first ones of logs that were made together; the same after a restart.
            jitter = crc32c(f"{self._directory.rpartition('/')[2]}/{self.base_offset}".encode()) * jitter >> 32
        if waited > limit - jitter:
            return True
        if not self._indexes_checked:
            self._with_indexes(lambda: (len(self.offset_index), len(self.time_index)))
            self._indexes_checked = True
        return self.offset_index.is_full or self.time_index.is_full

    def seal(self) -> None:
        """Nothing more will be appended: write the indexes, with the largest timestamp as the last entry."""
        self._take_back_torn()  # else it would count at the next start, and what comes in the next segment would not
        if self.size:
            self._with_indexes(lambda: self.time_index.maybe_append(*self._largest()))
        self.write_indexes()

    def write_indexes(self) -> None:
        """Bring the index files up to date."""
        for index in self._indexes():
            index.write()

    def sync(self) -> None:
        """Make everything written so far durable, except the files' names."""
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """Prepare a `sync`; the function returned does the slow part, and may run in another thread."""
        self.write_indexes()
        storage = self._storage
        paths = [index.path for index in self._indexes() if index.unsynced]
        may_be_new = self.transaction_index.unsynced  # the one file that comes when its segment is there already
        directory = self._directory
        self.unsynced = False
        for index in self._indexes():
            index.unsynced = False

        def run() -> None:
            for path in (self._log_path, *paths):
                sync_path(storage, path)
            if may_be_new:
                storage.sync_dir(directory)

        return run

    def keep_age_of(self, segment: SegmentReader) -> None:
        """Count as written when ``segment`` was, whose records it has: to be called after the last `append`."""
        self._storage.set_modified_ms(self._log_path, self._storage.modified_ms(segment.path(LOG_SUFFIX)))

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop the batch that contains ``offset`` and all after it; returns the number of bytes dropped.

        With nothing left it begins anew at ``now_ms``, as far as its age is concerned.
        """
        place = self.find(offset)
        if place is None:
            return 0
        self._with_indexes(lambda: len(self.time_index))
        for index in self._indexes():
            index.truncate_to(offset)
        dropped = self.size - place.position
        # The indexes first: an index that is too short is only slower, one that is too long is wrong.
        self.write_indexes()
        self.file.truncate(place.position)
        self.size = place.position
        self._torn_tail_at = None
        self.unsynced = True
        self._bytes_since_index_entry = 0
        self._max_timestamp = None
        if not self.size:
            self._first_timestamp = None
            self.created_ms = now_ms
        return dropped

    # -- recovery

    def trusted_part(self, offset: int) -> TrustedPart | None:
        """What need not be read after a crash, because it is below ``offset``, up to which all is on disk.

        The indexes keep only what they say of that part. None when they are not to be trusted.

        Raises:
            OSError: the disk failed.
        """
        try:
            for index in self._indexes():
                index.salvage()
        except CorruptIndexError:
            return None
        indexed, position = self.offset_index.lookup(offset - 1)
        if not position or position >= self.size:
            return None
        self.offset_index.truncate_to(indexed + 1)
        self.time_index.truncate_to(indexed + 1)
        largest, since_entry, trusted = self.time_index.last, 0, None
        try:
            for batch in self.headers(position):
                if trusted is None and batch.last_offset != indexed:
                    return None
                if batch.last_offset >= offset or (trusted is not None and batch.base_offset < trusted.end_offset):
                    break  # with zeros in its torn header, what comes after could pass for something from before
                if batch.max_timestamp > largest[0]:
                    largest = (batch.max_timestamp, batch.last_offset)
                since_entry += batch.size
                trusted = TrustedPart(batch.end, batch.next_offset, largest, since_entry)
        except CorruptRecordError:
            return None
        if trusted is not None:
            self.transaction_index.truncate_to(trusted.end_offset)
        return trusted

    def recover(
        self,
        visit: Callable[[BatchInfo, memoryview], None],
        *,
        after: TrustedPart | None = None,
        before_cut: Callable[[int], None] = lambda position: None,
    ) -> int:
        """Read the batches, rebuild the indexes, and cut the file at the first bad batch.

        Args:
            visit: called with every good batch.
            after: from `trusted_part`: read only what comes after it.
            before_cut: called with the position at which the file is about to be cut; may raise to prevent it.

        Returns:
            The number of bytes cut.
        """
        if after is None:
            self._clear_indexes()
            self.transaction_index.clear()
        valid = self._read_through(after, visit, check_crc=True)
        dropped = self.size - valid
        if dropped:
            before_cut(valid)
            self.file.truncate(valid)
            self.size = valid
        # Before anything else comes there, also for what a dead process has cut: a second crash could bring it back
        # behind what was appended meanwhile.
        sync_path(self._storage, self._log_path)
        self.unsynced = True
        self._write_rebuilt()
        return dropped

    # -- end of life

    def close(self) -> None:
        """Close the file. Writes nothing."""
        self._files.close(self._log_path)

    def mark_deleted(self) -> list[str]:
        """Rename the files so that they no longer count, and return their new paths.

        Raises:
            OSError: the segment is there as before. (Once its ``.log`` is renamed it is gone: the other files mean
                nothing without it, and the next opening of the log removes them.)
        """
        self.close()
        self._storage.rename(self._log_path, self._log_path + DELETED_SUFFIX)
        renamed = [self._log_path + DELETED_SUFFIX]
        for suffix in SEGMENT_SUFFIXES[1:]:
            path = self.path(suffix)
            try:
                self._storage.rename(path, path + DELETED_SUFFIX)
            except OSError:
                continue
            renamed.append(path + DELETED_SUFFIX)
        return renamed
