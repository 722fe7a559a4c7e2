"""One segment of a log: writing, truncation, recovery, renaming and removal.

A segment handles positions and sizes. The log assigns offsets and validates batches. Batches are stored unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.segment_file import SegmentFile
from triokafka.broker_stub.log.segment_indexes import SegmentIndexes, TrustedPart
from triokafka.broker_stub.log.segment_names import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, offset_file_name
from triokafka.broker_stub.log.segment_reader import SegmentReader
from triokafka.checksum import crc32c
from triokafka.records.batch import BatchInfo
from triokafka.structs import Buffer


class LogSegment:
    """A range of a log on disk. Not thread-safe; disk errors are `OSError`.

    Args:
        directory: the directory of the log.
        new: create empty files instead of using existing ones.
        now_ms: the wall clock; it gives the age of a segment without timestamps.
        suffix: the suffix of its file names: empty, ``.cleaned`` or ``.swap``.

    Attributes:
        file: the ``.log`` file.
        indexes: the indexes, and the timestamps of the segment.
        reader: reads by offset.
    """

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        new: bool,
        now_ms: int,
        suffix: str = "",
    ) -> None:
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.unsynced = False  # written since the last `sync`
        self.config = config
        self.roll_after_ms = self._age_limit(config, directory)
        self.file = SegmentFile(files, directory, base_offset, new=new, suffix=suffix)
        self.indexes = SegmentIndexes(
            self.file, interval_bytes=config.index_interval_bytes, max_bytes=config.segment_index_bytes, new=new
        )
        self.reader = SegmentReader(self.file, self.indexes)
        self._torn = False  # a failed write left bytes behind `size`

    def __repr__(self) -> str:
        return f"LogSegment({self.file.log_path!r}, size={self.size})"

    @property
    def size(self) -> int:
        """Bytes of complete batches."""
        return self.file.size

    def use_config(self, config: LogConfig) -> None:
        """Follow a changed configuration of the topic. The sizes of the index files stay."""
        self.config = config
        self.roll_after_ms = self._age_limit(config, self.file.directory)
        self.indexes.interval_bytes = config.index_interval_bytes

    def _age_limit(self, config: LogConfig, directory: str) -> int:
        """Return the age in ms, less the jitter, above which the segment takes no more batches."""
        limit = config.roll_after_ms
        if config.segment_jitter_ms:
            # Each segment has a different jitter, also the first ones of logs created together; a restart does not
            # change it.
            jitter = min(config.segment_jitter_ms, limit)
            limit -= crc32c(f"{directory.rpartition('/')[2]}/{self.base_offset}".encode()) * jitter >> 32
        return limit

    def adopt(self, files: OpenFiles) -> None:
        """Use another set of open files from now on, so that another thread may use the segment."""
        self.file.use(files)

    def reopened(self, files: OpenFiles) -> LogSegment:
        """Return a second object for this sealed segment, for reading in another thread with its own ``files``."""
        return LogSegment(files, self.file.directory, self.base_offset, self.config, new=False, now_ms=self.created_ms)

    def change_suffix(self, suffix: str) -> None:
        """Change the suffix of the files' names to ``suffix``. Raises `OSError`; some files may be renamed then."""
        self._rename(SEGMENT_SUFFIXES, suffix)
        self.file.suffix = suffix
        self._follow_names()

    def take_name(self) -> Iterator[None]:
        """Rename the files to their usual names; yield at each point where the caller must sync the directory."""
        for kinds in (SEGMENT_SUFFIXES[:1], SEGMENT_SUFFIXES[1:]):
            self._rename(kinds, "")
            if kinds[0] == LOG_SUFFIX:
                self.file.log_path = f"{self.file.directory}/{offset_file_name(self.base_offset, LOG_SUFFIX)}"
            else:
                self.file.suffix = ""
                self._follow_names()
            yield

    def _rename(self, kinds: Sequence[str], suffix: str) -> None:
        file, storage = self.file, self.file.storage
        file.close()
        for kind in kinds:
            source = file.path(kind)
            if storage.exists(source):
                storage.rename(source, source.removesuffix(file.suffix) + suffix)

    def _follow_names(self) -> None:
        self.file.log_path = self.file.path(LOG_SUFFIX)
        self.indexes.update_paths()

    # -- writing

    def append(self, batches: Sequence[BatchInfo], data: Buffer) -> None:
        """Write ``data``, the bytes of ``batches``, whose offsets are final.

        Raises:
            OSError: nothing was appended; a later call may succeed.
        """
        self.unsynced = True
        largest = self.indexes.largest()  # before the write: no step may fail after it
        position = self.file.size
        self._write(data, position)
        self.file.size = position + len(data)
        self.indexes.add(batches, position, largest)

    def _write(self, data: Buffer, position: int) -> None:
        if self._torn:
            self._take_back_torn()
        try:
            self.file.handle.write_at(position, data)
        except OSError:
            self._torn = True
            try:
                self.file.handle.truncate(position)
                self._torn = False
            except OSError:
                pass  # retried before the next write; until then no reader goes past `size`
            raise

    def _take_back_torn(self) -> None:
        if self._torn:
            self.file.handle.truncate(self.size)
            self._torn = False

    def seal(self) -> None:
        """Seal the segment: write the indexes, with the largest timestamp as the last entry."""
        self._take_back_torn()  # otherwise the next start would find these bytes, and drop the next segment
        self.indexes.seal()

    def sync(self) -> None:
        """Sync everything written so far, except the directory."""
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """Prepare a `sync`; the returned function does the slow part and may run in another thread."""
        self.indexes.write()
        storage = self.file.storage
        paths = [index.path for index in self.indexes if index.unsynced]
        may_be_new = self.indexes.transactions.unsynced  # the only file that may be created after its segment
        file = self.file
        self.unsynced = False
        for index in self.indexes:
            index.unsynced = False

        def run() -> None:
            for path in (file.log_path, *paths):
                sync_path(storage, path)
            if may_be_new:
                storage.sync_dir(file.directory)

        return run

    def keep_age_of(self, segment: LogSegment) -> None:
        """Copy the age of ``segment``, whose records this one has; call it after the last `append`."""
        storage = self.file.storage
        storage.set_modified_ms(self.file.log_path, storage.modified_ms(segment.file.path(LOG_SUFFIX)))

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop the batch that contains ``offset`` and all later ones; return the number of bytes dropped.

        The age of an emptied segment counts from ``now_ms``.
        """
        place = self.reader.find(offset)
        if place is None:
            return 0
        dropped = self.size - place.position
        self.indexes.truncate_to(offset)
        self.file.cut_to(place.position)
        self.unsynced = True
        self.indexes.forget_timestamps()
        if not self.size:
            self.created_ms = now_ms
        return dropped

    # -- recovery

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
            after: the result of `SegmentIndexes.trusted_part`; only batches after it are read.
            before_cut: called with the position before a truncation; may raise to prevent it.

        Returns:
            The number of bytes cut.
        """
        if after is None:
            self.indexes.clear()
        valid = self.indexes.read_through(after, visit, check_crc=True)
        dropped = self.size - valid
        if dropped:
            before_cut(valid)
            self.file.cut_to(valid)
        # Sync truncations, also those of an earlier process, before the next append: a second crash could bring back
        # the old bytes behind new ones.
        sync_path(self.file.storage, self.file.log_path)
        self.unsynced = True
        self.indexes.write_rebuilt()
        return dropped

    # -- end of life

    def close(self) -> None:
        """Close the file without writing."""
        self.file.close()

    def mark_deleted(self) -> list[str]:
        """Rename the files to ``.deleted``, and return their new paths.

        Raises:
            OSError: the segment is unchanged. (Once the ``.log`` file is renamed, the segment is deleted: the next
                opening of the log removes index files without a ``.log`` file.)
        """
        storage, log_path = self.file.storage, self.file.log_path
        self.close()
        storage.rename(log_path, log_path + DELETED_SUFFIX)
        renamed = [log_path + DELETED_SUFFIX]
        for suffix in SEGMENT_SUFFIXES[1:]:
            path = self.file.path(suffix)
            try:
                storage.rename(path, path + DELETED_SUFFIX)
            except OSError:
                continue
            renamed.append(path + DELETED_SUFFIX)
        return renamed
