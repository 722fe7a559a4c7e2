"""A broker with damaged metadata does not start and reports the remedy; folders of deleted topics are removed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import trio

from tests.unit.broker_stub.api.node import Node, batch, memory_world, running_node
from triokafka.broker_stub.controller.metadata_log_repair import repair_metadata
from triokafka.broker_stub.log.damage import DAMAGED_SUFFIX, DamagedLogError
from triokafka.errors import ConfigurationError, KafkaStorageError
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.records import iter_batches
from triokafka.world import World
from triokafka.world.memory import MemoryStorage

FOLDER = "/data/__cluster_metadata-0"
LOG = f"{FOLDER}/{0:020d}.log"
TOPICS = 8


def disk_of(world: World) -> MemoryStorage:
    assert isinstance(world.storage, MemoryStorage)
    return world.storage


async def stopped(*, clean: bool, snapshot: bool = False) -> World:
    """A world with topics t0, t1, …, each with a record, whose broker was stopped, or killed."""
    world = memory_world()
    async with running_node(world=world) as node:
        for number in range(TOPICS):
            await node.create(f"t{number}")
            assert (await node.produce(f"t{number}", batch(b"a"))).error_code == 0
            if snapshot and number == TOPICS // 2:
                await node.process.controller.take_snapshot()
        if not clean:
            await node.process.kill()
    if not clean:
        disk_of(world).kill()
    return world


def change(world: World, path: str, do: Callable[[bytearray], None]) -> None:
    disk = disk_of(world)
    content = bytearray(disk.read_file(path))
    do(content)
    file = disk.open(path)
    file.truncate(0)
    file.write_at(0, bytes(content))
    file.close()


def flip(position: int) -> Callable[[bytearray], None]:
    def do(content: bytearray) -> None:
        content[position] ^= 0x08

    return do


def places(world: World) -> list[int]:
    return [info.position for info in iter_batches(disk_of(world).read_file(LOG))]


async def topics(world: World) -> set[str]:
    async with running_node(world=world) as node:
        return set(node.broker.image.topics)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("at", [9, 20, 70])
async def test_flipped_bit_in_the_middle_keeps_the_broker_from_starting(clean: bool, at: int) -> None:
    """In the length, the checksum or the body; no topic is lost, and no folder is touched."""
    world = await stopped(clean=clean)
    before, folders = disk_of(world).read_file(LOG), disk_of(world).list_dir("/data")
    bad = places(world)[len(places(world)) // 2]
    change(world, LOG, flip(bad + at))
    with pytest.raises(DamagedLogError, match=rf"{LOG} is damaged at byte {bad}, .*triokafka log repair {FOLDER}"):
        await topics(world)
    assert {name for name in folders if name.startswith("t")} <= set(disk_of(world).list_dir("/data"))
    change(world, LOG, flip(bad + at))
    assert disk_of(world).read_file(LOG) == before
    assert len(await topics(world)) == TOPICS


async def test_torn_tail_is_cut_after_a_crash() -> None:
    world = await stopped(clean=False)
    last = places(world)[-1]
    change(world, LOG, lambda content: content.extend(content[last : last + 30]))
    assert len(await topics(world)) == TOPICS


@pytest.mark.parametrize("how", ["last batch", "within the last batch", "flip in the last batch", "all"])
async def test_after_a_clean_stop_a_shorter_log_is_damage(how: str) -> None:
    """Also where it ends with a whole batch: its end was written to the checkpoint of recovery points."""
    world = await stopped(clean=True)
    last = places(world)[-1]
    if how == "flip in the last batch":
        change(world, LOG, flip(last + 65))
    else:
        size = {"last batch": last, "within the last batch": last + 20, "all": 0}[how]
        disk_of(world).open(LOG).truncate(size)
    with pytest.raises(DamagedLogError, match="triokafka log repair"):
        await topics(world)


async def test_missing_metadata_log_file_is_damage() -> None:
    world = await stopped(clean=True)
    disk_of(world).remove(LOG)
    with pytest.raises(DamagedLogError):
        await topics(world)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("at", [3, 9, 13, 20, 70])
async def test_flipped_bit_below_the_newest_snapshot_loses_nothing(
    clean: bool, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = await stopped(clean=clean, snapshot=True)
    bad = places(world)[2]
    change(world, LOG, flip(bad + at))
    with caplog.at_level(logging.ERROR):
        assert len(await topics(world)) == TOPICS
    assert f"{LOG} is damaged at byte {bad}, " in caplog.text
    assert f"{LOG.rpartition('/')[2]}{DAMAGED_SUFFIX}" in disk_of(world).list_dir(FOLDER)
    caplog.clear()
    assert len(await topics(world)) == TOPICS
    assert not caplog.text


async def test_after_damage_below_the_newest_snapshot_another_one_is_taken() -> None:
    """Only the log after the old snapshot leads to the present state."""
    world = await stopped(clean=True, snapshot=True)
    change(world, LOG, flip(places(world)[2] + 70))
    async with running_node(world=world) as node:
        files = node.process.metadata.files
        with trio.fail_after(60):
            while len(files.snapshots.ids()) < 2:
                await trio.sleep(0.01)
    change(world, f"{FOLDER}/{files.snapshots.ids()[-1].file_name}", flip(90))
    assert len(await topics(world)) == TOPICS


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("at", [3, 13])
async def test_flipped_bit_in_offset_or_epoch_is_damage(clean: bool, at: int) -> None:
    """The checksum of a batch leaves them out."""
    world = await stopped(clean=clean)
    bad = places(world)[len(places(world)) // 2]
    change(world, LOG, flip(bad + at))
    with pytest.raises(DamagedLogError, match=rf"{LOG} is damaged at byte {bad}, .*triokafka log repair {FOLDER}"):
        await topics(world)
    (saved,) = repair_metadata(world.storage, FOLDER, now_ms=0).kept
    assert saved == f"{LOG}.{bad}{DAMAGED_SUFFIX}"
    assert 0 < len(await topics(world)) < TOPICS


@pytest.mark.parametrize("clean", [True, False])
async def test_repair_cuts_the_log_keeps_the_rest_aside_and_lets_the_broker_start(clean: bool) -> None:
    world = await stopped(clean=clean)
    content = disk_of(world).read_file(LOG)
    bad = places(world)[len(places(world)) // 2]
    change(world, LOG, flip(bad + 70))
    repaired = repair_metadata(world.storage, FOLDER + "/", now_ms=0)
    (saved,) = repaired.kept
    assert saved == f"{LOG}.{bad}{DAMAGED_SUFFIX}"
    assert len(disk_of(world).read_file(saved)) == len(content) - bad
    left = await topics(world)
    assert 0 < len(left) < TOPICS
    strays = [name for name in disk_of(world).list_dir("/data") if name.endswith("-stray")]
    assert len(strays) == TOPICS - len(left)


async def test_repair_continues_at_the_end_of_the_newest_snapshot() -> None:
    world = await stopped(clean=True, snapshot=True)
    disk_of(world).open(LOG).truncate(places(world)[3])
    with pytest.raises(DamagedLogError):
        await topics(world)
    repaired = repair_metadata(world.storage, FOLDER, now_ms=0)
    assert not repaired.kept
    assert await topics(world) == {f"t{number}" for number in range(TOPICS // 2 + 1)}


def test_repair_refuses_other_logs() -> None:
    with pytest.raises(ConfigurationError, match="is not a metadata log"):
        repair_metadata(MemoryStorage(), "/data/orders-0", now_ms=0)


async def test_repair_refuses_the_directory_of_a_running_broker() -> None:
    world = memory_world()
    async with running_node(world=world):
        with pytest.raises(ConfigurationError, match="in use by another broker"):
            repair_metadata(world.storage, FOLDER, now_ms=0)


async def test_damaged_snapshot_is_skipped_while_the_log_has_all(caplog: pytest.LogCaptureFixture) -> None:
    world = await stopped(clean=True, snapshot=True)
    name = max(name for name in disk_of(world).list_dir(FOLDER) if name.endswith(".checkpoint"))
    change(world, f"{FOLDER}/{name}", flip(90))
    with caplog.at_level(logging.WARNING):
        assert len(await topics(world)) == TOPICS
    assert name in caplog.text


async def test_snapshot_of_another_name_does_not_hide_the_log() -> None:
    world = await stopped(clean=True, snapshot=True)
    name = max(name for name in disk_of(world).list_dir(FOLDER) if name.endswith(".checkpoint"))
    disk_of(world).rename(f"{FOLDER}/{name}", f"{FOLDER}/{99_999:020d}-{1:010d}.checkpoint")
    with pytest.raises(KafkaStorageError, match="before the snapshot"):
        await topics(world)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"leaderEpoch": 99999999999}'])
async def test_damaged_quorum_state_is_refused_by_name(content: bytes) -> None:
    world = await stopped(clean=True)
    disk_of(world).replace_file(f"{FOLDER}/quorum-state", content)
    with pytest.raises(ConfigurationError, match=f"{FOLDER}/quorum-state"):
        await topics(world)


# Folders of topics that are gone


async def _killed_while_deleting(node: Node) -> None:
    """The deletion is committed, but no folder is renamed."""
    disk = disk_of(node.broker.world)
    rename = disk.rename
    disk.rename = lambda source, target: None if target.endswith("-delete") else rename(source, target)  # type: ignore[method-assign]
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    assert (await node.call(request, 5)).responses[0].error_code == 0
    await node.process.kill()
    del disk.rename


async def test_topic_whose_deletion_was_committed_is_deleted_by_the_next_start() -> None:
    world = memory_world()
    async with running_node(world=world) as node:
        await node.create("t", 3)
        await node.create("other")
        await _killed_while_deleting(node)
    disk_of(world).kill()
    assert len([name for name in disk_of(world).list_dir("/data") if name.startswith("t-")]) == 3
    async with running_node(world=world, log_initial_task_delay_ms=0, log_retention_check_interval_ms=1) as node:
        assert set(node.broker.image.topics) == {"other"}
        assert node.broker.logs.strays() == {"/data": 0}
    async with running_node(world=world) as node:
        await node.broker.logs.checked_for_gaps.wait()
    names = disk_of(world).list_dir("/data")
    assert not [name for name in names if name.endswith("-stray") or name.startswith("t-")]


async def test_log_that_no_topic_has_deleted_is_kept_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    world = memory_world()
    async with running_node(world=world) as node:
        await node.create("t")
    disk = disk_of(world)
    disk.make_dirs("/data/foreign-0")
    for name in disk.list_dir("/data/t-0"):
        disk.replace_file(f"/data/foreign-0/{name}", disk.read_file(f"/data/t-0/{name}"))
    disk.remove("/data/foreign-0/partition.metadata")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            caplog.clear()
            async with running_node(world=world) as node:
                assert node.broker.logs.strays() == {"/data": 1}
                samples = {sample.name: sample.value for sample in node.broker.metrics()}
                assert samples["triokafka:type=LogManager,name=StrayLogs"] == 1
            assert "foreign-0" in caplog.text
