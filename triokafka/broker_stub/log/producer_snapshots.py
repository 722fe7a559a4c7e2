"""Producer snapshots: ``<offset>.snapshot`` files with the producer state before the record at that offset.

A snapshot is written when a segment begins, when the log is closed, and at intervals in between, which limits the part
of the log that recovery must read. Snapshots are not synced: a torn one fails its checksum, and recovery uses an older
one and the batches after it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from triokafka.broker_stub.log.checkpoints import replace_unsynced
from triokafka.broker_stub.log.producer_snapshot_format import CorruptSnapshotError, decode_snapshot, encode_snapshot
from triokafka.broker_stub.log.producer_state import ProducerStates
from triokafka.broker_stub.log.segment_names import is_segment_file, offset_file_name
from triokafka.world import Storage

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX: Final = ".snapshot"


class ProducerSnapshots:
    """The producer snapshots of one log. Disk errors are `OSError`."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._offsets = sorted(
            int(name[:20]) for name in storage.list_dir(directory) if is_segment_file(name, SNAPSHOT_SUFFIX)
        )

    @property
    def newest(self) -> int:
        """Return the offset of the newest snapshot; -1 when there is none."""
        return self._offsets[-1] if self._offsets else -1

    def take(self, producers: ProducerStates, offset: int) -> None:
        """Write a snapshot for ``offset``, which is at or after the offsets of all others."""
        replace_unsynced(self._storage, self._path(offset), encode_snapshot(producers))
        if offset != self.newest:
            self._offsets.append(offset)

    def restore(self, up_to_offset: int, *, from_offset: int = 0) -> tuple[ProducerStates, int]:
        """Read the newest readable snapshot between the two offsets; return its state and offset, or an empty state and
        -1.

        Unreadable snapshots are removed.
        """
        for offset in reversed(self._offsets):
            if not from_offset <= offset <= up_to_offset:
                continue
            path = self._path(offset)
            try:
                return decode_snapshot(self._storage.read_file(path), path), offset
            except CorruptSnapshotError as error:
                logger.warning("%s. An older snapshot is used.", error)
                self.remove(offset)
        return ProducerStates(), -1

    def remove(self, offset: int) -> None:
        """Remove the snapshot for ``offset`` if it exists."""
        if offset in self._offsets:
            self._storage.remove(self._path(offset))
            self._offsets.remove(offset)

    def remove_after(self, offset: int) -> bool:
        """Remove snapshots after ``offset``, for a truncation; return whether any existed, so that the caller must sync
        the directory.
        """
        doomed = [known for known in self._offsets if known > offset]
        for known in doomed:
            self.remove(known)
        return bool(doomed)

    def remove_strays(self, segment_bases: Collection[int]) -> None:
        """Remove the snapshots within segments, except for the newest of all."""
        for offset in self._offsets[:-1]:
            if offset not in segment_bases:
                self.remove(offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"
