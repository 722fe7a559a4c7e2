"""Positions that transactions have committed, and that count once the transaction does (KIP-447).

They are in the log, but not in the store: the marker that ends the transaction moves them there, or drops them. Changes
only by replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from triokafka.coordinator.stored import CommittedOffset, OffsetKey


class PendingOffset(NamedTuple):
    """One position of an open transaction, and where its record is in the log.

    ``value`` is None when a later record has overtaken it: it will never be the position, but how far the group has
    come is not decided until the transaction ends.
    """

    record_offset: int
    value: CommittedOffset | None


class PendingOffsets:
    """The positions of open transactions, by producer id and key."""

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
        """A transaction of ``producer_id`` has committed a position."""
        self._by_producer.setdefault(producer_id, {})[key] = PendingOffset(record_offset, value)
        self._producers.setdefault(key, {})[producer_id] = None

    def overtaken(self, key: OffsetKey, record_offset: int) -> None:
        """The position that counts is now the one of ``record_offset``: older ones will not replace it."""
        for producer_id in self._producers.get(key, ()):
            pending = self._by_producer[producer_id]
            if pending[key].record_offset < record_offset:
                pending[key] = PendingOffset(pending[key].record_offset, None)

    def forget(self, key: OffsetKey) -> None:
        """A tombstone: no open transaction has a position under this key any more."""
        for producer_id in self._producers.pop(key, ()):
            pending = self._by_producer[producer_id]
            del pending[key]
            if not pending:
                del self._by_producer[producer_id]

    def end(self, producer_id: int) -> list[tuple[OffsetKey, PendingOffset]]:
        """The transaction of ``producer_id`` is over: what was pending, in the order in which it was first written."""
        pending = self._by_producer.pop(producer_id, {})
        for key in pending:
            producers = self._producers[key]
            del producers[producer_id]
            if not producers:
                del self._producers[key]
        return list(pending.items())

    def groups(self) -> Iterable[str]:
        """Groups with positions of open transactions."""
        return {key.group_id: None for key in self._producers}

    def of_group(self, group_id: str) -> Iterator[OffsetKey]:
        """The keys of one group under which open transactions have positions."""
        return (key for key in self._producers if key.group_id == group_id)

    def has_group(self, group_id: str) -> bool:
        """Whether an open transaction has a position of this group."""
        return any(True for _ in self.of_group(group_id))
