"""A world whose clock can be put forward, whose connections can stand still, and whose disk can be full.

`FaultyWorld` goes around any other world, real or simulated, and does nothing of its own until it is told to.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import trio

from triokafka.structs import Buffer
from triokafka.world import File, FileSlice, Listener, Storage, Stream, World
from triokafka.world.system import RealWorld

T = TypeVar("T")

_LARGEST_SHIFT_MS: Final = 1_000 * 365 * 24 * 3_600_000
"""Dates of more than four digits are beyond most programs that look at timestamps."""


@dataclass(slots=True)
class _Shared:
    """What worlds beside each other have in common."""

    shift_ms: int = 0
    disk_room: int | None = None


class FaultyWorld(World):
    """Another world, with faults that can be switched on. ``is_real`` tells whether that is the operating system."""

    def __init__(self, world: World, *, shared: _Shared | None = None) -> None:
        self.random = world.random
        self.cpus = world.cpus
        self.is_real = isinstance(world, RealWorld)
        self._world = world
        self._shared = _Shared() if shared is None else shared
        self.storage = _FillableStorage(self._shared, world.storage)
        self._flowing = trio.Event()
        self._flowing.set()
        self.epoch = 0
        """Counts the calls of `half_open`; a connection of an earlier epoch is half-open."""

    # Faults

    def beside(self) -> FaultyWorld:
        """A world with the same clock and the same disk, which freezes on its own."""
        return FaultyWorld(self._world, shared=self._shared)

    @property
    def disk_room(self) -> int | None:
        """How many bytes files may still grow by; None for as many as the storage itself takes."""
        return self._shared.disk_room

    @disk_room.setter
    def disk_room(self, free_bytes: int | None) -> None:
        self._shared.disk_room = free_bytes

    def put_clock_forward(self, ms: int) -> None:
        """Let both clocks show ``ms`` more milliseconds. Tasks that wait on them must be told."""
        if ms < 0:
            raise ValueError(f"a clock can only be put forward, not by {ms} ms")
        if self._shared.shift_ms + ms > _LARGEST_SHIFT_MS:
            raise ValueError(f"a clock can be put forward by a thousand years in all, not by {ms} ms")
        self._shared.shift_ms += ms

    @property
    def is_frozen(self) -> bool:
        """Whether connections stand still."""
        return not self._flowing.is_set()

    def freeze(self) -> None:
        """From now on nothing is accepted, received or sent, as if the process had been stopped with SIGSTOP."""
        if self._flowing.is_set():
            self._flowing = trio.Event()

    def thaw(self) -> None:
        """End what `freeze` began; what was held back goes on."""
        self._flowing.set()

    def half_open(self) -> None:
        """Let the connections that exist now lose everything, in both directions and for good.

        Neither end hears of it: there is no reset, writing succeeds, and no end arrives. New connections work.
        """
        self.epoch += 1

    async def wait_flowing(self) -> None:
        """Wait while frozen."""
        while not self._flowing.is_set():
            await self._flowing.wait()

    # The world

    def now(self) -> float:
        return self._world.now() + self._shared.shift_ms / 1000

    def wall_ms(self) -> int:
        return self._world.wall_ms() + self._shared.shift_ms

    def deadline(self, at: float) -> float:
        return self._world.deadline(at - self._shared.shift_ms / 1000)

    def random_bytes(self, size: int) -> bytes:
        return self._world.random_bytes(size)

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        return await self._world.resolve(host, port)

    async def canonical_name(self, address: str) -> str:
        return await self._world.canonical_name(address)

    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> Stream:
        stream = await self._world.connect(
            host, port, send_buffer_bytes=send_buffer_bytes, receive_buffer_bytes=receive_buffer_bytes
        )
        return _FreezableStream(self, stream)

    async def listen(
        self,
        host: str,
        port: int,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = 1024,
    ) -> Listener:
        listener = await self._world.listen(
            host,
            port,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
            backlog=backlog,
        )
        return _FreezableListener(self, listener)

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await self._world.run_in_thread(function, *args)

    async def run_in_abandonable_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await self._world.run_in_abandonable_thread(function, *args)

    def raise_file_limit(self) -> int:
        return self._world.raise_file_limit()


class _FreezableStream(Stream):
    """A connection that stands still while its world is frozen."""

    def __init__(self, world: FaultyWorld, stream: Stream) -> None:
        self._world = world
        self._stream = stream
        self._closed = False
        self._ended = trio.Event()
        self._epoch = world.epoch

    @property
    def _is_lost(self) -> bool:
        return self._epoch < self._world.epoch

    async def send(self, *buffers: Buffer) -> None:
        if self._world.is_frozen:
            await self._thawed()
        if self._is_lost:
            await trio.lowlevel.checkpoint()
            return
        await self._stream.send(*buffers)

    async def send_parts(self, parts: Sequence[Buffer | FileSlice]) -> None:
        if self._world.is_frozen:
            await self._thawed()
        if self._is_lost:
            await trio.lowlevel.checkpoint()
            return
        await self._stream.send_parts(parts)

    def try_send(self, *buffers: Buffer) -> int:
        if self._world.is_frozen:
            return 0
        return sum(map(len, buffers)) if self._is_lost else self._stream.try_send(*buffers)

    async def receive_into(self, buffer: memoryview) -> int:
        try:
            size = await self._stream.receive_into(buffer)
        except OSError:
            if not self._is_lost:
                raise
        finally:
            self.waits = self._stream.waits
        if self._is_lost:
            await self._ended.wait()
            raise trio.ClosedResourceError("this connection was closed here")
        if self._world.is_frozen:
            await self._thawed()
        return size

    def expect(self, size: int, *, at_once: int) -> None:
        self._stream.expect(size, at_once=at_once)

    def limit_silence(self, seconds: float) -> None:
        self._stream.limit_silence(seconds)

    def bytes_drained(self) -> int:
        return self._stream.bytes_drained()

    async def _thawed(self) -> None:
        await self._world.wait_flowing()
        if self._closed:
            raise trio.ClosedResourceError("this connection was closed here")

    def close(self) -> None:
        self._closed = True
        self._ended.set()
        self._stream.close()

    @property
    def peer_address(self) -> tuple[str, int]:
        return self._stream.peer_address

    @property
    def local_address(self) -> tuple[str, int]:
        return self._stream.local_address


class _FreezableListener(Listener):
    """While the world is frozen, who connects waits in the backlog."""

    def __init__(self, world: FaultyWorld, listener: Listener) -> None:
        self._world = world
        self._listener = listener

    async def accept(self) -> Stream:
        stream = await self._listener.accept()
        if self._world.is_frozen:
            try:
                await self._world.wait_flowing()
            except trio.Cancelled:
                stream.close()
                raise
        return _FreezableStream(self._world, stream)

    def close(self) -> None:
        self._listener.close()

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address


class _FillableStorage(Storage):
    """A storage whose files may not grow beyond what the world leaves them."""

    def __init__(self, shared: _Shared, storage: Storage) -> None:
        self._shared = shared
        self._storage = storage

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        file = self._storage.open(path, create=create, read_only=read_only)
        return file if read_only else _FillableFile(self._shared, file, path)

    def exists(self, path: str) -> bool:
        return self._storage.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._storage.is_dir(path)

    def list_dir(self, path: str) -> list[str]:
        return self._storage.list_dir(path)

    def make_dirs(self, path: str) -> None:
        self._storage.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self._storage.rename(source, target)

    def remove(self, path: str) -> None:
        self._storage.remove(path)

    def remove_tree(self, path: str) -> None:
        self._storage.remove_tree(path)

    def modified_ms(self, path: str) -> int:
        return self._storage.modified_ms(path)

    def set_modified_ms(self, path: str, at_ms: int) -> None:
        self._storage.set_modified_ms(path, at_ms)

    def sync_dir(self, path: str) -> None:
        self._storage.sync_dir(path)

    def lock(self, path: str) -> Callable[[], None]:
        return self._storage.lock(path)

    def space(self, path: str) -> tuple[int, int]:
        total, free = self._storage.space(path)
        return total, free if self._shared.disk_room is None else self._shared.disk_room


class _FillableFile(File):
    def __init__(self, shared: _Shared, file: File, path: str) -> None:
        self._shared = shared
        self._file = file
        self._path = path

    def _grow_to(self, size: int) -> None:
        room = self._shared.disk_room
        if room is None:
            return
        growth = max(size - self._file.size(), 0)
        if growth > room:
            raise OSError(errno.ENOSPC, "no space left on the device: the test has filled it", self._path)
        self._shared.disk_room = room - growth

    def write_at(self, offset: int, *buffers: Buffer) -> int:
        if self._shared.disk_room is not None:
            self._grow_to(offset + sum(memoryview(buffer).nbytes for buffer in buffers))
        return self._file.write_at(offset, *buffers)

    def truncate(self, size: int) -> None:
        self._grow_to(size)
        self._file.truncate(size)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def view(self, offset: int, size: int) -> memoryview | bytes:
        return self._file.view(offset, size)

    def slice(self, offset: int, size: int) -> Buffer | FileSlice:
        return self._file.slice(offset, size)

    def read_resident(self, offset: int, size: int) -> bytes | None:
        return self._file.read_resident(offset, size)

    def warmer(self, offset: int, size: int) -> Callable[[], object]:
        return self._file.warmer(offset, size)

    @property
    def in_use(self) -> bool:
        return self._file.in_use

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()
