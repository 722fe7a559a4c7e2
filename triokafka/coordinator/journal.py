"""What reads may see: the committed value behind each key that was replayed beyond the high watermark.

A map keeps the newest value; the journal beside it keeps, for keys with uncommitted changes only, the values they had
before. With nothing uncommitted it is empty and costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Journal(Generic[K, V]):
    """Values that keys had before their uncommitted changes."""

    __slots__ = ("_by_key", "_changes")

    def __init__(self) -> None:
        self._changes: deque[tuple[int, K]] = deque()
        self._by_key: dict[K, deque[V | None]] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[K]:
        """Keys with uncommitted changes."""
        return iter(self._by_key)

    def note(self, offset: int, key: K, previous: V | None) -> None:
        """The record at ``offset`` replaced ``previous`` (None: there was nothing). Offsets come in order."""
        self._changes.append((offset, key))
        self._by_key.setdefault(key, deque()).append(previous)

    def committed(self, key: K, newest: V | None) -> V | None:
        """The committed value of ``key``, given the newest one."""
        before = self._by_key.get(key)
        return newest if before is None else before[0]

    def commit(self, high_watermark: int) -> None:
        """Records below ``high_watermark`` are committed: forget what was there before them."""
        while self._changes and self._changes[0][0] < high_watermark:
            _, key = self._changes.popleft()
            before = self._by_key[key]
            before.popleft()
            if not before:
                del self._by_key[key]
