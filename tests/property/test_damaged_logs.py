"""A broker starts with any damage to the files of a data directory.

Files are cut, lengthened, emptied, removed, renamed, or overwritten in places. A log may then be offline, or end
earlier; but no unexpected error is raised, no record is invented, and the other logs work.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from tests.crashing.machine import DiskWorld
from triokafka.broker_stub.log import LogConfig, LogManager, PartitionLog
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.log.log_manager_config import LogManagerConfig
from triokafka.errors import BrokerResponseError, ConfigurationError, KafkaStorageError
from triokafka.records import decode_records, encode_batch, iter_batches
from triokafka.structs import TopicPartition
from triokafka.world import Storage
from triokafka.world.memory import MemoryStorage

RUNS = 200
NOW = 1_700_000_000_000
DIRECTORIES = ["/data/a", "/data/b"]
PLAIN, COMPACTED = TopicPartition("plain", 0), TopicPartition("compacted", 1)
CONFIGS = {
    PLAIN: LogConfig(segment_bytes=900, index_interval_bytes=100, retention_ms=-1),
    COMPACTED: LogConfig(
        segment_bytes=900,
        index_interval_bytes=100,
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.0,
        retention_ms=-1,
    ),
}
_EXPECTED = (BrokerResponseError, OSError)  # errors that request handlers turn into responses

Record = tuple[bytes | None, bytes | None]  # key and value

pytestmark = pytest.mark.usefixtures("quiet_log")


def test_a_broker_starts_with_any_damage_to_its_files() -> None:
    for seed in range(RUNS):
        run(seed)


def run(seed: int) -> None:
    choices = random.Random(f"{seed}/damage")
    clean, lately = choices.random() < 0.5, choices.random() < 0.5
    files, records = directories(clean=clean, cleaned=lately)
    disk = MemoryStorage()
    put_files(disk, files)
    done = [damage(disk, sorted(files), choices) for _ in range(choices.choice((1, 1, 2, 4)))]
    if choices.random() < 0.3:
        done.append(damage_folder(disk, choices))
    world = DiskWorld(disk, choices)
    try:
        check(world, choices, records)
    except Exception as error:
        raise AssertionError(f"seed {seed}, clean={clean}, cleaned={lately}: {done}: {error!r}") from error


def check(world: DiskWorld, choices: random.Random, known: dict[TopicPartition, set[Record]]) -> None:
    for _ in range(2):
        logs = LogManager(world, DIRECTORIES, CONFIGS[PLAIN], LogManagerConfig(initial_task_delay_ms=0))
        cleaner = LogCleaner(world, logs)
        try:
            logs.start(lambda topic: {"cleanup.policy": "compact"} if topic == "compacted" else {})
        except ConfigurationError as error:
            assert "two data directories" in str(error)
            return
        for tp, config in CONFIGS.items():
            try:
                log = logs.create(tp, UUID(int=tp.partition), config)
            except KafkaStorageError:
                continue
            read_like_clients(log, known[tp])
            number = log.log_end_offset
            value = b"after %d" % choices.randrange(10**9)
            data = bytearray().join(encode_batch([(NOW, b"k", value + bytes(20 * i), ())]) for i in range(6))
            try:
                log.append_as_leader(data, leader_epoch=9, now_ms=NOW, from_client=False)
            except _EXPECTED:
                continue
            assert log.log_end_offset == number + 6
            known[tp] |= {(b"k", value + bytes(20 * i)) for i in range(6)}
            read_like_clients(log, known[tp])
        trio.run(_until_it_rests, logs, clock=trio.testing.MockClock())
        trio.run(_clean, cleaner, clock=trio.testing.MockClock())
        for tp in CONFIGS:
            log_ = logs.get(tp)
            if log_ is not None:
                read_like_clients(log_, known[tp])
        if choices.random() < 0.5:
            trio.run(logs.close)
        world.storage.kill()


def read_like_clients(log: PartitionLog, known: set[Record]) -> None:
    """Read the log as clients do."""
    start, end = log.log_start_offset, log.log_end_offset
    assert 0 <= start <= log.last_stable_offset(end) <= end
    assert log.recovery_point <= end
    offset = start
    while offset < end:
        try:
            data = log.read(offset, 300).records
            before = offset
            for batch in iter_batches(data, check_crc=True):
                found = decode_records(memoryview(data)[batch.position : batch.end], from_offset=offset)
                invented = {(r.key, r.value) for r in found} - known  # no checksum covers the offset
                assert not invented, f"never written: {sorted(invented, key=repr)[:3]}"
                offset = max(offset, batch.next_offset)  # a repeated part of the log may move back
            if offset == before:
                break
        except _EXPECTED:
            break
    for look_up in (
        lambda: log.offset_for_timestamp(NOW + 500, end),
        lambda: log.offset_of_max_timestamp(end),
        lambda: log.aborted_transactions(start, end),
        lambda: log.leader_epochs.end_offset_for(1, end),
        lambda: log.bytes_between(start, end, 10**6),
    ):
        try:
            look_up()
        except _EXPECTED:
            pass


async def _until_it_rests(logs: LogManager) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def _clean(cleaner: LogCleaner) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaner.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


# The state before the damage


@cache
def _directories(clean: bool, cleaned: bool) -> tuple[dict[str, bytes], dict[TopicPartition, frozenset[Record]]]:
    """Return the files of a broker with every kind of data, and every record that was ever written."""
    choices = random.Random(7)
    world = DiskWorld(MemoryStorage(), choices)
    logs = LogManager(world, DIRECTORIES, CONFIGS[PLAIN])
    cleaner = LogCleaner(world, logs)
    logs.start()
    records: dict[TopicPartition, set[Record]] = {}
    for tp, config in CONFIGS.items():
        log = logs.create(tp, UUID(int=tp.partition), config)
        records[tp] = set()
        sequence = 0
        for number in range(50):
            count = choices.choice((1, 1, 3))
            made = [
                (
                    NOW + number * 20 + i,
                    b"k%d" % choices.randrange(8),
                    choices.choice((b"v%d.%d" % (number, i), None)),
                    (),
                )
                for i in range(count)
            ]
            options: dict[str, Any] = {"compression": choices.choice(("none", "gzip"))}
            if number % 3 == 1:
                options.update(producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)
                sequence += count
            data = bytearray(encode_batch(made, **options))
            log.append_as_leader(data, leader_epoch=number // 20, now_ms=NOW)
            records[tp] |= {(key, value) for _, key, value, _ in made}
            if number % 12 == 10:
                log.append_as_leader(
                    _marker(bool(number % 24 == 10)), leader_epoch=number // 20, now_ms=NOW, from_client=False
                )
            if number == 35:
                log.flush()
        log.advance_log_start_offset(5)
    logs.checkpoint()
    if cleaned:
        trio.run(_clean, cleaner, clock=trio.testing.MockClock())
    logs.checkpoint_high_watermarks({tp: log.log_end_offset for tp, log in logs.all().items()})
    if clean:
        trio.run(logs.close)
    return dict(_files(world.storage, "/data")), {tp: frozenset(known) for tp, known in records.items()}


def directories(*, clean: bool, cleaned: bool) -> tuple[dict[str, bytes], dict[TopicPartition, set[Record]]]:
    files, records = _directories(clean, cleaned)
    return files, {tp: set(known) for tp, known in records.items()}


def _marker(commit: bool) -> bytearray:
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 1)
    options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1, "transactional": True, "control": True}
    return bytearray(encode_batch([(NOW, key, value, ())], **options))  # type: ignore[arg-type]


def _files(storage: Storage, path: str) -> Iterator[tuple[str, bytes]]:
    for name in storage.list_dir(path):
        child = f"{path}/{name}"
        if storage.is_dir(child):
            yield from _files(storage, child)
        else:
            yield child, storage.read_file(child)


def put_files(storage: Storage, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        storage.make_dirs(path.rpartition("/")[0])
        file = storage.open(path, create=True)
        file.write_at(0, content)
        file.close()


def damage(storage: Storage, paths: list[str], choices: random.Random) -> str:
    """Damage one of the files; return a description."""
    path = choices.choice([path for path in paths if storage.exists(path)])
    size = len(storage.read_file(path))
    kind = choices.choice(("flip", "zero", "random", "cut", "extend", "extend", "empty", "remove", "rename", "copy"))
    at = choices.randrange(size + 1)
    length = min(size - at, choices.choice((1, 4, 8, 60, 400)))
    file = storage.open(path)
    if kind == "flip" and length:
        old = file.read_at(at, 1)
        file.write_at(at, bytes([old[0] ^ 1 << choices.randrange(8)]))
    elif kind == "zero":
        file.write_at(at, bytes(length))
    elif kind == "random":
        file.write_at(at, choices.randbytes(length))
    elif kind == "cut":
        file.truncate(at)
    elif kind == "extend":
        more = choices.choice(
            (bytes(100), choices.randbytes(50), storage.read_file(path)[: choices.randrange(size + 1)])
        )
        file.write_at(size, more)
    elif kind == "empty":
        file.truncate(0)
    file.close()
    if kind == "remove":
        storage.remove(path)
    elif kind in ("rename", "copy"):
        directory = path.rpartition("/")[0]
        number = choices.choice((0, 3, 17, 10**9, 2**62))
        ends = [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.swap", ".index.swap", ".log.cleaned"]
        target = f"{directory}/{number:020d}{choices.choice(ends)}"
        kind = f"{kind} to {target}"
        if kind.startswith("rename"):
            storage.rename(path, target)
        else:
            put_files(storage, {target: storage.read_file(path)})
    return f"{path}: {kind} at {at} ({length})"


def damage_folder(storage: Storage, choices: random.Random) -> str:
    """Damage the folder of a log, or create another one beside it; return a description."""
    folder = choices.choice(("/data/a/plain-0", "/data/b/compacted-1"))
    name = folder.rpartition("/")[2]
    kind = choices.choice(("move", "copy", "file", "inside", "beside"))
    names = (name, f"{name}.x-future", f"{name}.x-delete", f"{name}.x-stray", "plain-00", "-0", "plain--1", "x-future")
    target = f"{choices.choice(DIRECTORIES)}/{choices.choice(names)}"
    if not storage.is_dir(folder):
        return "nothing"
    if choices.random() < 0.3:
        put_files(storage, {f"{folder}/moved-here": name.encode()[: choices.choice((0, 3, 99))]})
    if kind in ("move", "copy") and not storage.exists(target):
        put_files(storage, {target + path.removeprefix(folder): data for path, data in _files(storage, folder)})
    if kind == "move" and target != folder:
        storage.remove_tree(folder)
    elif kind == "file":
        storage.remove_tree(folder)
        put_files(storage, {folder: b"not a folder"})
    elif kind == "inside":
        ends = (f"{50:020d}.log", f"{0:020d}.index", f"{7:020d}.log.swap", f"{99:020d}.snapshot", "x.tmp")
        path = f"{folder}/{choices.choice(ends)}"
        if not storage.exists(path):
            storage.make_dirs(path)
    elif kind == "beside":
        storage.make_dirs(target)
    return f"{folder}: {kind} {target}"
