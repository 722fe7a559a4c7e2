"""Writing the file of one snapshot, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable

from triokafka.broker_stub.metadata.snapshots import UNFINISHED_SUFFIX, SnapshotId, check_snapshot
from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.structs import Buffer
from triokafka.world import File, Storage


class SnapshotFileWriter:
    """Writes a snapshot into a file that gets its final name in `finish`. See `SnapshotWriter`.

    Args:
        finished: called by `finish`, in its thread, once the snapshot is durable.

    Raises:
        KafkaStorageError: the file cannot be created.
    """

    def __init__(
        self, storage: Storage, directory: str, snapshot_id: SnapshotId, *, finished: Callable[[SnapshotId], None]
    ) -> None:
        self._storage = storage
        self._directory = directory
        self.snapshot_id = snapshot_id
        """The id that the snapshot will have."""
        self._finished = finished
        self._path = os.path.join(directory, snapshot_id.file_name)
        self.size = 0
        """Bytes appended so far."""
        self._file: File | None = None
        try:
            self._file = storage.open(self._path + UNFINISHED_SUFFIX, create=True)
            self._file.truncate(0)
        except OSError as error:
            raise self._failed(error) from error

    def append(self, data: Buffer) -> None:
        """Append a part of the snapshot. Raises `KafkaStorageError`; the snapshot is abandoned then."""
        if self._file is None:
            raise self._failed(None)
        view = memoryview(data)
        try:
            while view:
                written = self._file.write_at(self.size, view)
                self.size += written
                view = view[written:]
        except OSError as error:
            raise self._failed(error) from error

    def check(self) -> None:
        """Read the snapshot again, and check that it is whole; callable in a thread.

        Raises:
            KafkaStorageError: it is damaged, or cannot be read. It is abandoned.
        """
        if self._file is None:
            raise self._failed(None)
        try:
            check_snapshot(self._storage.read_file(self._path + UNFINISHED_SUFFIX), self.snapshot_id)
        except OSError as error:
            raise self._failed(error) from error
        except (ValueError, CorruptRecordError) as error:
            self.abandon()
            raise KafkaStorageError(
                f"{self._path}: the snapshot is damaged at its source, the leader: {error}"
            ) from error

    def finish(self) -> None:
        """Sync the snapshot and give it its name; callable in a thread. Raises `KafkaStorageError`."""
        file = self._file
        if file is None:
            raise self._failed(None)
        try:
            file.sync()
            self._file = None
            file.close()
            self._storage.rename(self._path + UNFINISHED_SUFFIX, self._path)
            self._storage.sync_dir(self._directory)
        except OSError as error:
            raise self._failed(error) from error
        self._finished(self.snapshot_id)

    def abandon(self) -> None:
        """Delete the written part. Does nothing after `finish`, or after a failure."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
            self._storage.remove(self._path + UNFINISHED_SUFFIX)
        except OSError:
            pass  # the next start removes it

    def _failed(self, error: OSError | None) -> KafkaStorageError:
        self.abandon()
        return KafkaStorageError(f"{self._path}: the snapshot cannot be written: {error or 'it was abandoned'}")
