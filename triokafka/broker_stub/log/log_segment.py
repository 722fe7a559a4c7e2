"""One segment of a log: writing, rolling, truncation, recovery, renaming and removal.

A segment handles positions and sizes. The log assigns offsets and validates batches. Batches are stored unchanged.
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
    """A range of a log on disk. Not thread-safe; disk errors are `OSError`.

    Args:
        directory: the directory of the log.
        new: create empty files instead of using existing ones.
        now_ms: the wall clock; it gives the age of a segment without timestamps.
        suffix: the suffix of its file names: empty, ``.cleaned`` or ``.swap``.
    """

    def adopt(self, files: OpenFiles) -> None:
        """Use another set of open files from now on, so that another thread may use the segment."""
        self.close()
        self._files = files

    def reopened(self, files: OpenFiles) -> LogSegment:
        """Return a second object for this sealed segment, for reading in another thread with its own ``files``."""
        return LogSegment(files, self._directory, self.base_offset, self.config, new=False, now_ms=self.created_ms)

    def change_suffix(self, suffix: str) -> None:
        """Change the suffix of the files' names to ``suffix``. Raises `OSError`; some files may be renamed then."""
        self._rename(SEGMENT_SUFFIXES, suffix)
        self._suffix = suffix
        self._update_paths()

    def take_name(self) -> Iterator[None]:
        """Rename the files to their usual names; yield at each point where the caller must sync the directory."""
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
        """Write ``data``, the bytes of ``batches``, whose offsets are final.

        Raises:
            OSError: nothing was appended; a later call may succeed.
        """
        self.unsynced = True
        largest = self._max_timestamp or self._largest()  # before the write: no step may fail after it
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
                pass  # retried before the next write; until then no reader goes past `size`
            raise

    def _take_back_torn(self) -> None:
        if self._torn:
            self.file.truncate(self.size)
            self._torn = False

    def should_roll(self, *, incoming_bytes: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether the incoming batches need a new segment."""
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
            # Each segment has a different jitter, also the first ones of logs created together; a restart does not
            # change it.
            jitter = crc32c(f"{self._directory.rpartition('/')[2]}/{self.base_offset}".encode()) * jitter >> 32
        if waited > limit - jitter:
            return True
        if not self._indexes_checked:
            self._with_indexes(lambda: (len(self.offset_index), len(self.time_index)))
            self._indexes_checked = True
        return self.offset_index.is_full or self.time_index.is_full

    def seal(self) -> None:
        """Seal the segment: write the indexes, with the largest timestamp as the last entry."""
        self._take_back_torn()  # otherwise the next start would find these bytes, and drop the next segment
        if self.size:
            self._with_indexes(lambda: self.time_index.maybe_append(*self._largest()))
        self.write_indexes()

    def write_indexes(self) -> None:
        """Write new index entries to the files."""
        for index in self._indexes():
            index.write()

    def sync(self) -> None:
        """Sync everything written so far, except the directory."""
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """Prepare a `sync`; the returned function does the slow part and may run in another thread."""
        self.write_indexes()
        storage = self._storage
        paths = [index.path for index in self._indexes() if index.unsynced]
        may_be_new = self.transaction_index.unsynced  # the only file that may be created after its segment
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
        """Copy the age of ``segment``, whose records this one has; call it after the last `append`."""
        self._storage.set_modified_ms(self._log_path, self._storage.modified_ms(segment.path(LOG_SUFFIX)))

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop the batch that contains ``offset`` and all later ones; return the number of bytes dropped.

        The age of an emptied segment counts from ``now_ms``.
        """
        place = self.find(offset)
        if place is None:
            return 0
        self._with_indexes(lambda: len(self.time_index))
        for index in self._indexes():
            index.truncate_to(offset)
        dropped = self.size - place.position
        # The indexes first: an index that is too short is slower, but one that is too long is wrong.
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
        """Return the part of the segment below ``offset``, which is on disk, so that recovery need not read it.

        Index entries beyond that part are dropped. Returns None when the indexes are damaged.

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
                    break  # a torn header may have zeros, so the offsets behind it cannot be trusted
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
        """Read the batches, rebuild the indexes, and truncate the file at the first bad batch.

        Args:
            visit: called with every valid batch.
            after: the result of `trusted_part`; only batches after it are read.
            before_cut: called with the position before a truncation; may raise to prevent it.

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
        # Sync truncations, also those of an earlier process, before the next append: a second crash could bring back
        # the old bytes behind new ones.
        sync_path(self._storage, self._log_path)
        self.unsynced = True
        self._write_rebuilt()
        return dropped

    # -- end of life

    def close(self) -> None:
        """Close the file without writing."""
        self._files.close(self._log_path)

    def mark_deleted(self) -> list[str]:
        """Rename the files to ``.deleted``, and return their new paths.

        Raises:
            OSError: the segment is unchanged. (Once the ``.log`` file is renamed, the segment is deleted: the next
                opening of the log removes index files without a ``.log`` file.)
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
