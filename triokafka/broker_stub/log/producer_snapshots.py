"""Producer state on disk: ``<offset>.snapshot`` files with the state before the record at that offset.

One is written when a segment begins, when a log is closed, and now and then in between, so that not much of the log
must be read to know its producers after a crash. None is synced: a torn one fails its checksum, and an older one with
the batches after it takes its place.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from triokafka.broker_stub.log.checkpoints import replace_unsynced
from triokafka.broker_stub.log.producer_state import CorruptSnapshotError, ProducerStates
from triokafka.broker_stub.log.segment_names import is_segment_file, offset_file_name
from triokafka.world import Storage

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX: Final = ".snapshot"


class ProducerSnapshots:
    """The snapshots of one log. Errors of the disk are `OSError`."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._offsets = sorted(
            int(name[:20]) for name in storage.list_dir(directory) if is_segment_file(name, SNAPSHOT_SUFFIX)
        )

    @property
    def newest(self) -> int:
        """The offset of the newest one; -1 without any."""
        return self._offsets[-1] if self._offsets else -1

    def take(self, producers: ProducerStates, offset: int) -> None:
        """Write one for ``offset``, which is at or after all others'."""
        replace_unsynced(self._storage, self._path(offset), producers.encode())
        if offset != self.newest:
            self._offsets.append(offset)

    def restore(self, up_to_offset: int, *, from_offset: int = 0) -> tuple[ProducerStates, int]:
        """The state of the newest that can be read between the two offsets, and its offset; -1 when none can.

        Those that cannot be read are removed.
        """
        for offset in reversed(self._offsets):
            if not from_offset <= offset <= up_to_offset:
                continue
            producers = ProducerStates()
            path = self._path(offset)
            try:
                producers.decode(self._storage.read_file(path), path)
                return producers, offset
            except CorruptSnapshotError as error:
                logger.warning("%s; going back to an older one", error)
                self.remove(offset)
        return ProducerStates(), -1

    def remove(self, offset: int) -> None:
        """Remove the one for ``offset`` when there is one."""
        if offset in self._offsets:
            self._storage.remove(self._path(offset))
            self._offsets.remove(offset)

    def remove_after(self, offset: int) -> bool:
        """Remove those after ``offset``: the log was cut there. True when there were any: sync the directory then."""
        doomed = [known for known in self._offsets if known > offset]
        for known in doomed:
            self.remove(known)
        return bool(doomed)

    def remove_strays(self, segment_bases: Collection[int]) -> None:
        """Remove those in the middle of segments, except for the newest of all."""
        for offset in self._offsets[:-1]:
            if offset not in segment_bases:
                self.remove(offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"
