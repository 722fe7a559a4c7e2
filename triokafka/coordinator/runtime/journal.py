"""Committed values behind a map that is ahead of the high watermark.

A map holds the newest value of each key. The journal beside it holds the previous values of keys that have uncommitted
changes, so that readers see committed values only. With no uncommitted change it is empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Journal(Generic[K, V]):
    """The values that keys had before their uncommitted changes.

    Args:
        owner_of: returns the owner of a key, such as its group, for lookups by owner. None disables `owners` and
            `keys_of`.
    """

    __slots__ = ("_by_key", "_by_owner", "_changes", "_owner_of")

    def __init__(self, owner_of: Callable[[K], str] | None = None) -> None:
        self._changes: deque[tuple[int, K]] = deque()
        self._by_key: dict[K, deque[V | None]] = {}
        self._owner_of = owner_of
        self._by_owner: dict[str, dict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys with uncommitted changes."""
        return iter(self._by_key)

    def owners(self) -> Iterable[str]:
        """Return the owners of keys with uncommitted changes."""
        return self._by_owner.keys()

    def keys_of(self, owner: str) -> Iterable[K]:
        """Return the keys of one owner with uncommitted changes."""
        return self._by_owner.get(owner, ())

    def note(self, offset: int, key: K, previous: V | None) -> None:
        """Note that the record at ``offset`` replaced ``previous`` (None: the key was absent). Offsets must ascend."""
        self._changes.append((offset, key))
        before = self._by_key.get(key)
        if before is None:
            before = self._by_key[key] = deque()
            if self._owner_of is not None:
                self._by_owner.setdefault(self._owner_of(key), {})[key] = None
        before.append(previous)

    def committed(self, key: K, newest: V | None) -> V | None:
        """Return the committed value of ``key``, given its newest value."""
        before = self._by_key.get(key)
        return newest if before is None else before[0]

    def commit(self, high_watermark: int) -> None:
        """Drop the previous values that records below ``high_watermark`` replaced; those records are committed."""
        while self._changes and self._changes[0][0] < high_watermark:
            _, key = self._changes.popleft()
            before = self._by_key[key]
            before.popleft()
            if not before:
                del self._by_key[key]
                if self._owner_of is not None:
                    self._forget(self._owner_of(key), key)

    def _forget(self, owner: str, key: K) -> None:
        keys = self._by_owner[owner]
        del keys[key]
        if not keys:
            del self._by_owner[owner]
