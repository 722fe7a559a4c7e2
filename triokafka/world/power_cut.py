"""The effect of a power cut on files and names that were not synced.

The rules are the worst case over common file systems. A file reaches the disk page by page, in any order, each page as
it was at some moment since the last sync. Its length is written separately, so it may be ahead of the data (reads
return zeros there) or behind. The last page may be torn at a sector. Names reach the disk per directory, in any order,
and a rename is one change. Synced changes survive, and bytes that were never written do not appear. A failed sync may
have lost pages permanently: see `SyncFailure`.

`FileHistory` and `NameHistory` store the changes since the last sync; ``remains`` of either returns the result. The
caller supplies all randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from random import Random

T = TypeVar("T")

PAGE_BYTES: Final = 4096
_MOST_SECTORS: Final = 8  # in a page: a page of 4096 bytes has sectors of 512


class SyncFailure(Enum):
    """The fate of the pages of a failed sync."""

    DIRTY = "dirty"
    """They stay dirty, and the next sync writes them."""
    CLEAN = "clean"
    """Readers see them, but they count as clean: no later sync writes them (ext4)."""
    DROPPED = "dropped"
    """Readers see the previous content (btrfs, XFS)."""


@dataclass(slots=True)
class _Change:
    """``new`` was written at ``offset`` over ``old``; None for a cut or an extension at ``offset``."""

    offset: int
    old: bytes
    new: bytes | None
    old_size: int
    new_size: int

    def pages(self, page_bytes: int) -> range:
        # Where a file is cut, all pages behind the cut change.
        end = self.offset + len(self.new) if self.new is not None else max(self.old_size, self.new_size)
        start = min(self.offset, self.old_size)  # a gap before a write is filled with zeros
        return range(start // page_bytes, -(-end // page_bytes))


class FileHistory:
    """The changes of one file since its last sync, oldest first."""

    __slots__ = ("_changes", "_marks")

    def __init__(self) -> None:
        self._changes: list[_Change] = []
        self._marks: list[tuple[int, bool]] = []  # the number of changes before each sync, and whether it succeeded

    def written(self, data: bytearray, offset: int, new: bytes) -> None:
        """Record that ``new`` will be written at ``offset`` of ``data``."""
        size = len(data)
        old = bytes(memoryview(data)[offset : offset + len(new)])
        self._changes.append(_Change(offset, old, new, size, max(size, offset + len(new))))

    def resized(self, data: bytearray, size: int) -> None:
        """Record that ``data`` will be cut or extended to ``size``."""
        self._changes.append(_Change(size, bytes(memoryview(data)[size:]), None, len(data), size))

    def synced(self) -> None:
        """Record a sync that succeeded."""
        if self._marks:  # pages that an earlier sync lost are still lost
            self._marks.append((len(self._changes), True))
        else:
            self._changes.clear()

    def sync_failed(self, data: bytearray, failure: SyncFailure) -> None:
        """Record a sync that failed."""
        if failure is SyncFailure.CLEAN:
            self._marks.append((len(self._changes), False))
        elif failure is SyncFailure.DROPPED:
            size = len(data)
            data[:] = self.remains(data, None, PAGE_BYTES)
            self.settled()
            if len(data) != size:
                self.resized(data, size)
                resize(data, size)

    def settled(self) -> None:
        """Record that the current state is on the disk."""
        self._changes.clear()
        self._marks.clear()

    def remains(self, data: bytearray, random: Random | None, page_bytes: int) -> bytearray:
        """Return ``data`` after a power cut: the synced content, with ``random`` also a random choice."""
        stable = bytearray(data)
        for change in reversed(self._changes):
            _undo(stable, change)
        done = 0
        for until, succeeded in self._marks:
            stable = _after_sync(stable, self._changes[done:until], random, page_bytes, whole=succeeded)
            done = until
        changes = self._changes[done:]
        if random is None or not changes:
            return stable
        match random.choice(("nothing", "all", "prefix", "prefix", "pages", "pages")):
            case "nothing":
                return stable
            case "all":
                return _replay(stable, changes, len(changes), lambda page: len(changes), page_bytes)
            case "prefix":
                return _cut_short(stable, changes, random, page_bytes)
            case _:
                return _pages_in_any_order(stable, changes, random, page_bytes)


def _cut_short(stable: bytearray, changes: list[_Change], random: Random, page_bytes: int) -> bytearray:
    """Return everything up to some change, and a part of the next."""
    whole = random.randrange(len(changes))
    left = _replay(stable, changes, whole, lambda page: whole, page_bytes)
    torn = changes[whole]
    if torn.new:
        sector = max(1, page_bytes // _MOST_SECTORS)
        keep = random.randrange(len(torn.new) + 1)
        if random.random() < 0.5:
            keep = max(0, (torn.offset + keep) // sector * sector - torn.offset)
        if keep:
            resize(left, max(len(left), torn.offset))
            left[torn.offset : torn.offset + keep] = torn.new[:keep]
    return left


def _pages_in_any_order(stable: bytearray, changes: list[_Change], random: Random, page_bytes: int) -> bytearray:
    """Return each page, and the length, as they were at different moments."""
    last = len(changes)

    def moment() -> int:
        return random.choice((0, last, random.randint(0, last)))

    moments = {page: moment() for page in sorted({page for change in changes for page in change.pages(page_bytes)})}
    return _replay(stable, changes, moment(), lambda page: moments.get(page, 0), page_bytes)


def _after_sync(
    stable: bytearray, changes: list[_Change], random: Random | None, page_bytes: int, *, whole: bool
) -> bytearray:
    """Return the disk after a sync of ``changes``; a failed sync has written some of the pages."""
    written: dict[int, int] = {}
    for page in sorted({page for change in changes for page in change.pages(page_bytes)}):
        if whole or (random is not None and random.random() < 0.5):
            written[page] = len(changes)
    size_at = len(changes) if whole or random is not None else 0
    return _replay(stable, changes, size_at, lambda page: written.get(page, 0), page_bytes)


def _replay(
    stable: bytearray, changes: list[_Change], size_at: int, page_at: Callable[[int], int], page_bytes: int
) -> bytearray:
    """Return ``stable`` with each page as ``page_at`` changes left it, and its length as after ``size_at`` changes."""
    dirty = sorted({page for change in changes for page in change.pages(page_bytes)})
    wanted: dict[int, list[int]] = {}
    for page in dirty:
        wanted.setdefault(page_at(page), []).append(page)
    current = bytearray(stable)
    size = len(stable)
    kept: dict[int, bytes] = {}
    for moment in range(len(changes) + 1):
        if moment:
            _redo(current, changes[moment - 1])
        if moment == size_at:
            size = len(current)
        for page in wanted.get(moment, ()):
            kept[page] = bytes(memoryview(current)[page * page_bytes : (page + 1) * page_bytes])
    left = bytearray(stable)
    resize(left, max(size, (dirty[-1] + 1) * page_bytes if dirty else 0))
    for page, content in kept.items():
        left[page * page_bytes : (page + 1) * page_bytes] = content.ljust(page_bytes, b"\0")
    resize(left, size)
    return left


def _undo(data: bytearray, change: _Change) -> None:
    del data[change.old_size :]
    if change.new is None:
        data[change.offset :] = change.old
    else:
        data[change.offset : change.offset + len(change.old)] = change.old


def _redo(data: bytearray, change: _Change) -> None:
    if change.new is None:
        resize(data, change.new_size)
    else:
        resize(data, max(len(data), change.offset))
        data[change.offset : change.offset + len(change.new)] = change.new


def resize(data: bytearray, size: int) -> None:
    """Cut ``data``, or extend it with zeros."""
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


class NameHistory(Generic[T]):
    """The names of one directory, and their changes since its last sync, oldest first.

    ``names`` is the current content. A change maps the names that change together to their new nodes, or to None for a
    removed name.
    """

    __slots__ = ("_changes", "_synced", "names")

    def __init__(self) -> None:
        self.names: dict[str, T] = {}
        self._synced: dict[str, T] = {}
        self._changes: list[Mapping[str, T | None]] = []

    def change(self, names: Mapping[str, T | None], *, tracked: bool) -> None:
        """Change names; without ``tracked`` the change is not remembered for a power cut."""
        _apply(self.names, names)
        if tracked:
            self._changes.append(names)

    def synced(self) -> None:
        """Record that the current state is on the disk."""
        if self._changes:
            self._synced = dict(self.names)
            self._changes.clear()

    def crash(self, random: Random | None) -> None:
        """Simulate a power cut: keep the synced names without ``random``, and a random choice of changes with it."""
        changes, self._changes = self._changes, []
        self.names = dict(self._synced)
        if random is not None and changes:
            # Journalling file systems keep the order of changes; POSIX does not require it.
            if random.random() < 0.5:
                changes = changes[: random.randint(0, len(changes))]
            else:
                changes = [change for change in changes if random.random() < 0.5]
            for change in changes:
                _apply(self.names, change)
        self._synced = dict(self.names)


def _apply(names: dict[str, T], changes: Mapping[str, T | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
