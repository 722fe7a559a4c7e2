"""The transaction index: the aborted transactions of a segment, in Kafka's ``.txnindex`` format (KIP-98).

When an abort marker is appended, its segment gets an entry. The entry gives the range in which read_committed consumers
must skip the producer's records, and the offset up to which the list of aborted transactions is complete. A segment
without aborted transactions has no such file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from operator import attrgetter
from typing import Final

from triokafka.broker_stub.log.index import CorruptIndexError, IndexFile
from triokafka.named_tuple import NamedTuple
from triokafka.world import Storage

_VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
_last_offset = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """An aborted transaction.

    ``first_offset`` is the offset of its first record, ``last_offset`` that of its marker. ``last_stable_offset`` is
    the last stable offset when the marker was appended: later entries cover no record below it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(IndexFile):
    """Aborted transactions, in the order of their markers."""

    ENTRY_SIZE = _ENTRY.size
    MAY_BE_MISSING = True

    def __init__(self, storage: Storage, path: str, base_offset: int, *, new: bool) -> None:
        super().__init__(storage, path, base_offset, max_bytes=2**31 - 1, new=new)
        self._entries: list[AbortedTransaction] = []

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction, which ends after all others. Raises `CorruptIndexError` otherwise."""
        self._load()
        if self._entries and transaction.last_offset <= self._entries[-1].last_offset:
            raise CorruptIndexError(self.path, f"has {transaction}, which cannot follow {self._entries[-1]}")
        self._entries.append(transaction)

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries."""
        self._load()
        return list(self._entries)

    def reaching_to(self, offset: int) -> list[AbortedTransaction]:
        """Return the transactions that end at or after ``offset``."""
        self._load()
        return self._entries[bisect_left(self._entries, offset, key=_last_offset) :]

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or after ``offset``."""
        self._load()
        self.keep_first(bisect_left(self._entries, offset, key=_last_offset))

    def _parse(self, data: bytes) -> int:
        entries = []
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if (
                version != _VERSION
                or not entry.first_offset < entry.last_offset  # the marker is last; zeros mean a lost page
                or entry.last_offset < self.base_offset
            ):
                break
            entries.append(entry)
        good = next((i + 1 for i, (a, b) in enumerate(pairwise(entries)) if a.last_offset >= b.last_offset), None)
        self._entries = entries[:good]
        return len(self._entries)

    def _pack(self, start: int) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries[start:])

    def _cut(self, count: int) -> None:
        del self._entries[count:]

    def _count(self) -> int:
        return len(self._entries)


def aborted_between(
    indexes: Iterable[TransactionIndex], start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in [start, end), in the order of their markers.

    Args:
        indexes: those of the segments from the one with ``start_offset`` on.

    Raises:
        CorruptIndexError: one of the indexes is damaged.
        OSError: the disk failed.
    """
    found = []
    for index in indexes:
        for transaction in index.reaching_to(start_offset):
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return found
    return found
