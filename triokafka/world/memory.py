"""Storage in memory, for brokers without a data directory and for the simulated disk.

`MemoryStorage` is a file system that tracks syncs (`File.sync` for content, `Storage.sync_dir` for names).
`MemoryStorage.crash` simulates a power cut: all or some of the rest is lost (`world.power_cut` has the rules).
`MemoryStorage.kill` simulates the death of the process alone, which loses nothing. Tests also inject faults here: a
full disk, a failing sector, a sync that loses pages, a hook before every operation.

No call waits, and the caller supplies all randomness.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeAlias

from triokafka.errors import IllegalStateError
from triokafka.structs import Buffer
from triokafka.world.file import File
from triokafka.world.power_cut import PAGE_BYTES, FileHistory, NameHistory, SyncFailure, resize
from triokafka.world.storage import Storage
from triokafka.world.system import wall_ms

if TYPE_CHECKING:
    from random import Random


@dataclass(slots=True)
class DiskFault:
    """An injected error of the storage.

    Args:
        operation: ``read``, ``write``, ``truncate``, ``sync``, ``size``, ``open``, ``rename``, ``remove``, ``list``,
            ``make_dirs``, ``sync_dir``, or ``*`` for all.
        path: shell pattern for the whole path, as in ``*/orders-0/*.log``.
        code: the ``errno`` to raise.
        times: how often; None for always, until it is removed.
        partial: how many bytes of a write are written before it fails.
        pages: the fate of the pages of a failed sync.
    """

    operation: str = "*"
    path: str = "*"
    code: int = errno.EIO
    times: int | None = None
    partial: int = 0
    pages: SyncFailure = SyncFailure.DIRTY

    def takes(self, operation: str, path: str) -> bool:
        """Whether this fault applies to the operation; if so, count it."""
        if self.times == 0 or self.operation not in ("*", operation) or not fnmatchcase(path, self.path):
            return False
        if self.times is not None:
            self.times -= 1
        return True

    def error(self, path: str) -> OSError:
        """The exception of this fault."""
        return OSError(self.code, f"injected fault: {os.strerror(self.code)}", path)


class _FileNode:
    __slots__ = ("data", "history", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.history = FileHistory()
        self.modified_ms = modified_ms  # unchanged by a power cut: it reaches the disk with the length


class _DirectoryNode:
    __slots__ = ("history",)

    def __init__(self) -> None:
        self.history: NameHistory[_Node] = NameHistory()

    @property
    def names(self) -> dict[str, _Node]:
        return self.history.names


_Node: TypeAlias = _FileNode | _DirectoryNode


class _MemoryFile(File):
    def __init__(self, storage: MemoryStorage, node: _FileNode, path: str, *, read_only: bool) -> None:
        self._storage = storage
        self._node: _FileNode = node
        self._path = path
        self._read_only = read_only
        self._generation = storage.generation
        self._closed = False

    def _begin(self, operation: str, size: int = 0) -> _FileNode:
        fault = self._fault(operation, size)
        if fault is not None:
            raise fault.error(self._path)
        return self._node

    def _fault(self, operation: str, size: int = 0) -> DiskFault | None:
        if self._closed:
            raise OSError(errno.EBADF, "the file was closed", self._path)
        if self._generation != self._storage.generation:
            raise OSError(errno.EIO, "the process that opened this file is dead", self._path)
        return self._storage.strike(operation, self._path, size)

    def read_at(self, offset: int, size: int) -> bytes:
        node = self._begin("read", size)
        return bytes(memoryview(node.data)[offset : offset + size])

    def write_at(self, offset: int, *buffers: Buffer) -> int:
        if self._read_only:
            raise OSError(errno.EBADF, "the file was opened for reading only", self._path)
        content: Buffer = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        node = self._node
        fault = self._fault("write", len(content))
        if fault is not None:
            self._put(node, offset, memoryview(content)[: fault.partial])
            raise fault.error(self._path)
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
        if not len(content):
            return
        node.modified_ms = self._storage.wall_ms()
        if self._storage.crashable:
            node.history.written(data, offset, bytes(content))
        if offset > old_size:
            resize(data, offset)
        if offset == len(data):
            data += content  # a slice assignment would copy twice
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
        room = self._storage.room()
        if room is not None and size - old_size > room:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk", self._path)
        node.modified_ms = self._storage.wall_ms()
        if self._storage.crashable:
            node.history.resized(node.data, size)
        resize(node.data, size)
        self._storage.grew(size - old_size)

    def sync(self) -> None:
        node = self._node
        fault = self._fault("sync")
        if fault is not None:
            node.history.sync_failed(node.data, fault.pages)
            raise fault.error(self._path)
        node.history.synced()

    def close(self) -> None:
        self._closed = True


class MemoryStorage(Storage):
    """A file system in memory.

    Args:
        crashable: remember unsynced changes, so that `crash` can lose them. Costs a copy of all unsynced bytes; turn it
            off where nothing will crash.
        capacity: bytes that all files together may hold; a write beyond it is cut there and raises ``ENOSPC``. None
            for no limit. May be changed at any time.
        page_bytes: the disk's page size, for `crash`. A test with small files uses small pages.

    ``before_operation``, when set, is called with operation, path and number of bytes before everything that the disk
    does; it may raise `OSError`, inject a fault for this operation, count, trace, or move a virtual clock to make the
    disk slow. ``wall_ms`` is the clock for `modified_ms`: the operating system's until it is set to another.
    """

    def __init__(self, *, crashable: bool = True, capacity: int | None = None, page_bytes: int = PAGE_BYTES) -> None:
        self.crashable: Final = crashable
        self.capacity = capacity
        self._page_bytes: Final = page_bytes
        self.generation = 0
        self.faults: list[DiskFault] = []
        self.before_operation: Callable[[str, str, int], None] | None = None
        self.wall_ms: Callable[[], int] = wall_ms
        self._root = _DirectoryNode()
        self.used = 0
        """Bytes in all files."""
        self._locks: set[str] = set()

    # -- faults and crashes

    def strike(self, operation: str, path: str, size: int) -> DiskFault | None:
        """Call the hook, and return the injected fault for this operation, if any."""
        if self.before_operation is not None:
            self.before_operation(operation, path, size)
        for fault in self.faults:
            if fault.takes(operation, path):
                return fault
        return None

    def _before(self, operation: str, path: str) -> None:
        fault = self.strike(operation, path, 0)
        if fault is not None:
            raise fault.error(path)

    def inject(self, fault: DiskFault) -> Callable[[], None]:
        """Add ``fault`` and return the function that removes it."""
        self.faults.append(fault)
        return lambda: self.faults.remove(fault) if fault in self.faults else None

    def room(self) -> int | None:
        """Bytes left, None when there is no limit."""
        return None if self.capacity is None else max(0, self.capacity - self.used)

    def grew(self, size: int) -> None:
        """Account for ``size`` more (or fewer) bytes in files."""
        self.used += size

    def kill(self) -> None:
        """Simulate the death of the process: open files are dead, locks are free, all written data stays."""
        self.generation += 1
        self._locks.clear()

    def crash(self, random: Random, *, tear: bool = True) -> None:
        """Simulate a power cut: only synced changes are sure to survive.

        Without ``tear`` exactly those survive. With it, some of the rest may survive as well, in pieces and in any
        order, as `triokafka.world.power_cut` says. Open files are dead, locks are free.

        Args:
            random: the source of all choices; the same state gives the same result.
        """
        if not self.crashable:
            raise IllegalStateError("this storage has crashable=False, so it does not know which changes were synced")
        self.kill()
        self.used = self._crash(self._root, random if tear else None)

    def _crash(self, node: _Node, random: Random | None) -> int:
        """Return the number of bytes left in files."""
        if isinstance(node, _FileNode):
            node.data = node.history.remains(node.data, random, self._page_bytes)
            node.history.settled()
            return len(node.data)
        node.history.crash(random)
        return sum(self._crash(node.names[name], random) for name in sorted(node.names))

    # -- the tree

    def _node(self, path: str) -> _Node | None:
        node: _Node | None = self._root
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

    def open(self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False) -> File:
        self._before("open", path)
        node = self._node(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = _FileNode(self.wall_ms())
            parent, name = _parent_and_name(path)
            self._directory(parent).history.change({name: node}, tracked=self.crashable)
        if isinstance(node, _DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return _MemoryFile(self, node, path, read_only=read_only)

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._node(path), _DirectoryNode)

    def list_dir(self, path: str) -> list[str]:
        self._before("list", path)
        return sorted(self._directory(path).names)

    def make_dirs(self, path: str) -> None:
        self._before("make_dirs", path)
        node = self._root
        for name in _split(path):
            child = node.names.get(name)
            if child is None:
                child = _DirectoryNode()
                node.history.change({name: child}, tracked=self.crashable)
            if not isinstance(child, _DirectoryNode):
                raise FileExistsError(errno.EEXIST, "a file is in the way", path)
            node = child

    def rename(self, source: str, target: str) -> None:
        self._before("rename", source)
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
            destination.history.change({source_name: None, target_name: node}, tracked=self.crashable)
        else:
            destination.history.change({target_name: node}, tracked=self.crashable)
            self._directory(source_parent).history.change({source_name: None}, tracked=self.crashable)
        if replaced is not None:
            self.used -= _tree_size(replaced)

    def remove(self, path: str) -> None:
        self._before("remove", path)
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, _DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        parent, name = _parent_and_name(path)
        self._directory(parent).history.change({name: None}, tracked=self.crashable)
        self.used -= len(node.data)

    def remove_tree(self, path: str) -> None:
        self._before("remove", path)
        node = self._node(path)
        if node is not None and _split(path):
            parent, name = _parent_and_name(path)
            self._directory(parent).history.change({name: None}, tracked=self.crashable)
            self.used -= _tree_size(node)

    def modified_ms(self, path: str) -> int:
        self._before("size", path)
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, at_ms: int) -> None:
        self._file(path).modified_ms = at_ms

    def _file(self, path: str) -> _FileNode:
        node = self._node(path)
        if not isinstance(node, _FileNode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def sync_dir(self, path: str) -> None:
        self._before("sync_dir", path)
        self._directory(path).history.synced()

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


def _tree_size(node: _Node) -> int:
    if isinstance(node, _FileNode):
        return len(node.data)
    return sum(_tree_size(child) for child in node.names.values())
