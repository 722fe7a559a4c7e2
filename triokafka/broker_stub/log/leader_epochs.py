"""The leader epochs of one log and their start offsets (KIP-101, KIP-320).

Stored in ``leader-epoch-checkpoint``. The next flush of the log writes the file. After a crash, recovery finds missing
epochs in the batches that it reads, or in all batches if the file is torn or missing (`LeaderEpochs.lost`).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import Final

from triokafka.broker_stub.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    CorruptCheckpointError,
    read_leader_epochs,
    write_leader_epochs,
)
from triokafka.world import Storage

logger = logging.getLogger(__name__)

UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1


class LeaderEpochs:
    """Epochs and their first offsets, both strictly increasing.

    ``lost``: the file could not be read. ``missing``: there is no file, as for a new log or one without epochs.
    ``unsynced``: the file was written but not synced.
    """

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._dirty = False
        self.unsynced = False
        self.lost = False
        self.missing = not storage.exists(self.path)
        self._epochs: list[int] = []
        self._starts: list[int] = []
        try:
            for epoch, start in read_leader_epochs(storage, self.path):
                self.assign(epoch, start)
            self._dirty = False
            self.unsynced = bool(self._epochs)  # its writer may have died before syncing it
        except CorruptCheckpointError as error:
            self.lose(str(error))

    @property
    def path(self) -> str:
        """The path of the file."""
        return f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"

    @property
    def latest(self) -> int:
        """The newest epoch; -1 when none is known."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def lose(self, why: str) -> None:
        """Report that the file is of no use, and forget the epochs: recovery finds them in the batches."""
        logger.warning("%s. The leader epochs are read from all batches of the log.", why)
        self._epochs, self._starts = [], []
        self._dirty = self.lost = True

    def entries(self) -> list[tuple[int, int]]:
        """All (epoch, first offset)."""
        return list(zip(self._epochs, self._starts, strict=True))

    def entries_from(self, offset: int) -> list[tuple[int, int]]:
        """The entries of a log that begins at ``offset``, as `drop_before` would leave them."""
        index = max(0, bisect_right(self._starts, offset) - 1)
        return [(epoch, max(start, offset)) for epoch, start in self.entries()[index:]]

    def assign(self, epoch: int, start_offset: int) -> None:
        """Set the start offset of a new ``epoch``. Epochs that are not newer than the latest are ignored."""
        if epoch < 0 or (self._epochs and epoch <= self._epochs[-1]):
            return
        while self._starts and self._starts[-1] >= start_offset:
            # An epoch without records is replaced by its successor.
            del self._epochs[-1], self._starts[-1]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._dirty = True

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of the record at ``offset``; -1 when unknown."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the answer to OffsetForLeaderEpoch: the largest known epoch up to ``epoch``, and its end offset.

        Returns (-1, -1) when no epoch is known, or ``epoch`` is newer than all known ones.
        """
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        index = bisect_right(self._epochs, epoch) - 1
        end = self._starts[index + 1] if index + 1 < len(self._starts) else log_end_offset
        # An epoch before the first known one ends at the start of that one.
        return (self._epochs[index] if index >= 0 else epoch), end

    def truncate_to(self, offset: int) -> None:
        """Forget epochs that began at or after ``offset``, after a truncation to it."""
        while self._starts and self._starts[-1] >= offset:
            del self._epochs[-1], self._starts[-1]
            self._dirty = True

    def drop_before(self, offset: int) -> None:
        """Forget epochs that ended before ``offset``, where the first segment begins; the epoch of that record now
        starts there.

        Epochs between there and the log start offset stay: after a crash the log may start earlier again, and its
        records there must be those of the other replicas.
        """
        index = bisect_right(self._starts, offset) - 1
        if index > 0:
            del self._epochs[:index], self._starts[:index]
            self._dirty = True
        if index >= 0 and self._starts[0] < offset:
            self._starts[0] = offset
            self._dirty = True

    def clear(self) -> None:
        """Forget everything."""
        self._dirty = self._dirty or bool(self._epochs)
        self._epochs, self._starts = [], []

    def write(self) -> None:
        """Write the file if the entries have changed. Raises `OSError`."""
        if self._dirty:
            write_leader_epochs(self._storage, self.path, self.entries())
            self._dirty = False
            self.unsynced = True
