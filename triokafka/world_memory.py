"""Storage in memory, for brokers that keep nothing and for the simulated disk.

`MemoryStorage` keeps two images of every file and directory: what was written, and what is known to be on stable
storage (`File.sync` for content, `Storage.sync_dir` for names). `MemoryStorage.crash` is the power cut that goes back
to the second, with or without remains of what came after; `MemoryStorage.kill` is the death of the process alone, which
loses nothing. Faults (a full disk, a failing sector, a hook before every operation) are injected here too.

Nothing here waits, and nothing draws randomness of its own.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

from triokafka.errors import IllegalStateError
from triokafka.structs import Buffer
from triokafka.world import File, Storage

if TYPE_CHECKING:
    from random import Random  # noqa: TID251 - the type alone; the caller brings the randomness

_SECTOR: Final = 512  # a disk writes sectors whole; a torn write ends at one


@dataclass(slots=True)
class DiskFault:
    """An error that the storage answers instead of doing its work.

    Args:
        operation: ``read``, ``write``, ``truncate``, ``sync``, ``size``, ``open``, ``rename``, ``remove``, ``list``,
            ``make_dirs``, ``sync_dir``, or ``*`` for all.
        path: shell pattern for the whole path, as in ``*/orders-0/*.log``.
        code: the ``errno`` to raise.
        times: how often; None for always, until it is taken back.
        partial: how many bytes of a write are done before it fails.
    """

    operation: str = "*"
    path: str = "*"
    code: int = errno.EIO
    times: int | None = None
    partial: int = 0

    def takes(self, operation: str, path: str) -> bool:
        """Whether this fault strikes now; counts it when it does."""
        if self.times == 0 or self.operation not in ("*", operation) or not fnmatch(path, self.path):
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(slots=True)
class _Change:
    """One unsynced change of a file: ``new`` was put at ``offset`` over ``old``; None for a cut or an extension."""

    offset: int
    old: bytes
    new: bytes | None
    old_size: int
    new_size: int


class _FileNode:
    __slots__ = ("changes", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self.changes: list[_Change] = []  # since the last sync, oldest first

    def undo_to_synced(self) -> list[_Change]:
        """Go back to the content at the last sync and return what was taken back, oldest first."""
        changes, self.changes = self.changes, []
        for change in reversed(changes):
            del self.data[change.old_size :]
            if change.new is None:
                self.data[change.offset :] = change.old
            else:
                self.data[change.offset : change.offset + len(change.old)] = change.old
        return changes

    def redo(self, change: _Change, keep: int | None = None) -> None:
        """Do ``change`` again, only its first ``keep`` bytes when given. Skipped bytes before it read as zeros."""
        if change.new is None:
            _resize(self.data, change.new_size)
            return
        new = change.new if keep is None else change.new[:keep]
        if new:
            _resize(self.data, max(len(self.data), change.offset))
            self.data[change.offset : change.offset + len(new)] = new


class _DirectoryNode:
    __slots__ = ("changes", "names", "synced")

    def __init__(self) -> None:
        self.names: dict[str, _FileNode | _DirectoryNode] = {}
        self.synced: dict[str, _FileNode | _DirectoryNode] = {}
        # Since the last sync, oldest first: each is the set of names that changed together and what they became.
        self.changes: list[dict[str, _FileNode | _DirectoryNode | None]] = []

    def change(self, names: dict[str, _FileNode | _DirectoryNode | None], *, tracked: bool) -> None:
        _apply(self.names, names)
        if tracked:
            self.changes.append(names)

    def sync(self) -> None:
        if self.changes:
            self.synced = dict(self.names)
            self.changes.clear()


class _MemoryFile(File):
    def __init__(self, storage: MemoryStorage, node: _FileNode, path: str, *, read_only: bool) -> None:
        self._storage = storage
        self._node: _FileNode = node
        self._path = path
        self._read_only = read_only
        self._generation = storage.generation
        self._closed = False

    def _begin(self, operation: str, size: int = 0) -> _FileNode:
        if self._closed:
            raise OSError(errno.EBADF, "the file was closed", self._path)
        if self._generation != self._storage.generation:
            raise OSError(errno.EIO, "the process that opened this file is dead", self._path)
        self._storage.before(operation, self._path, size)
        return self._node

    def read_at(self, offset: int, size: int) -> bytes:
        node = self._begin("read", size)
        return bytes(memoryview(node.data)[offset : offset + size])

    def write_at(self, offset: int, *buffers: Buffer) -> int:
        if self._read_only:
            raise OSError(errno.EBADF, "the file was opened for reading only", self._path)
        content: Buffer = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        try:
            node = self._begin("write", len(content))
        except _PartialWriteError as error:
            self._put(self._node, offset, memoryview(content)[: error.done])
            raise OSError(error.errno, error.strerror, self._path) from None
        room = self._storage.room()
        if room is not None:
            grown = max(0, offset + len(content) - len(node.data))
            if grown > room:
                self._put(node, offset, memoryview(content)[: max(0, len(content) - (grown - room))])
                raise OSError(errno.ENOSPC, "no space left on the simulated disk", self._path)
        self._put(node, offset, content)
        return len(content)

    def _put(self, node: _FileNode, offset: int, content: Buffer) -> None:
        data = node.data
        old_size = len(data)
        if self._storage.crashable:
            old = bytes(memoryview(data)[offset : offset + len(content)])
            new_size = max(old_size, offset + len(content))
            node.changes.append(_Change(offset, old, bytes(content), old_size, new_size))
        if offset > old_size:
            _resize(data, offset)
        if offset == len(data):
            data += content  # an assignment to a slice would copy twice
        else:
            data[offset : offset + len(content)] = content
        self._storage.grew(len(data) - old_size)

    def view(self, offset: int, size: int) -> memoryview | bytes:
        data = self.read_at(offset, size)
        if len(data) < size:
            raise OSError(errno.EIO, f"the file ends at byte {offset + len(data)}, {offset + size} bytes were expected")
        return data

    def size(self) -> int:
        return len(self._begin("size").data)

    def truncate(self, size: int) -> None:
        node = self._begin("truncate", size)
        old_size = len(node.data)
        if size == old_size:
            return
        if self._storage.crashable:
            node.changes.append(_Change(size, bytes(memoryview(node.data)[size:]), None, old_size, size))
        _resize(node.data, size)
        self._storage.grew(size - old_size)

    def sync(self) -> None:
        self._begin("sync").changes.clear()

    def close(self) -> None:
        self._closed = True


class _PartialWriteError(OSError):
    """A write that a fault cuts short; ``done`` bytes of it are written."""

    done: int = 0


class MemoryStorage(Storage):
    """A file system in memory.

    Args:
        crashable: remember what was not synced, so that `crash` can take it away. Costs a copy of all unsynced bytes;
            turn it off where nothing will crash.
        capacity: bytes that all files together may hold; a write beyond it is cut there and raises ``ENOSPC``. None
            for no limit. May be changed at any time.

    ``before_operation``, when set, is called with operation, path and number of bytes before everything that the disk
    does; it may raise `OSError`, count, trace, or move a virtual clock to make the disk slow.
    """

    def __init__(self, *, crashable: bool = True, capacity: int | None = None) -> None:
        self.crashable: Final = crashable
        self.capacity = capacity
        self.generation = 0
        self.faults: list[DiskFault] = []
        self.before_operation: Callable[[str, str, int], None] | None = None
        self._root = _DirectoryNode()
        self._used = 0
        self._locks: set[str] = set()

    # -- faults and crashes

    def before(self, operation: str, path: str, size: int) -> None:
        """Let the hook and the injected faults have their say; called by every operation."""
        if self.before_operation is not None:
            self.before_operation(operation, path, size)
        for fault in self.faults:
            if fault.takes(operation, path):
                error = _PartialWriteError if operation == "write" else OSError
                raised = error(fault.code, f"injected fault: {os.strerror(fault.code)}", path)
                if isinstance(raised, _PartialWriteError):
                    raised.done = min(fault.partial, size)
                raise raised

    def inject(self, fault: DiskFault) -> Callable[[], None]:
        """Arm ``fault`` and return the function that takes it back."""
        self.faults.append(fault)
        return lambda: self.faults.remove(fault) if fault in self.faults else None

    def room(self) -> int | None:
        """Bytes left, None when there is no limit."""
        return None if self.capacity is None else max(0, self.capacity - self._used)

    def grew(self, size: int) -> None:
        """Account for ``size`` more (or fewer) bytes in files."""
        self._used += size

    def kill(self) -> None:
        """The process dies, the machine lives: open files are dead, locks are free, everything written stays."""
        self.generation += 1
        self._locks.clear()

    def crash(self, random: Random, *, tear: bool = True) -> None:
        """The power fails: only what was synced is sure to be there again.

        Without ``tear`` exactly that is left. With it, each file keeps some of its unsynced writes, whole, cut at a
        sector, or not at all, with holes of zeros where an earlier one was lost; each directory keeps its unsynced
        changes of names up to some point. Open files are dead, locks are free.

        Args:
            random: decides; the same state gives the same remains.
        """
        if not self.crashable:
            raise IllegalStateError("this storage was made with crashable=False: it does not know what was synced")
        self.kill()
        _crash_directory(self._root, random if tear else None)
        self._used = _settle(self._root)

    # -- the tree

    def _node(self, path: str) -> _FileNode | _DirectoryNode | None:
        node: _FileNode | _DirectoryNode | None = self._root
        for name in _split(path):
            if not isinstance(node, _DirectoryNode):
                return None
            node = node.names.get(name)
        return node

    def _directory(self, path: str) -> _DirectoryNode:
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if not isinstance(node, _DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.before("open", path, 0)
        node = self._node(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = _FileNode()
            parent, name = _parent_and_name(path)
            self._directory(parent).change({name: node}, tracked=self.crashable)
        if isinstance(node, _DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return _MemoryFile(self, node, path, read_only=read_only)

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._node(path), _DirectoryNode)

    def list_dir(self, path: str) -> list[str]:
        self.before("list", path, 0)
        return sorted(self._directory(path).names)

    def make_dirs(self, path: str) -> None:
        self.before("make_dirs", path, 0)
        node = self._root
        for name in _split(path):
            child = node.names.get(name)
            if child is None:
                child = _DirectoryNode()
                node.change({name: child}, tracked=self.crashable)
            if not isinstance(child, _DirectoryNode):
                raise FileExistsError(errno.EEXIST, "a file is in the way", path)
            node = child

    def rename(self, source: str, target: str) -> None:
        self.before("rename", source, 0)
        node = self._node(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        source_parent, source_name = _parent_and_name(source)
        target_parent, target_name = _parent_and_name(target)
        destination = self._directory(target_parent)
        replaced = destination.names.get(target_name)
        if isinstance(replaced, _DirectoryNode) and replaced.names:
            raise OSError(errno.ENOTEMPTY, "directory is not empty", target)
        if replaced is node:
            return
        if source_parent == target_parent:
            destination.change({source_name: None, target_name: node}, tracked=self.crashable)
        else:
            destination.change({target_name: node}, tracked=self.crashable)
            self._directory(source_parent).change({source_name: None}, tracked=self.crashable)
        if replaced is not None:
            self._used -= _tree_size(replaced)

    def remove(self, path: str) -> None:
        self.before("remove", path, 0)
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, _DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        parent, name = _parent_and_name(path)
        self._directory(parent).change({name: None}, tracked=self.crashable)
        self._used -= len(node.data)

    def remove_tree(self, path: str) -> None:
        self.before("remove", path, 0)
        node = self._node(path)
        if node is not None and _split(path):
            parent, name = _parent_and_name(path)
            self._directory(parent).change({name: None}, tracked=self.crashable)
            self._used -= _tree_size(node)

    def sync_dir(self, path: str) -> None:
        self.before("sync_dir", path, 0)
        self._directory(path).sync()

    def lock(self, path: str) -> Callable[[], None]:
        self.open(path, create=True).close()
        key = "/".join(_split(path))
        if key in self._locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another broker", path)
        self._locks.add(key)
        generation = self.generation

        def release() -> None:
            if generation == self.generation:
                self._locks.discard(key)

        return release


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _parent_and_name(path: str) -> tuple[str, str]:
    parts = _split(path)
    return "/".join(parts[:-1]), parts[-1]


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _apply(names: dict[str, _FileNode | _DirectoryNode], changes: dict[str, _FileNode | _DirectoryNode | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _tree_size(node: _FileNode | _DirectoryNode) -> int:
    if isinstance(node, _FileNode):
        return len(node.data)
    return sum(_tree_size(child) for child in node.names.values())


def _settle(node: _FileNode | _DirectoryNode) -> int:
    """Make what is there now the stable image, and return its size."""
    if isinstance(node, _FileNode):
        node.changes.clear()
        return len(node.data)
    node.synced = dict(node.names)
    node.changes.clear()
    return sum(_settle(child) for child in node.names.values())


def _crash_directory(node: _DirectoryNode, random: Random | None) -> None:
    # Journalling file systems apply changes of names in order, so what survives is a prefix.
    survivors = random.randint(0, len(node.changes)) if random and node.changes else 0
    node.names = dict(node.synced)
    for change in node.changes[:survivors]:
        _apply(node.names, change)
    for name in sorted(node.names):
        child = node.names[name]
        if isinstance(child, _DirectoryNode):
            _crash_directory(child, random)
        else:
            _crash_file(child, random)


def _crash_file(node: _FileNode, random: Random | None) -> None:
    changes = node.undo_to_synced()
    if random is None or not changes:
        return
    fate = random.choice(("nothing", "prefix", "prefix", "some", "all"))
    if fate == "nothing":
        return
    kept = range(random.randrange(len(changes) + 1)) if fate == "prefix" else range(len(changes))
    for index in kept:
        if fate == "some" and random.random() < 0.4:
            continue
        node.redo(changes[index])
    if fate == "prefix" and len(kept) < len(changes):
        torn = changes[len(kept)]
        if torn.new:
            cut = random.randrange(len(torn.new) + 1)
            sector_end = (torn.offset + cut) // _SECTOR * _SECTOR - torn.offset
            node.redo(torn, keep=max(0, sector_end if random.random() < 0.5 else cut))
