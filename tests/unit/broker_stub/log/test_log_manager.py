"""All logs of a broker over its data directories."""

from __future__ import annotations

import errno
import os
import random
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.bystander import Bystander
from tests.unit.broker_stub.log.builders import NOW, Listener, append, batch, config, fill, from_producer, offsets
from triokafka.broker_stub.log import LogManager, PartitionLog, log_maintenance
from triokafka.broker_stub.log.log_directory import LogDirectory, parse_folder, renamed_folder
from triokafka.broker_stub.log.log_listener import LogListener
from triokafka.broker_stub.log.log_manager_config import LogManagerConfig
from triokafka.errors import ConfigurationError, IllegalStateError, InvalidConfigurationError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.system import RealWorld

A0, A1, B0 = TopicPartition("a-b", 0), TopicPartition("a-b", 1), TopicPartition("b", 0)
TOPIC_ID = uuid.UUID(int=77)


class DiskWorld(RealWorld):
    """A world with a disk of its own and a wall clock that only the test moves."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        super().__init__()
        self.storage: MemoryStorage = storage or MemoryStorage()
        self.wall = NOW
        self.random = random.Random(1)

    def wall_ms(self) -> int:
        return self.wall

    def random_bytes(self, size: int) -> bytes:
        return self.random.randbytes(size)

    async def run_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return function(*args)


def manager(world: DiskWorld, *directories: str, listener: LogListener | None = None, **intervals: int) -> LogManager:
    options = LogManagerConfig(**intervals)
    return LogManager(world, directories or ("/data",), config(retention_ms=-1), options, listener=listener)


def started(world: DiskWorld, *directories: str, listener: LogListener | None = None, **intervals: int) -> LogManager:
    logs = manager(world, *directories, listener=listener, **intervals)
    logs.start()
    return logs


# Start and stop


async def test_logs_are_there_again_after_a_clean_stop() -> None:
    """Without recovery, and the marker is gone once they are open."""
    world = DiskWorld()
    logs = started(world)
    fill(logs.create(A0, TOPIC_ID), 50)
    logs.create(B0)
    await logs.close()
    assert world.storage.exists("/data/.kafka_cleanshutdown")
    again = started(world)
    assert set(again.all()) == {A0, B0}
    log = again.get(A0)
    assert log is not None
    assert (log.log_end_offset, log.recovery_point) == (50, 50)
    assert again.topic_id_of(A0) == TOPIC_ID
    assert not world.storage.exists("/data/.kafka_cleanshutdown")


async def test_log_of_a_topic_that_begins_with_a_dot_is_found_at_the_start() -> None:
    """Its deleted records stay deleted, and a clean stop needs no recovery."""
    world = DiskWorld()
    hidden = TopicPartition(".hidden", 0)
    logs = started(world)
    log = logs.create(hidden, TOPIC_ID)
    fill(log, 10)
    log.advance_log_start_offset(4)
    await logs.close()
    again = started(world).get(hidden)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (4, 10, 10)


def test_a_killed_broker_recovers_from_the_recovery_point() -> None:
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0)
    fill(log, 50)
    log.flush()
    logs.checkpoint()
    fill(log, 5)
    append(log, from_producer(b"p", sequence=0))
    world.storage.kill()
    again = started(world).get(A0)
    assert again is not None
    assert offsets(again) == list(range(56))
    assert again.recovery_point == 50
    assert append(again, from_producer(b"p", sequence=0)).duplicate


def test_error_of_an_unlockable_directory_names_the_remedy() -> None:
    class Locked(MemoryStorage):
        def lock(self, path: str) -> Callable[[], None]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    with pytest.raises(
        KafkaStorageError, match=r"/one cannot be locked: Permission denied\. Choose another directory in log\.dirs"
    ):
        LogDirectory(Locked(), "/one").open()


def test_a_power_cut_takes_nothing_that_was_flushed() -> None:
    for seed in range(20):
        world = DiskWorld()
        logs = started(world)
        log = logs.create(A0, TOPIC_ID)
        fill(log, 30)
        log.flush()
        if seed % 2:
            logs.checkpoint()
        fill(log, 30)
        world.storage.crash(random.Random(seed))
        again = started(world).get(A0)
        assert again is not None
        assert again.log_end_offset >= 30
        assert offsets(again) == list(range(again.log_end_offset))


async def test_a_directory_in_use_by_another_broker_is_refused_in_a_sentence() -> None:
    """The locks taken before are released."""
    storage = MemoryStorage()
    first = started(DiskWorld(storage), "/one")
    with pytest.raises(ConfigurationError, match=r"/one is in use by another broker"):
        started(DiskWorld(storage), "/two", "/one")
    third = started(DiskWorld(storage), "/two")
    await third.close()
    await first.close()
    await started(DiskWorld(storage), "/two", "/one").close()


def test_an_unreadable_directory_is_refused_in_a_sentence() -> None:
    world = DiskWorld()
    world.storage.inject(DiskFault("list", "/data", errno.EACCES))
    with pytest.raises(ConfigurationError, match=r"/data cannot be used: .*Permission denied"):
        started(world)


def test_directories_must_be_named_once() -> None:
    for directories in ([], ["/a", "/a"]):
        with pytest.raises(ConfigurationError):
            LogManager(DiskWorld(), directories)


def test_a_partition_in_two_directories_is_refused() -> None:
    world = DiskWorld()
    for directory in ("/one", "/two"):
        world.storage.make_dirs(f"{directory}/b-0")
    with pytest.raises(ConfigurationError, match="b-0 is in two data directories, /one and /two"):
        started(world, "/one", "/two")


@pytest.mark.parametrize("gone", [True, False])
async def test_topic_recreated_while_a_directory_was_missing_has_one_log(gone: bool) -> None:
    """The log of the former topic is set aside when its directory is back, without an operator."""
    world = DiskWorld()
    logs = started(world, "/one", "/two")
    fill(logs.create(A0, TOPIC_ID), 5)
    await logs.close()
    heal = world.storage.inject(DiskFault("*", "/one*"))
    logs = started(world, "/one", "/two")
    with pytest.raises(KafkaStorageError):
        logs.create(A0, TOPIC_ID, is_new=False)
    newer = uuid.UUID(int=78)
    fill(logs.create(A0, newer), 3)
    await logs.close()
    heal()
    again = manager(world, "/one", "/two")
    again.start(topic_id_of=lambda topic_partition: None if gone else newer)
    log = again.get(A0)
    assert log is not None
    if not gone:
        assert log.directory == "/two/a-b-0"
        assert offsets(log) == [0, 1, 2]
        assert again.directory_of(again.create(A0, newer).topic_partition) == "/two"
    asides = [name for path in ("/one", "/two") for name in world.storage.list_dir(path) if name.endswith("-stray")]
    assert len(asides) == 1


def test_two_logs_of_one_topic_are_refused_whatever_its_id_is() -> None:
    """The broker cannot know which of them has the right records."""
    world = DiskWorld()
    for path in ("/one", "/two"):
        started(world, path).create(A0, TOPIC_ID)
        world.storage.kill()
    with pytest.raises(ConfigurationError, match="in two data directories, /one and /two; remove one of them"):
        manager(world, "/one", "/two").start(topic_id_of=lambda topic_partition: TOPIC_ID)


async def test_a_former_log_that_cannot_be_set_aside_takes_its_directory_offline() -> None:
    world = DiskWorld()
    for path, topic_id in (("/one", uuid.UUID(int=5)), ("/two", TOPIC_ID)):
        logs = started(world, path)
        fill(logs.create(A0, topic_id), 5)
        if path == "/one":
            logs.create(A1, TOPIC_ID)
        await logs.close()
    world.storage.faults.append(DiskFault("rename", "/one/a-b-0*"))
    logs = manager(world, "/one", "/two")
    logs.start(topic_id_of=lambda topic_partition: TOPIC_ID)
    assert set(logs.all()) == {A0}
    assert logs.directory_of(A0) == "/two"
    assert list(logs.offline_directories()) == ["/one"]


def test_other_files_and_folders_are_left_alone() -> None:
    """Also the controller's log, and plain files."""
    world = DiskWorld()
    for name in ("lost+found", "__cluster_metadata-0", "a-0.123-stray", "b-x"):
        world.storage.make_dirs(f"/data/{name}")
    world.storage.replace_file("/data/meta.properties", b"version=1")
    logs = started(world)
    assert logs.all() == {}


async def test_a_log_that_cannot_be_closed_leaves_no_mark_of_a_clean_stop() -> None:
    world = DiskWorld()
    logs = started(world)
    fill(logs.create(A0), 3)
    world.storage.inject(DiskFault("sync", "*/a-b-0/*.log"))
    await logs.close()
    assert not world.storage.exists("/data/.kafka_cleanshutdown")
    world.storage.faults.clear()
    again = started(world).get(A0)
    assert again is not None
    assert again.log_end_offset == 3


async def test_topics_have_their_own_configuration_from_the_start() -> None:
    world = DiskWorld()
    logs = started(world)
    logs.create(A0)
    await logs.close()
    again = manager(world)
    again.start(lambda topic: {"retention.ms": "9"})
    log = again.get(A0)
    assert log is not None
    assert log.config.retention_ms == 9
    assert log.config.segment_bytes == 2_000
    with pytest.raises(InvalidConfigurationError):
        again.config_for({"retention.ms": "soon"})


# Logs


def test_a_new_log_goes_to_the_directory_with_the_fewest() -> None:
    world = DiskWorld()
    logs = started(world, "/one", "/two")
    logs.create(A0)
    logs.create(A1)
    assert {logs.directory_of(A0), logs.directory_of(A1)} == {"/one", "/two"}


def test_creating_twice_gives_the_same_log_with_the_newer_configuration() -> None:
    logs = started(DiskWorld())
    assert logs.get(A0) is None
    log = logs.create(A0, TOPIC_ID)
    assert logs.get(A0) is log
    assert logs.create(A0, TOPIC_ID, config(retention_ms=3)) is log
    assert log.config.retention_ms == 3
    assert logs.get(B0) is None


def test_nothing_is_created_before_the_start() -> None:
    with pytest.raises(IllegalStateError):
        manager(DiskWorld()).create(A0)


def test_a_deleted_log_is_renamed_and_removed_later() -> None:
    """Also when the broker dies in between."""
    world = DiskWorld()
    logs = started(world)
    fill(logs.create(A0), 3)
    logs.delete(A0)
    assert logs.get(A0) is None
    (renamed,) = [name for name in world.storage.list_dir("/data") if name.endswith("-delete")]
    assert renamed.startswith("a-b-0.")
    world.wall += 59_999
    logs.apply_retention()
    assert world.storage.exists(f"/data/{renamed}")
    world.storage.kill()
    logs = started(world)
    assert logs.all() == {}
    logs.apply_retention()
    assert not world.storage.exists(f"/data/{renamed}")


def test_folder_of_a_deleted_log_is_removed_although_the_clock_moved_back() -> None:
    """It may have been years ahead when the log was deleted."""
    world = DiskWorld()
    logs = started(world)
    logs.create(A0)
    world.wall += 10**12
    logs.delete(A0)
    world.wall -= 10**12
    logs.apply_retention()
    assert not [name for name in world.storage.list_dir("/data") if name.endswith("-delete")]


def test_a_deleted_log_can_be_created_again_at_once() -> None:
    logs = started(DiskWorld())
    fill(logs.create(A0), 3)
    logs.delete(A0)
    assert logs.create(A0).log_end_offset == 0


def test_a_log_of_an_earlier_topic_of_the_name_is_set_aside() -> None:
    world = DiskWorld()
    logs = started(world)
    fill(logs.create(A0, TOPIC_ID), 3)
    assert logs.create(A0, uuid.UUID(int=78)).log_end_offset == 0
    assert [name for name in world.storage.list_dir("/data") if name.endswith("-stray")]


async def test_a_topic_id_that_was_lost_is_written_again() -> None:
    world = DiskWorld()
    logs = started(world)
    logs.create(A0, TOPIC_ID)
    await logs.close()
    world.storage.replace_file("/data/a-b-0/partition.metadata", b"")
    logs = started(world)
    assert logs.topic_id_of(A0) is None
    logs.create(A0, TOPIC_ID)
    world.storage.kill()
    assert started(world).topic_id_of(A0) == TOPIC_ID


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("seed", range(8))
def test_topic_id_is_on_disk_when_a_log_that_lost_its_end_is_hosted_again(left: int, seed: int) -> None:
    """Opening such a log moves its recovery point, so that no flush follows. Without the id, a later topic of the same
    name would get the log, should its deletion fail.
    """
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0, TOPIC_ID)
    if left:
        append(log, batch(*[b"v"] * left))
    size = log.size
    fill(log, 3)
    logs.checkpoint_high_watermarks({A0: log.log_end_offset})
    end = log.log_end_offset
    logs.abandon()
    # The power fails before the first flush: it takes the newest records and the topic id.
    world.storage.open("/data/a-b-0/00000000000000000000.log").truncate(size)
    world.storage.replace_file("/data/a-b-0/partition.metadata", b"")
    logs = started(world)
    assert logs.topic_id_of(A0) is None
    log = logs.create(A0, TOPIC_ID)
    assert (log.log_end_offset, log.recovery_point, log.lost_offsets) == (end, end, 3)
    logs.abandon()
    world.storage.crash(random.Random(seed))
    logs = started(world)
    assert logs.topic_id_of(A0) == TOPIC_ID
    newer = logs.create(A0, uuid.UUID(int=78))
    assert (newer.log_start_offset, newer.log_end_offset) == (0, 0)


def test_topic_id_that_cannot_be_written_is_retried() -> None:
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0, TOPIC_ID)
    fill(log, 3)
    log.flush()
    logs.abandon()
    world.storage.replace_file("/data/a-b-0/partition.metadata", b"")
    logs = started(world)
    heal = world.storage.inject(DiskFault("*", "*partition.metadata*"))
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match=r"partition\.metadata in /data/a-b-0 cannot be written"):
            logs.create(A0, TOPIC_ID)
    heal()
    assert logs.create(A0, TOPIC_ID).log_end_offset == 3
    assert logs.topic_id_of(A0) == TOPIC_ID
    logs.abandon()
    assert started(world).topic_id_of(A0) == TOPIC_ID


def test_the_folder_of_a_partition_is_parsed_at_the_last_hyphen() -> None:
    assert parse_folder("a-b-12") == TopicPartition("a-b", 12)
    assert parse_folder("a-") is None
    assert parse_folder("-1") is None
    assert parse_folder("a-01") is None
    assert len(renamed_folder(TopicPartition("t" * 249, 10), "0" * 32, "-delete")) == 255


async def test_a_log_that_cannot_be_opened_is_offline_and_the_others_serve() -> None:
    """Nothing that the checkpoints know of it is lost, and it is back when its disk is."""
    world = DiskWorld()
    logs = started(world)
    for partition in (A0, B0):
        fill(logs.create(partition), 5)
    log = logs.get(B0)
    assert log is not None
    log.flush()
    log.advance_log_start_offset(3)
    await logs.close()
    heal = world.storage.inject(DiskFault("open", "*/b-0/*", errno.EIO))
    logs = started(world)
    assert set(logs.all()) == {A0}
    with pytest.raises(KafkaStorageError, match="/data/b-0 cannot be"):
        logs.create(B0)
    logs.checkpoint()
    await logs.close()
    logs = started(world)
    logs.delete(A0)
    await logs.close()
    heal()
    again = started(world).get(B0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (3, 5, 5)


@pytest.mark.parametrize("kind", ["a named pipe", "directory"])
@pytest.mark.parametrize(
    ("suffix", "clean"),
    [(".log", True), (".log", False), (".index", False), (".timeindex", False), (".txnindex", False)],
)
async def test_special_file_takes_its_log_offline(tmp_path: Path, suffix: str, clean: bool, kind: str) -> None:
    """Opening a pipe must not wait for its other end. This pipe has one, so the test would notice."""
    logs = LogManager(RealWorld(), [str(tmp_path)], config(retention_ms=-1))
    logs.start()
    fill(logs.create(A0, TOPIC_ID), 5)
    logs.create(B0)
    if clean:
        await logs.close()
    else:
        logs.abandon()
    path = tmp_path / f"{A0.topic}-{A0.partition}" / f"{0:020d}{suffix}"
    path.unlink(missing_ok=True)
    with ExitStack() as opened:
        if kind == "directory":
            path.mkdir()
        else:
            os.mkfifo(path)
            opened.callback(os.close, os.open(path, os.O_RDWR))
        again = LogManager(RealWorld(), [str(tmp_path)], config(retention_ms=-1))
        again.start()
        assert set(again.all()) == {B0}
        assert not again.offline_directories()
        with pytest.raises(KafkaStorageError, match=f"{kind}.*{path}"):
            again.create(A0, TOPIC_ID)
        again.abandon()


def test_folder_that_is_not_a_log_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is left alone."""
    world = DiskWorld()
    world.storage.make_dirs("/one/y")
    world.storage.make_dirs("/two")
    started(world, "/one", "/two")
    assert [record.message for record in caplog.records] == ["/one/y is not the folder of a partition; ignored"]
    assert world.storage.is_dir("/one/y")


def test_an_offline_log_can_be_deleted() -> None:
    world = DiskWorld()
    fill(started(world).create(A0), 5)
    world.storage.kill()
    heal = world.storage.inject(DiskFault("open", "*/a-b-0/*", errno.EIO))
    logs = started(world)
    logs.delete(A0)
    heal()
    assert logs.create(A0).log_end_offset == 0


# Checkpoints


def test_start_offsets_and_high_watermarks_survive() -> None:
    world = DiskWorld()
    logs = started(world, "/one", "/two")
    for partition in (A0, B0):
        fill(logs.create(partition), 5)
    log = logs.get(A0)
    assert log is not None
    log.advance_log_start_offset(2)
    logs.checkpoint()
    logs.checkpoint_high_watermarks({A0: 4, B0: 3, A1: 9})
    world.storage.kill()
    again = started(world, "/one", "/two")
    log = again.get(A0)
    assert log is not None
    assert log.log_start_offset == 2
    assert again.read_high_watermarks() == {A0: 4, B0: 3}


@pytest.mark.parametrize("full", [False, True])
async def test_the_high_watermark_of_a_log_that_is_offline_stays_known(full: bool) -> None:
    """Also if the log was not read since the start, and after a checkpoint that a full disk refused."""
    world = DiskWorld()
    logs = started(world)
    for partition in (A0, B0):
        fill(logs.create(partition), 5)
    logs.checkpoint_high_watermarks({A0: 4, B0: 3})
    await logs.close()
    heal = world.storage.inject(DiskFault("open", "*/b-0/*"))
    logs = started(world)
    if full:
        assert logs.read_high_watermarks() == {A0: 4, B0: 3}
        world.storage.faults.append(DiskFault("write", "/data/replication-offset-checkpoint*", errno.ENOSPC, times=1))
        with pytest.raises(KafkaStorageError):
            logs.checkpoint_high_watermarks({A0: 5})
    logs.checkpoint_high_watermarks({A0: 5})
    await logs.close()
    heal()
    assert started(world).read_high_watermarks() == {A0: 5, B0: 3}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_new_log_inherits_nothing_from_a_checkpoint_that_a_power_cut_brings_back(code: int) -> None:
    """The file that replaced the checkpoint was visible, but its name was not synced.

    Found by seed 7300332 of the crash model.
    """
    for seed in range(60):
        world = DiskWorld()
        logs = started(world)
        old = logs.create(A0, TOPIC_ID)
        fill(old, 5)
        old.flush()
        old.advance_log_start_offset(3)
        logs.checkpoint()
        logs.delete(A0)

        def fail(operation: str, path: str, _size: int, storage: MemoryStorage = world.storage) -> None:
            if operation == "rename" and "log-start-offset" in path:
                storage.faults.append(DiskFault("sync_dir", "/data", code, times=1))

        world.storage.before_operation = fail
        with pytest.raises(KafkaStorageError):
            logs.create(A0, uuid.UUID(int=78))
        world.storage.before_operation = None
        if code == errno.EIO:
            world.storage.kill()
            logs = started(world)
        assert logs.create(A0, uuid.UUID(int=78)).log_start_offset == 0
        world.storage.crash(random.Random(seed))
        log = started(world).create(A0, uuid.UUID(int=78))
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_a_checkpoint_that_cannot_be_read_means_full_recovery() -> None:
    world = DiskWorld()
    logs = started(world)
    fill(logs.create(A0), 5)
    logs.checkpoint()
    world.storage.kill()
    world.storage.replace_file("/data/recovery-point-offset-checkpoint", b"rubbish")
    log = started(world).get(A0)
    assert log is not None
    assert (log.recovery_point, log.log_end_offset) == (0, 5)


def test_a_truncation_lowers_the_checkpointed_recovery_point_first() -> None:
    """Otherwise recovery after a crash would trust later writes there."""
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0)
    fill(log, 50)
    log.flush()
    logs.checkpoint()
    log.truncate_to(7, now_ms=NOW)
    assert b"a-b 0 7" in world.storage.read_file("/data/recovery-point-offset-checkpoint")


# Background work


async def test_retention_flushing_and_checkpoints_run_in_the_background(autojump_clock: trio.testing.MockClock) -> None:
    world = DiskWorld()
    logs = started(world, initial_task_delay_ms=30_000, retention_check_interval_ms=300_000)
    quick, old = logs.create(A0, config=config(flush_ms=1_000)), logs.create(B0, config=config(retention_ms=10_000))
    append(quick, batch(b"a"))
    fill(old, 60)
    with trio.move_on_after(29):
        await logs.run()
    assert quick.recovery_point == 0
    world.wall += 10**8
    with trio.move_on_after(31):
        await logs.run()
    assert quick.recovery_point == 1
    assert old.log_start_offset == 60
    assert any(name.endswith(".deleted") for name in world.storage.list_dir(old.directory))
    world.wall += 60_000  # file.delete.delay.ms
    with trio.move_on_after(31):
        await logs.run()
    assert not any(name.endswith(".deleted") for name in world.storage.list_dir(old.directory))
    assert b"a-b 0 1" in world.storage.read_file("/data/recovery-point-offset-checkpoint")


async def test_checkpoints_that_would_say_the_same_are_not_written_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Writing one makes the event loop wait for the disk."""
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0)
    fill(log, 3)
    written: list[str] = []

    def note(operation: str, path: str, size: int) -> None:
        if operation == "write" and "checkpoint" in path and "leader-epoch" not in path:
            written.append(path)

    world.storage.before_operation = note
    with trio.move_on_after(1_000):
        await logs.run()
    assert sorted(written) == ["/data/log-start-offset-checkpoint.tmp", "/data/recovery-point-offset-checkpoint.tmp"]
    log.roll(now_ms=NOW)
    await logs.flush_sealed()
    assert len(written) == 3


@pytest.mark.parametrize("name", ["flush_due", "flush_sealed", "_expire_producers"])
async def test_other_tasks_run_while_very_many_logs_are_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_maintenance, "_SEEN_AT_ONCE", 5)
    logs, bystander = started(DiskWorld()), Bystander()
    for number in range(60):
        logs.create(TopicPartition("t", number))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander.run)
        await getattr(logs._maintenance, name)()
        nursery.cancel_scope.cancel()
    assert bystander.turns >= 10, f"{bystander.turns} turns"


async def test_records_appended_during_a_flush_scan_are_not_flushed_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_maintenance, "_SEEN_AT_ONCE", 1)
    world = DiskWorld()
    logs = started(world)
    _, late = logs.create(A0), logs.create(B0, config=config(flush_ms=1_000))

    async def produce() -> None:
        world.wall += 1
        append(late, batch(b"a"), now_ms=world.wall)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        await logs.flush_due()
    assert (late.log_end_offset, late.recovery_point) == (1, 0)
    world.wall += 1_000
    await logs.flush_due()
    assert late.recovery_point == 1


async def test_a_disk_that_fails_does_not_end_the_background_work(autojump_clock: trio.testing.MockClock) -> None:
    """The logs on other disks are still looked after."""
    world = DiskWorld()
    logs = started(world, "/one", "/two")
    both = [logs.create(tp, config=config(flush_ms=1_000, retention_ms=0)) for tp in (A0, A1)]
    for log in both:
        fill(log, 60)
    failing, whole = sorted(both, key=lambda log: log.directory)
    world.storage.inject(DiskFault("*", "/one*"))
    world.wall += 10**8
    with trio.move_on_after(400):
        await logs.run()
    assert failing.recovery_point == 0
    assert whole.recovery_point == whole.log_start_offset == 60


async def test_few_files_are_open_however_many_logs_there_are() -> None:
    world = DiskWorld()
    logs = started(world, max_open_files=3)
    for number in range(10):
        logs.create(TopicPartition("many", number))
    for _ in range(3):
        for log in logs.all().values():
            fill(log, 30)
            log.flush()
    assert len(logs._directories.files) == 3
    assert all(offsets(log) == list(range(90)) for log in logs.all().values())
    logs.delete(TopicPartition("many", 0))
    await logs.close()
    assert len(logs._directories.files) == 0
    assert all(offsets(log) == list(range(90)) for log in started(world).all().values())


def test_retention_respects_the_high_watermark_of_the_host() -> None:
    world, listener = DiskWorld(), Listener(high_watermark=0)
    logs = started(world, listener=listener)
    log = logs.create(A0, config=config(retention_ms=0))
    fill(log, 60)
    world.wall += 10**8
    logs.apply_retention()
    assert log.log_start_offset == 0
    listener.high_watermark = None
    logs.apply_retention()
    assert log.log_start_offset == 60


async def test_closing_twice_or_before_the_start_does_nothing() -> None:
    world = DiskWorld()
    logs = manager(world)
    await logs.close()
    logs.start()
    await logs.close()
    await logs.close()


def test_a_deleted_log_that_could_not_be_renamed_is_not_that_of_the_next_topic() -> None:
    """Nor is it a second log of that name at the next start."""
    world = DiskWorld()
    logs = started(world, "/one", "/two")
    fill(logs.create(A0, TOPIC_ID), 3)
    world.storage.inject(DiskFault("rename", "*", errno.ENOSPC, times=1))
    with pytest.raises(KafkaStorageError):
        logs.delete(A0)
    logs.create(B0)
    again = logs.create(A0, uuid.UUID(int=2))
    assert again.log_end_offset == 0
    world.storage.kill()
    assert started(world, "/one", "/two").all()[A0].log_end_offset == 0


def test_a_failed_disk_fails_the_creation_alone() -> None:
    world = DiskWorld()
    logs = started(world)
    world.storage.inject(DiskFault("open", "*/b-0/*", errno.ENOSPC))
    with pytest.raises(KafkaStorageError):
        logs.create(B0)
    assert logs.create(A0).log_end_offset == 0


# Disks that fail


def spread(world: DiskWorld, listener: LogListener | None = None) -> tuple[LogManager, list[PartitionLog]]:
    """Two logs in ``/one`` and two in ``/two``, with some records each, flushed and checkpointed."""
    logs = started(world, "/one", "/two", listener=listener)
    made = [logs.create(TopicPartition("t", number), TOPIC_ID) for number in range(4)]
    for log in made:
        fill(log, 5)
        log.flush()
    logs.checkpoint()
    return logs, sorted(made, key=lambda log: log.directory)


async def test_an_error_of_the_disk_takes_its_directory_offline_and_no_other() -> None:
    """Also the logs that were not affected yet; their replicas are notified."""
    world, listener = DiskWorld(), Listener()
    logs, (failing, beside, *others) = spread(world, listener)
    world.storage.inject(DiskFault("write", "/one/*.log", errno.EIO))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run)
        with pytest.raises(KafkaStorageError, match="failed"):
            fill(failing, 1)
        for log in (failing, beside):
            with pytest.raises(KafkaStorageError, match="is offline"):
                log.read(0, 100)
            with pytest.raises(KafkaStorageError, match="the data directory /one is offline"):
                logs.create(log.topic_partition, TOPIC_ID)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [set(gone) for gone, _ in listener.offline] == [{failing.topic_partition, beside.topic_partition}]
    assert set(logs.all()) == {log.topic_partition for log in others}
    assert list(logs.offline_directories()) == ["/one"]
    for log in others:
        fill(log, 1)
    assert logs.create(B0).directory == "/two/b-0"


async def test_a_directory_that_was_offline_is_whole_after_a_restart() -> None:
    """It has no mark of a clean stop, and nothing was written to it meanwhile."""
    world = DiskWorld()
    logs, made = spread(world)
    heal = world.storage.inject(DiskFault("sync", "/one/*", errno.EIO))
    fill(made[0], 3)
    with pytest.raises(KafkaStorageError):
        made[0].flush()
    await logs.close()
    heal()
    assert not world.storage.exists("/one/.kafka_cleanshutdown")
    assert world.storage.exists("/two/.kafka_cleanshutdown")
    again = started(world, "/one", "/two")
    assert again.offline_directories() == {}
    assert sorted(log.log_end_offset for log in again.all().values()) == [5, 5, 5, 8]


@pytest.mark.parametrize(
    ("operation", "code"),
    [("write", errno.ENOSPC), ("open", errno.ENOSPC), ("rename", errno.ENOSPC), ("write", errno.EFBIG)],
)
def test_full_disk_refuses_appends_and_the_broker_continues(operation: str, code: int) -> None:
    """No directory goes offline, and all earlier records are readable. The same holds for EFBIG (file size limit)."""
    world = DiskWorld()
    logs, made = spread(world)
    heal = world.storage.inject(DiskFault(operation, "*", code))
    refused = 0
    for log in made:
        for action in (lambda log=log: fill(log, 40), lambda log=log: log.roll(now_ms=NOW), logs.checkpoint):
            try:
                action()
            except KafkaStorageError:
                refused += 1
    assert refused
    heal()
    assert logs.offline_directories() == {}
    for log in made:
        fill(log, 40)
        assert offsets(log) == list(range(log.log_end_offset))


def test_full_disk_is_logged_at_its_start_and_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The message does not repeat for each refused record. Each directory has its own."""
    world = DiskWorld()
    _, made = spread(world)
    world.storage.capacity = 0
    for seconds in (0, 1, 59, 60, 119):
        world.wall = NOW + 1000 * seconds
        for log in made:
            with pytest.raises(KafkaStorageError):
                append(log, batch(b"a"))
    for directory in ("/one", "/two"):
        warnings = [record for record in caplog.records if f"{directory}: writes fail" in record.message]
        assert len(warnings) == 2
        assert "no space left" in warnings[0].message


async def test_a_directory_that_cannot_be_used_at_the_start_is_offline_and_the_others_serve() -> None:
    """A partition that may exist there is not created elsewhere; a new one is."""
    world = DiskWorld()
    logs, made = spread(world)
    await logs.close()
    world.storage.inject(DiskFault("list", "/one", errno.EIO))
    again = started(world, "/one", "/two")
    assert set(again.all()) == {log.topic_partition for log in made[2:]}
    with pytest.raises(KafkaStorageError, match="it may be in /one"):
        again.create(made[0].topic_partition, TOPIC_ID, is_new=False)
    assert again.create(B0, is_new=True).directory == "/two/b-0"
    await again.close()
    with pytest.raises(ConfigurationError, match="/one"):
        started(world, "/one")


async def test_records_wait_for_their_flush_and_not_the_appending_task(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One sync covers all records that were appended during the previous one."""
    world = DiskWorld()
    syncs = threads = 0

    async def slow_thread(function: Callable[..., Any], *args: Any) -> Any:
        nonlocal threads
        threads += 1
        await trio.sleep(1)
        return function(*args)

    world.run_in_thread = slow_thread  # type: ignore[method-assign]
    listener, flushed = Listener(), list[int]()
    logs = started(world, listener=listener)
    log = logs.create(A0, config=config(flush_messages=1))
    log.flush()
    listener.log_flushed = lambda tp: flushed.append(log.settled_offset)  # type: ignore[method-assign, assignment]

    def count(operation: str, path: str, size: int) -> None:
        nonlocal syncs
        syncs += operation == "sync" and path.endswith(".log")

    world.storage.before_operation = count
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run)
        await trio.testing.wait_all_tasks_blocked()
        fill(log, 1)
        assert (log.settled_offset, syncs) == (0, 0)
        await trio.sleep(0.5)
        fill(log, 10)
        await trio.sleep(0.6)
        assert (flushed, log.settled_offset, log.recovery_point) == ([1], 1, 1)
        await trio.sleep(1)
        assert (flushed, log.settled_offset, syncs, threads) == ([1, 11], 11, 2, 2)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("path", "code"), [("*/leader-epoch-*.tmp", errno.ENOSPC), ("*.log", errno.EMFILE)])
async def test_a_flush_that_was_requested_is_retried_when_the_disk_has_room(
    path: str, code: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Also when nothing else is appended: producers wait for it."""
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0, config=config(flush_messages=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run)
        await trio.testing.wait_all_tasks_blocked()
        world.storage.inject(DiskFault("open", path, code, times=3))
        append(log, batch(b"a"))
        await trio.sleep(3.5)
        assert log.settled_offset == 1
        nursery.cancel_scope.cancel()


async def test_a_sync_that_was_requested_and_fails_takes_the_directory_offline() -> None:
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0, config=config(flush_messages=1))
    world.storage.inject(DiskFault("sync", "*.log"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run)
        await trio.testing.wait_all_tasks_blocked()
        fill(log, 1)
        await trio.testing.wait_all_tasks_blocked()
        assert log.settled_offset == 0
        assert list(logs.offline_directories()) == ["/data"]
        nursery.cancel_scope.cancel()


async def test_a_flush_that_finds_too_many_files_open_is_done_by_a_later_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """No sync has failed, so nothing is lost and the disk is trusted."""
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0, config=config(flush_ms=1_000))
    fill(log, 60)
    world.storage.inject(DiskFault("open", "*.log", errno.EMFILE, times=3))
    world.storage.inject(DiskFault("sync_dir", "*/a-b-0", errno.EMFILE, times=2))
    for _ in range(6):
        world.wall += 1_000
        assert log.recovery_point == 0
        assert log.flush_due(world.wall)
        await logs.flush_due()
    assert log.recovery_point == 60
    assert logs.offline_directories() == {}
    world.storage.crash(random.Random(0), tear=False)
    assert offsets(started(world).all()[A0]) == list(range(60))


# Start-up


async def test_logs_are_opened_by_as_many_threads_as_wanted() -> None:
    """Per directory (`num.recovery.threads.per.data.dir`)."""
    world = DiskWorld()
    logs = started(world, "/one", "/two")
    for number in range(40):
        fill(logs.create(TopicPartition("t", number)), 3)
    world.storage.kill()
    running = most = 0

    async def thread(function: Callable[..., Any], *args: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.testing.wait_all_tasks_blocked()
        try:
            return function(*args)
        finally:
            running -= 1

    world.run_in_thread = thread  # type: ignore[method-assign]
    again = manager(world, "/one", "/two", recovery_threads_per_data_dir=3)
    opened: list[int] = []
    again.lock()
    await again.load(log_opened=opened.append)
    assert most == 6
    assert opened == [40] * 40
    assert len(again.all()) == 40
    assert all(offsets(log) == [0, 1, 2] for log in again.all().values())


async def test_a_start_that_is_cancelled_ends_with_the_logs_that_are_being_opened() -> None:
    """The rest stays as it was, for the next start."""
    world = DiskWorld()
    logs = started(world)
    for number in range(100):
        fill(logs.create(TopicPartition("t", number)), 3)
    world.storage.kill()
    world.run_in_thread = trio.to_thread.run_sync  # type: ignore[method-assign, assignment]
    again, opened = manager(world, recovery_threads_per_data_dir=1), 0

    with trio.CancelScope() as start:

        def log_opened(_count: int) -> None:
            nonlocal opened
            opened += 1
            trio.from_thread.run_sync(start.cancel)
            for _ in range(3):  # the event loop has its turns meanwhile
                trio.from_thread.run_sync(int)

        again.lock()
        await again.load(log_opened=log_opened)
    assert start.cancelled_caught
    assert opened < 5
    assert not world.storage.exists("/data/.kafka_cleanshutdown")
    assert len(started(world).all()) == 100


async def test_a_start_that_fails_leaves_nothing_locked_or_open() -> None:
    world = DiskWorld()
    logs = started(world, "/one", "/two")
    logs.create(A0)
    await logs.close()
    world.storage.make_dirs("/two/a-b-0")
    again = manager(world, "/one", "/two")
    again.lock()
    with pytest.raises(ConfigurationError, match="in two data directories"):
        await again.load()
    world.storage.remove_tree("/two/a-b-0")
    world.storage.remove_tree("/one/a-b-0")
    assert started(world, "/one", "/two").all() == {}


async def test_silent_producers_are_looked_for_in_their_own_interval(autojump_clock: trio.testing.MockClock) -> None:
    """Also when no producer is old enough to be dropped. The limit may change meanwhile."""
    world = DiskWorld()
    logs = started(
        world, initial_task_delay_ms=0, producer_expiration_check_interval_ms=10_000, producer_expiration_ms=5_000
    )
    log = logs.create(A0, TOPIC_ID)
    append(log, from_producer(b"a", sequence=0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run)
        await trio.sleep(1)
        world.wall += 6_000
        logs.reconfigure(defaults=logs.defaults, producer_expiration_ms=60_000)
        await trio.sleep(10)
        assert len(log.producers) == 1
        logs.reconfigure(defaults=logs.defaults, producer_expiration_ms=5_000)
        await trio.sleep(10)
        assert len(log.producers) == 0
        nursery.cancel_scope.cancel()
