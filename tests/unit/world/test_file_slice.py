"""Slices of files that are sent to a socket."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from triokafka.structs import Buffer
from triokafka.world import File, FileSlice, Stream
from triokafka.world.memory import MemoryStorage
from triokafka.world.system import RealWorld

MIB = 1 << 20


def content(size: int) -> bytes:
    """Bytes in which no part repeats."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4))


def opened(path: Path, data: bytes) -> File:
    """A file with these bytes."""
    file = RealWorld().storage.open(str(path), create=True)
    file.write_at(0, data)
    return file


def sliced(file: File, offset: int, size: int) -> FileSlice:
    """A slice of a real file."""
    part = file.slice(offset, size)
    assert isinstance(part, FileSlice)
    return part


async def connected() -> tuple[Stream, Stream]:
    """Both ends of a connection."""
    world = RealWorld()
    listener = await world.listen("127.0.0.1", 0)
    near = await world.connect(*listener.address)
    far = await listener.accept()
    listener.close()
    return near, far


async def received(stream: Stream, size: int) -> bytes:
    """As many bytes, or fewer when the connection ends."""
    data = bytearray(size)
    got = 0
    while got < size and (more := await stream.receive_into(memoryview(data)[got:])):
        got += more
    return bytes(data[:got])


def evict(path: Path) -> None:
    """Evict a file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@pytest.mark.parametrize("cold", [False, True])
async def test_parts_arrive_in_their_order_whether_from_memory_or_from_files(tmp_path: Path, cold: bool) -> None:
    """They are larger than a socket's buffer, and their pages are cached or not."""
    data = content(6 * MIB)
    file = opened(tmp_path / "log", data)
    if cold:
        evict(tmp_path / "log")
    near, far = await connected()
    parts: list[Buffer | FileSlice] = [
        b"head",
        sliced(file, 5, 5 * MIB),
        b"middle",
        sliced(file, 17, 100),
        sliced(file, 0, 70_000),
        b"tail",
    ]
    expected = b"head" + data[5 : 5 + 5 * MIB] + b"middle" + data[17:117] + data[:70_000] + b"tail"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.send_parts, parts)
        assert await received(far, len(expected)) == expected
    near.close()
    far.close()


class Collecting(Stream):
    """A stream that can only send bytes."""

    peer_address = local_address = ("nowhere", 0)

    def __init__(self) -> None:
        self.sent = b""

    async def send(self, *buffers: Buffer) -> None:
        self.sent += b"".join(buffers)

    async def receive_into(self, buffer: memoryview) -> int:
        return 0

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("cold", [False, True])
async def test_stream_that_knows_no_files_gets_their_bytes(tmp_path: Path, cold: bool) -> None:
    """An encrypted one, for example."""
    data = content(MIB)
    file = opened(tmp_path / "log", data)
    if cold:
        evict(tmp_path / "log")
    stream = Collecting()
    await stream.send_parts([b"head", sliced(file, 10, 900_000), b"tail"])
    assert stream.sent == b"head" + data[10:900_010] + b"tail"


async def test_slice_keeps_its_bytes_when_its_owner_cuts_renames_removes_and_closes_the_file(tmp_path: Path) -> None:
    """Truncation and deletion do not change bytes that are being sent."""
    data = content(MIB)
    path = tmp_path / "log"
    file = opened(path, data)
    part, before = sliced(file, 100, 900_000), sliced(file, 0, 50)
    assert file.in_use
    file.truncate(200)
    file.write_at(200, b"other bytes in the place of those" * 1000)
    os.rename(path, tmp_path / "log.deleted")
    file.close()
    (tmp_path / "log.deleted").unlink()
    near, far = await connected()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(near.send_parts, [part, before])
        assert await received(far, 900_050) == data[100:900_100] + data[:50]
    near.close()
    far.close()


async def test_file_that_others_shortened_is_an_error_and_no_crash(tmp_path: Path) -> None:
    """The file is shortened before it is sliced, or while it is sent."""
    path = tmp_path / "log"
    file = opened(path, content(MIB))
    part = sliced(file, 0, MIB)
    os.truncate(path, 1000)
    with pytest.raises(OSError, match="ends at byte 1000"):
        file.slice(0, MIB)
    with pytest.raises(OSError, match="ends at byte 1000"):
        part.read()
    near, far = await connected()
    with pytest.raises(OSError, match="ends at byte 1000"):
        await near.send_parts([part])
    near.close()
    far.close()


def test_file_is_open_as_long_as_a_slice_of_it_is_there(tmp_path: Path) -> None:
    """It is closed with the last slice."""
    file = opened(tmp_path / "log", content(MIB))
    part = sliced(file, 0, 1000)
    file.close()
    assert part.read() == content(1000)
    numbers = set(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else set()
    del part
    if numbers:
        assert len(set(os.listdir("/proc/self/fd"))) == len(numbers) - 1
    with pytest.raises(OSError, match="closed"):
        file.read_at(0, 1)


async def test_connection_that_is_closed_while_it_is_sent_to_says_so(tmp_path: Path) -> None:
    """The sender does not keep waiting, and nothing is sent to the next owner of the socket's descriptor."""
    file = opened(tmp_path / "log", content(16 * MIB))
    near, far = await connected()

    async def send() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await near.send_parts([sliced(file, 0, 16 * MIB)])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        near.close()
    far.close()


async def test_resident_read_is_refused_until_the_pages_are_cached(tmp_path: Path) -> None:
    """The event loop does not wait for the disk."""
    data = content(MIB)
    file = opened(tmp_path / "log", data)
    assert file.read_resident(100, 50) == data[100:150]
    assert file.read_resident(MIB - 10, 50) == data[-10:]
    evict(tmp_path / "log")
    if file.read_resident(MIB // 2, 50) is None:  # a file system in memory has no cold pages
        file.warmer(MIB // 2, 50)()
    assert file.read_resident(MIB // 2, 50) == data[MIB // 2 : MIB // 2 + 50]


def test_storage_in_memory_has_the_same_doors() -> None:
    """Its slices are bytes, and every page of it counts as cached."""
    file = MemoryStorage().open("/log", create=True)
    file.write_at(0, b"0123456789")
    assert file.slice(2, 3) == b"234"
    assert file.read_resident(8, 5) == b"89"
    file.warmer(0, 5)()
    assert not file.in_use
    with pytest.raises(OSError, match="ends at byte 10"):
        file.slice(8, 5)
