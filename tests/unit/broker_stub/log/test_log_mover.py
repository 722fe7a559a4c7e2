"""Moving logs between data directories (KIP-113): no failure and no power cut loses a record."""

from __future__ import annotations

import errno
import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.log.builders import Listener, append, batch, fill, from_producer, offsets
from tests.unit.broker_stub.log.test_log_manager import TOPIC_ID, DiskWorld, manager, started
from triokafka.broker_stub.log import LogManager
from triokafka.broker_stub.log.log_listener import LogListener
from triokafka.broker_stub.log.partition_metadata import read_topic_id
from triokafka.errors import KafkaStorageError, LogDirNotFoundError, ReplicaNotAvailableError
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


class PowerCut(BaseException):
    """The power fails in the middle of something."""


def filled(world: DiskWorld, count: int = 60, listener: LogListener | None = None) -> LogManager:
    """A log manager with a log of several segments in ``/one``, some of it not flushed."""
    logs = started(world, "/one", "/two", listener=listener)
    log = logs.create(TP, TOPIC_ID)
    fill(log, count - 10)
    log.flush()
    fill(log, 10)
    assert logs.directory_of(TP) == "/one"
    return logs


async def carried_out(logs: LogManager) -> None:
    """Wait for all moves."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.mover.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


def folders(world: DiskWorld, path: str) -> list[str]:
    """Return the log folders of a data directory, without the unique parts of their names."""
    names = [name for name in world.storage.list_dir(path) if world.storage.is_dir(f"{path}/{name}")]
    return [name.split(".")[0] + "-" + name.rsplit("-", 1)[1] if "." in name else name for name in names]


# The usual


async def test_a_log_is_moved_with_all_that_is_known_of_it() -> None:
    """Records, start, epochs, producers and topic id; the old files go later."""
    world, listener = DiskWorld(), Listener()
    logs = filled(world, listener=listener)
    log = logs.get(TP)
    assert log is not None
    append(log, from_producer(b"a", sequence=0), epoch=3)
    log.advance_log_start_offset(25)
    records = [log.read(offset, 1).records for offset in range(25, 61)]
    logs.mover.move(TP, "/two/")
    await carried_out(logs)
    moved = logs.get(TP)
    assert moved is not None and moved is not log
    assert listener.moved == [(TP, moved)]
    assert logs.directory_of(TP) == "/two"
    assert [moved.read(offset, 1).records for offset in range(25, 61)] == records
    assert (moved.log_start_offset, moved.log_end_offset, moved.recovery_point) == (25, 61, 61)
    assert moved.leader_epochs.epoch_for_offset(60) == 3
    assert len(moved.producers) == 1
    assert read_topic_id(world.storage, "/two/orders-0/partition.metadata") == TOPIC_ID
    assert folders(world, "/one") == ["orders-0-delete"]
    assert folders(world, "/two") == ["orders-0"]
    assert not world.storage.exists("/two/orders-0/moved-here")
    append(moved, batch(b"next"))
    world.wall += 60_000
    logs.apply_retention()
    assert folders(world, "/one") == []
    await logs.close()
    again = started(world, "/one", "/two").get(TP)
    assert again is not None and offsets(again) == list(range(25, 62))


async def test_records_that_come_meanwhile_are_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = DiskWorld()
    logs = filled(world)
    log = logs.get(TP)
    assert log is not None
    left = 100

    async def thread(function: Callable[..., Any], *args: Any) -> Any:
        nonlocal left
        await trio.lowlevel.checkpoint()
        if left and log.usable:
            left -= 1
            fill(log, 1)
        return function(*args)

    world.run_in_thread = thread  # type: ignore[method-assign]
    monkeypatch.setattr("triokafka.broker_stub.log.log_mover._CHUNK_BYTES", 300)
    logs.mover.move(TP, "/two")
    await carried_out(logs)
    moved = logs.get(TP)
    assert moved is not None and logs.directory_of(TP) == "/two"
    assert offsets(moved) == list(range(60 + 100 - left))
    assert left < 80


async def test_the_copy_is_shown_until_it_is_the_log() -> None:
    world = DiskWorld()
    logs = filled(world)
    go_on = trio.Event()

    async def thread(function: Callable[..., Any], *args: Any) -> Any:
        found = function(*args)
        if "append" in function.__name__:
            await go_on.wait()
        return found

    world.run_in_thread = thread  # type: ignore[method-assign]
    logs.mover.move(TP, "/two")
    assert [future.behind for future in logs.mover.future_logs()] == [60]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.mover.run)
        await trio.testing.wait_all_tasks_blocked()
        (future,) = logs.mover.future_logs()
        assert future[:2] == (TP, "/two")
        assert future.size > 0 and future.behind < 60
        assert folders(world, "/two") == ["orders-0-future"]
        go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert list(logs.mover.future_logs()) == []
        nursery.cancel_scope.cancel()
    assert logs.directory_of(TP) == "/two"


async def test_an_empty_log_and_one_whose_records_are_all_deleted_are_moved() -> None:
    world = DiskWorld()
    logs = filled(world)
    log, empty = logs.get(TP), logs.create(OTHER)
    assert log is not None and logs.directory_of(OTHER) == "/two"
    log.advance_log_start_offset(60)
    log.apply_retention(world.wall)
    logs.mover.move(TP, "/two")
    logs.mover.move(OTHER, "/one")
    await carried_out(logs)
    assert (logs.directory_of(TP), logs.directory_of(OTHER)) == ("/two", "/one")
    moved, empty_now = logs.get(TP), logs.get(OTHER)
    assert moved is not None and empty_now is not None and empty_now is not empty
    assert (moved.log_start_offset, moved.log_end_offset) == (60, 60)
    assert (empty_now.log_start_offset, empty_now.log_end_offset) == (0, 0)


async def test_offsets_without_records_at_the_end_are_not_given_again() -> None:
    world = DiskWorld()
    logs = filled(world)
    log = logs.get(TP)
    assert log is not None
    log.skip_to(75, now_ms=world.wall)
    logs.mover.move(TP, "/two")
    await carried_out(logs)
    await logs.close()
    moved = started(world, "/one", "/two").get(TP)
    assert moved is not None and moved.directory == "/two/orders-0"
    assert (moved.log_start_offset, moved.log_end_offset) == (0, 75)
    assert append(moved, batch(b"x")).first_offset == 75


async def test_moved_log_keeps_its_high_watermark() -> None:
    """Also when the process dies before the next checkpoint of high watermarks; an older value does not return."""
    world, listener = DiskWorld(), Listener(high_watermark=40)
    logs = filled(world, listener=listener)
    logs.checkpoint_high_watermarks({TP: 20})
    logs.mover.move(TP, "/two")
    await carried_out(logs)
    logs.mover.move(TP, "/one")
    listener.high_watermark = 45
    await carried_out(logs)
    world.storage.kill()
    again = started(world, "/one", "/two")
    assert again.directory_of(TP) == "/one"
    assert again.read_high_watermarks() == {TP: 45}


async def test_offsets_without_records_at_the_start_stay_in_range() -> None:
    """A reader whose next offset was compacted away would have to reset, maybe to the end."""
    world = DiskWorld()
    logs = started(world, "/one", "/two")
    log = logs.create(TP, TOPIC_ID)
    log.append_as_follower(batch(b"first", base_offset=10))
    logs.mover.move(TP, "/two")
    await carried_out(logs)
    moved = logs.get(TP)
    assert moved is not None and logs.directory_of(TP) == "/two"
    assert (moved.log_start_offset, moved.log_end_offset) == (0, 11)
    assert offsets(moved, 4) == [10]


async def test_a_log_that_was_cut_meanwhile_is_copied_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other records have the offsets of those that were copied."""
    world = DiskWorld()
    logs = filled(world)
    log = logs.get(TP)
    assert log is not None
    monkeypatch.setattr("triokafka.broker_stub.log.log_mover._CHUNK_BYTES", 1_000)
    appended = 0

    async def thread(function: Callable[..., Any], *args: Any) -> Any:
        nonlocal appended
        await trio.lowlevel.checkpoint()
        found = function(*args)
        appended += "append" in function.__name__
        if appended == 3:
            log.truncate_to(5)
            for _ in range(40):
                append(log, batch(b"another"), epoch=1)
        return found

    world.run_in_thread = thread  # type: ignore[method-assign]
    logs.mover.move(TP, "/two")
    await carried_out(logs)
    moved = logs.get(TP)
    assert moved is not None and logs.directory_of(TP) == "/two"
    assert offsets(moved) == list(range(45))
    assert bytes(moved.read(5, 1).records).endswith(b"another\0")


async def test_other_wishes_and_deletions_end_a_move() -> None:
    world = DiskWorld()
    logs = filled(world)
    logs.mover.move(TP, "/two")
    logs.mover.move(TP, "/one")
    assert list(logs.mover.future_logs()) == []
    logs.mover.move(TP, "/two")

    async def thread(function: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if "append" in function.__name__:
            logs.delete(TP)
        return function(*args)

    world.run_in_thread = thread  # type: ignore[method-assign]
    await carried_out(logs)
    assert logs.all() == {}
    assert folders(world, "/two") == []


def test_refused_move_names_its_reason() -> None:
    world = DiskWorld()
    logs = filled(world)
    with pytest.raises(LogDirNotFoundError):
        logs.mover.move(TP, "/three")
    with pytest.raises(ReplicaNotAvailableError):
        logs.mover.move(OTHER, "/two")
    logs.cannot_use({"/two": OSError(errno.EIO, "broken")})
    with pytest.raises(KafkaStorageError):
        logs.mover.move(TP, "/two")


async def test_moves_are_as_fast_as_they_may_be(autojump_clock: trio.testing.MockClock) -> None:
    """`replica.alter.log.dirs.io.max.bytes.per.second`."""
    world = DiskWorld()
    logs = filled(world)
    log = logs.get(TP)
    assert log is not None
    logs.mover.bytes_per_second = log.size / 20
    logs.mover.move(TP, "/two")
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.mover.run)
        while logs.directory_of(TP) == "/one":
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert 19 < trio.current_time() - began < 25


# What fails


@pytest.mark.parametrize(
    "operation", ["write", "sync", "rename", "sync_dir", "open", "make_dirs", "remove", "truncate"]
)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("place", ["/one*", "/two*"])
@pytest.mark.parametrize("then", ["stop", "power cut"])
async def test_whatever_fails_nothing_is_lost(operation: str, code: int, place: str, then: str) -> None:
    """The log is in its old or in its new directory; if a disk is broken, the next start finds it."""
    for which in range(4):
        await _fail_once(operation, code, place, then, which)


async def _fail_once(operation: str, code: int, place: str, then: str, which: int) -> None:
    world = DiskWorld()
    logs = filled(world)
    logs.mover.move(TP, "/two")
    skipped = 0

    def fault(name: str, path: str, _size: int) -> None:
        nonlocal skipped
        if name == operation and path.startswith(place[:-1]):
            skipped += 1
            if skipped == which + 1:
                world.storage.faults.append(DiskFault(operation, place, code, times=1))

    world.storage.before_operation = fault
    await carried_out(logs)
    world.storage.before_operation = None
    log = logs.get(TP)
    if log is not None:
        assert offsets(log) == list(range(60))
        assert append(log, batch(b"more")).first_offset == 60
    if then == "stop":
        await logs.close()
    else:
        world.storage.crash(random.Random(which))
    again = started(world, "/one", "/two").get(TP)
    assert again is not None
    found = offsets(again)
    assert found == list(range(len(found)))
    assert len(found) >= (50 if then == "power cut" else 60 if log is None else 61)


async def test_copies_of_logs_that_are_not_here_are_left_alone() -> None:
    """A complete copy becomes the log only if no directory is missing that could contain the log itself."""
    world = DiskWorld()
    await filled(world).close()
    world.storage.rename("/one/orders-0", "/two/orders-0.x-future")
    assert started(world, "/one", "/two").get(TP) is None
    world.storage.kill()
    world.storage.replace_file("/two/orders-0.x-future/moved-here", b"orders-0")
    world.storage.faults.append(DiskFault("list", "/one"))
    assert started(world, "/one", "/two").get(TP) is None
    world.storage.kill()
    world.storage.faults.clear()
    log = started(world, "/one", "/two").get(TP)
    assert log is not None and log.directory == "/two/orders-0" and offsets(log) == list(range(60))


async def test_a_copy_of_another_topic_s_log_is_removed() -> None:
    """A topic of the same name was created after the move was interrupted; its log is not moved."""
    world = DiskWorld()
    logs = filled(world)
    other = started(world, "/elsewhere")
    other.create(TP, uuid.UUID(int=5))
    await other.close()
    await logs.close()
    world.storage.rename("/elsewhere/orders-0", "/two/orders-0.x-future")
    again = started(world, "/one", "/two")
    assert again.directory_of(TP) == "/one"
    assert list(again.mover.future_logs()) == []
    assert folders(world, "/two") == []


async def test_a_complete_copy_is_kept_whatever_remains_of_a_former_topic() -> None:
    """Its original is already gone, so the copy is the log."""
    world = DiskWorld()
    former = started(world, "/three")
    fill(former.create(TP, uuid.UUID(int=5)), 7)
    await former.close()
    await filled(world).close()
    world.storage.rename("/one/orders-0", "/two/orders-0.x-future")
    world.storage.replace_file("/two/orders-0.x-future/moved-here", b"orders-0")
    again = manager(world, "/one", "/two", "/three")
    again.start(topic_id_of=lambda topic_partition: TOPIC_ID)
    log = again.get(TP)
    assert log is not None and log.directory == "/two/orders-0" and offsets(log) == list(range(60))
    assert folders(world, "/three") == ["orders-0-stray"]


async def test_a_log_that_has_moved_does_not_drive_out_that_of_a_later_topic() -> None:
    """Its directory was missing while the topic was recreated; the mark of the move belongs to the earlier topic."""
    world = DiskWorld()
    logs = filled(world)
    await logs.close()
    later = uuid.UUID(int=5)
    new = started(world, "/two")
    fill(new.create(TP, later), 7)
    await new.close()
    world.storage.replace_file("/one/orders-0/moved-here", b"orders-0")
    again = manager(world, "/one", "/two")
    again.start(topic_id_of=lambda topic_partition: later)
    log = again.get(TP)
    assert log is not None and log.directory == "/two/orders-0" and offsets(log) == list(range(7))
    assert folders(world, "/one") == ["orders-0-stray"]


@pytest.mark.parametrize("failing", ["/one", "/two"])
async def test_a_disk_on_which_a_move_cannot_be_settled_is_offline_and_no_other(failing: str) -> None:
    """The broker starts with the other one."""
    world = DiskWorld()
    logs = filled(world)
    fill(logs.create(OTHER), 5)
    await logs.close()
    storage = world.storage
    copy = "/two/orders-0.x-future"
    storage.make_dirs(copy)
    storage.open(f"{copy}/00000000000000000000.log", create=True).close()
    if failing == "/one":  # it was about to be renamed when the power failed
        storage.rename(copy, "/two/orders-0")
        storage.replace_file("/two/orders-0/moved-here", b"orders-0")
        storage.faults.append(DiskFault("rename", "/one/*"))
    else:
        storage.faults.append(DiskFault("remove", f"{copy}*"))
    again = started(world, "/one", "/two")
    assert set(again.offline_directories()) == {failing}
    assert again.directory_of(TP) != failing
    assert (again.get(OTHER) is None) == (failing == "/two")


async def test_moves_begin_again_whatever_other_disk_fails_at_the_start() -> None:
    """The moves that were found before that disk failed continue."""
    world = DiskWorld()
    logs = filled(world)
    fill(logs.create(OTHER), 5)
    await logs.close()
    for path in ("/two/orders-0.x-future", "/three/orders-1.x-future"):
        world.storage.make_dirs(path)
        world.storage.open(f"{path}/00000000000000000000.log", create=True).close()
    world.storage.faults.append(DiskFault("remove", "/three/*"))
    again = started(world, "/one", "/two", "/three")
    assert set(again.offline_directories()) == {"/three"}
    assert [(copy.topic_partition, copy.directory) for copy in again.mover.future_logs()] == [(TP, "/two")]


async def test_a_move_to_a_disk_that_fails_later_in_the_start_is_abandoned() -> None:
    """The broker starts without that disk."""
    world = DiskWorld()
    await filled(world).close()
    world.storage.make_dirs("/two/orders-0.x-future")
    world.storage.faults.append(DiskFault("remove", "/two/.kafka_cleanshutdown"))
    again = started(world, "/one", "/two")
    assert set(again.offline_directories()) == {"/two"}
    assert again.directory_of(TP) == "/one"
    assert list(again.mover.future_logs()) == []


def cut_power_at(world: DiskWorld, step: int) -> None:
    """Let the power fail before the ``step``-th operation of the disk from now on."""
    done = 0

    def strike(_name: str, _path: str, _size: int) -> None:
        nonlocal done
        done += 1
        if done > step:
            raise PowerCut

    world.storage.before_operation = strike


@pytest.mark.parametrize("tear", [False, True])
async def test_the_power_may_fail_while_a_dead_process_s_move_is_brought_to_its_end(tear: bool) -> None:
    """The removal of the old log was not synced. If that log returns, the mark must still show which copy is valid."""
    steps, finished = 0, False
    while not finished:
        world = DiskWorld(MemoryStorage(page_bytes=64))
        logs = filled(world, 24)
        logs.mover.move(TP, "/two")

        def die(operation: str, _path: str, _size: int, world: DiskWorld = world) -> None:
            if operation == "sync_dir" and not world.storage.exists("/one/orders-0"):
                cut_power_at(world, 0)
                raise PowerCut

        world.storage.before_operation = die
        with pytest.raises(BaseExceptionGroup):
            await carried_out(logs)
        world.storage.kill()
        cut_power_at(world, steps)
        try:
            started(world, "/one", "/two")
            finished = True
        except PowerCut:
            pass
        world.storage.before_operation = None
        world.storage.crash(random.Random(steps), tear=tear)
        log = started(world, "/one", "/two").get(TP)
        assert log is not None and len(offsets(log)) >= 14, steps
        steps += 1
    assert steps > 20


@pytest.mark.parametrize("tear", [False, True])
@pytest.mark.parametrize("dies", ["machine", "process"])
async def test_the_power_may_fail_at_any_step(tear: bool, dies: str) -> None:
    """Flushed records exist once, the start needs no operator, and an unfinished move begins again."""
    steps = ends = again = 0
    while True:
        world = DiskWorld(MemoryStorage(page_bytes=64))
        logs = filled(world, 24)
        logs.mover.move(TP, "/two")
        cut_power_at(world, steps)
        finished = False
        try:
            await carried_out(logs)
            finished = True
        except BaseException as error:
            if not isinstance(error, PowerCut | BaseExceptionGroup):
                raise
        world.storage.before_operation = None
        if dies == "machine":
            world.storage.crash(random.Random(steps), tear=tear)
        else:
            world.storage.kill()
        logs = manager(world, "/one", "/two")
        logs.start()
        log = logs.get(TP)
        assert log is not None, steps
        found = offsets(log)
        assert found == list(range(len(found))), steps
        assert len(found) >= (24 if dies == "process" else 14), steps
        assert sorted(folders(world, "/one") + folders(world, "/two")).count("orders-0") == 1, steps
        here = logs.directory_of(TP)
        ends += here == "/two"
        append(log, batch(b"more"))
        if list(logs.mover.future_logs()):
            again += 1
            await carried_out(logs)
            assert logs.directory_of(TP) == "/two"
            moved = logs.get(TP)
            assert moved is not None and offsets(moved) == [*found, len(found)], steps
        await logs.close()
        names = folders(world, "/one") + folders(world, "/two")
        assert "orders-0-future" not in names, (steps, names)
        if finished:
            break
        steps += 1
    assert steps > 50
    assert ends > 5, "it was at the end before the last step"
    assert again > 5, "it began again"
