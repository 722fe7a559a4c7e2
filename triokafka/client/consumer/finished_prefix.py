"""The finished records of one partition, and the offset up to which they have no gap. A plain object."""

from __future__ import annotations

from collections import deque

from triokafka.structs import OffsetAndMetadata


class FinishedPrefix:
    """The finished records of one partition, and the offset up to which they have no gap. A plain object."""

    def __init__(self) -> None:
        self._begun: deque[tuple[int, int]] = deque()
        self._finished: set[int] = set()
        self.next_offset: int | None = None
        """The offset that may be committed: every record below it is finished. None before the first record."""
        self._epoch = -1

    @property
    def position(self) -> OffsetAndMetadata | None:
        """``next_offset``, with the leader epoch of the record before it."""
        return None if self.next_offset is None else OffsetAndMetadata(self.next_offset, "", self._epoch)

    @property
    def is_complete(self) -> bool:
        """Whether every returned record is finished."""
        return not self._begun

    def begin(self, offset: int, leader_epoch: int = -1) -> None:
        """Note a returned record. Offsets must rise."""
        self._begun.append((offset, leader_epoch))
        if self.next_offset is None:
            self.next_offset = offset

    def finish(self, offset: int) -> None:
        """Note that a record is finished. The order does not matter."""
        self._finished.add(offset)
        while self._begun and self._begun[0][0] in self._finished:
            done, self._epoch = self._begun.popleft()
            self._finished.remove(done)
            self.next_offset = self._begun[0][0] if self._begun else done + 1
