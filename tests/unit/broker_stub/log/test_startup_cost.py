"""Reads of a start: after a clean stop nothing that grows with the data, after a crash only unflushed data.

Counted in bytes at the storage door, so that it does not depend on the machine.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.broker_stub.log.builders import NOW, append, batch, from_producer
from tests.unit.broker_stub.log.test_log_manager import DiskWorld
from triokafka.broker_stub.log import LogConfig, LogManager, PartitionLog
from triokafka.records import encode_batch, patch_batch
from triokafka.structs import TopicPartition
from triokafka.world import File
from triokafka.world.os_storage import OsStorage
from triokafka.world.system import RealWorld

MIB = 1 << 20
PER_LOG = 24_000  # bytes: a window at the end of the active segment, a stretch between two index entries, small files
CONFIG = LogConfig(segment_bytes=8 * MIB, retention_ms=-1)


def manager(world: RealWorld, directory: str = "/data") -> LogManager:
    return LogManager(world, (directory,), CONFIG)


def filled(world: DiskWorld, log_count: int, mebibytes: int, record_bytes: int) -> LogManager:
    """Logs of so many MiB each, flushed and checkpointed."""
    logs = manager(world)
    logs.start()
    for number in range(log_count):
        log = logs.create(TopicPartition("t", number))
        for sequence in range(mebibytes * 16):
            records = [bytes(record_bytes)] * (MIB // 16 // record_bytes)
            append(log, from_producer(*records, sequence=sequence * len(records), timestamp=NOW + sequence))
        log.flush()
    logs.checkpoint()
    return logs


@contextmanager
def bytes_read(world: DiskWorld) -> Iterator[list[int]]:
    sizes: list[int] = []

    def count(operation: str, path: str, size: int) -> None:
        if operation == "read":
            sizes.append(size)

    world.storage.before_operation = count
    yield sizes
    world.storage.before_operation = None


@pytest.mark.parametrize("record_bytes", [64, 8_192])
async def test_a_start_after_a_clean_stop_reads_the_same_however_much_there_is(record_bytes: int) -> None:
    read = []
    for mebibytes in (1, 20):
        world = DiskWorld()
        await filled(world, 3, mebibytes, record_bytes).close()
        with bytes_read(world) as sizes:
            manager(world).start()
        read.append(sum(sizes))
        assert sum(sizes) < 3 * PER_LOG
    assert abs(read[1] - read[0]) < PER_LOG


@pytest.mark.parametrize("mebibytes", [1, 20])
def test_start_after_a_crash_reads_only_unflushed_batches(mebibytes: int) -> None:
    """Also what producers have written before is known without reading it again."""
    world = DiskWorld()
    logs = filled(world, 2, mebibytes, 1_024)
    for log in logs.all().values():
        for _ in range(10):
            append(log, batch(bytes(50_000)))
    world.storage.kill()
    with bytes_read(world) as sizes:
        again = manager(world)
        again.start()
    assert sum(sizes) < 2 * (10 * 50_200 + 2 * PER_LOG)
    for log in again.all().values():
        assert log.log_end_offset == mebibytes * 1024 + 10
        state = log.producers.get(9)
        assert state is not None
        assert state.last_sequence == mebibytes * 1024 - 1


class _CountedStorage(OsStorage):
    """The disk; counts the bytes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False) -> File:
        file = super().open(path, create=create, read_only=read_only)
        read_at = file.read_at

        def counted(offset: int, size: int) -> bytes:
            data = read_at(offset, size)
            self.read += len(data)
            return data

        file.read_at = counted  # type: ignore[method-assign]
        return file


@pytest.mark.long
@pytest.mark.parametrize("clean", [True, False])
async def test_a_thousand_logs_with_ten_gigabytes(tmp_path: Path, clean: bool) -> None:
    """Segments are sparse files: batches whose records are one long value of zeros."""
    world = RealWorld()
    storage = world.storage = _CountedStorage()
    log_count, batch_count = 1_000, 10
    logs = manager(world, str(tmp_path))
    logs.start()
    model = logs.create(TopicPartition("t", 0))
    data = bytes(encode_batch([(NOW, b"k", bytes(MIB - 200), ())]))
    for _ in range(batch_count):
        append(model, data)
    await logs.close()
    template = {path.name: _blocks(path.read_bytes()) for path in (tmp_path / "t-0").iterdir()}
    for number in range(1, log_count):
        _write_sparse(template, tmp_path / f"t-{number}")
    points = [f"t {number} {model.log_end_offset}" for number in range(log_count)]
    (tmp_path / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(log_count), *points, ""]))
    tail = 0
    if not clean:
        os.unlink(tmp_path / ".kafka_cleanshutdown")
        for number in range(log_count):
            tail += _append_behind_its_back(tmp_path / f"t-{number}", model, batch(bytes(10_000)))
    storage.read = 0
    again = manager(world, str(tmp_path))
    began = time.perf_counter()
    again.lock()
    await again.load()
    seconds = time.perf_counter() - began
    total = sum(log.size for log in again.all().values())
    print(
        f"\n{len(again.all())} logs with {total / 1e9:.1f} GB, {'clean' if clean else 'unclean'} stop: "
        f"{seconds:.2f} s, {storage.read / 1e6:.1f} MB read, {tail / 1e6:.1f} MB of it not flushed"
    )
    assert total >= log_count * batch_count * (MIB - 200)
    assert storage.read < tail + log_count * 2 * PER_LOG
    assert all(log.log_end_offset == batch_count + (not clean) for log in again.all().values())
    await again.close()


def _blocks(content: bytes) -> tuple[int, dict[int, bytes]]:
    """The size of a file, and those of its blocks that are not all zeros."""
    blocks = {start: content[start : start + 4096] for start in range(0, len(content), 4096)}
    return len(content), {start: block for start, block in blocks.items() if block.strip(b"\0")}


def _write_sparse(files: dict[str, tuple[int, dict[int, bytes]]], folder: Path) -> None:
    folder.mkdir()
    for name, (size, blocks) in files.items():
        with (folder / name).open("wb") as file:
            for start, block in blocks.items():
                file.seek(start)
                file.write(block)
            file.truncate(size)


def _append_behind_its_back(folder: Path, log: PartitionLog, data: bytearray) -> int:
    """Write one more batch, as a broker would have that died afterwards."""
    patch_batch(data, 0, base_offset=log.log_end_offset, leader_epoch=0)
    path = folder / log.active_segment.file.path(".log").rpartition("/")[2]
    assert struct.unpack_from(">q", data) == (log.log_end_offset,)
    with path.open("ab") as file:
        file.write(data)
    return len(data)
