"""Offsets of open transactions; they take effect when the transaction commits (KIP-447).

Their records are in the log, but the offsets are not in the store: the transaction's end marker moves them there or
drops them. Only replay changes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from triokafka.coordinator.group.records import CommittedOffset, OffsetKey


class PendingOffset(NamedTuple):
    """One offset of an open transaction, and the log offset of its record.

    ``value`` is None when a later record has replaced it. It will never become the committed offset, but the group's
    offset remains unstable until the transaction ends.
    """

    record_offset: int
    value: CommittedOffset | None


class PendingOffsets:
    """The offsets of open transactions, by producer id and key."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, PendingOffset]] = {}
        self._producers: dict[OffsetKey, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, key: OffsetKey) -> bool:
        return key in self._producers

    def __iter__(self) -> Iterator[OffsetKey]:
        return iter(self._producers)

    def put(self, producer_id: int, key: OffsetKey, value: CommittedOffset, record_offset: int) -> None:
        """Add an offset that an open transaction of ``producer_id`` wrote."""
        self._by_producer.setdefault(producer_id, {})[key] = PendingOffset(record_offset, value)
        self._producers.setdefault(key, {})[producer_id] = None

    def overtaken(self, key: OffsetKey, record_offset: int) -> None:
        """Discard the values of older records under ``key``: the record at ``record_offset`` has replaced them."""
        for producer_id in self._producers.get(key, ()):
            pending = self._by_producer[producer_id]
            if pending[key].record_offset < record_offset:
                pending[key] = PendingOffset(pending[key].record_offset, None)

    def forget(self, key: OffsetKey) -> None:
        """Drop all pending offsets under ``key``, on a tombstone."""
        for producer_id in self._producers.pop(key, ()):
            pending = self._by_producer[producer_id]
            del pending[key]
            if not pending:
                del self._by_producer[producer_id]

    def end(self, producer_id: int) -> list[tuple[OffsetKey, PendingOffset]]:
        """Remove and return the pending offsets of ``producer_id``, in the order in which they were first written."""
        pending = self._by_producer.pop(producer_id, {})
        for key in pending:
            producers = self._producers[key]
            del producers[producer_id]
            if not producers:
                del self._producers[key]
        return list(pending.items())

    def groups(self) -> Iterable[str]:
        """Return the groups with offsets of open transactions."""
        return {key.group_id: None for key in self._producers}

    def of_group(self, group_id: str) -> Iterator[OffsetKey]:
        """Iterate over one group's keys with offsets of open transactions."""
        return (key for key in self._producers if key.group_id == group_id)

    def has_group(self, group_id: str) -> bool:
        """Whether an open transaction has an offset of this group."""
        return any(True for _ in self.of_group(group_id))
