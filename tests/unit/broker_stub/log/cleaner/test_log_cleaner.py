"""The cleaner of a broker: which log is next, checkpoints, aborting, quarantine, throttling."""

from __future__ import annotations

import errno
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.log.builders import NOW, Listener
from tests.unit.broker_stub.log.cleaner.logs import compacted, put, records
from triokafka.broker_stub.log import LogManager, PartitionLog
from triokafka.broker_stub.log.checkpoints import CLEANER_CHECKPOINT, read_offsets
from triokafka.broker_stub.log.cleaner.cleaning_states import CleaningStates
from triokafka.broker_stub.log.cleaner.log_cleaner import CleanerConfig, LogCleaner
from triokafka.broker_stub.log.log_listener import LogListener
from triokafka.errors import IllegalStateError
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.system import RealWorld

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class VirtualWorld(RealWorld):
    """A disk in memory, a wall clock that goes with the virtual one, and threads that take no time."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        super().__init__()
        self.storage: MemoryStorage = storage or MemoryStorage()
        self.random = random.Random(1)
        self.in_thread: list[Any] = []
        self.before_thread: Callable[[], None] = lambda: None

    def wall_ms(self) -> int:
        return NOW + round(trio.current_time() * 1000)

    def random_bytes(self, size: int) -> bytes:
        return self.random.randbytes(size)

    async def run_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.in_thread.append(function)
        self.before_thread()
        return function(*args)


def logs_of(world: VirtualWorld, *directories: str, listener: LogListener | None = None, **config: Any) -> LogManager:
    logs = LogManager(world, directories or ("/data",), compacted(**config), listener=listener)
    logs.start()
    return logs


def fill(log: PartitionLog, *, keys: int = 3, count: int = 30, now_ms: int = NOW) -> None:
    for number in range(count):
        put(log, (b"k%d" % (number % keys), b"x" * 40), now_ms=now_ms)


@asynccontextmanager
async def cleaning(world: VirtualWorld, logs: LogManager, **config: Any) -> AsyncIterator[LogCleaner]:
    """A cleaner at work."""
    cleaner = LogCleaner(world, logs, CleanerConfig(**config))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaner.run)
        yield cleaner
        nursery.cancel_scope.cancel()


def is_clean(log: PartitionLog, *, keys: int = 3) -> bool:
    """Whether only the last record of each key is left below the active segment."""
    below = [entry for entry in records(log) if entry[0] < log.active_segment.base_offset]
    return len(below) <= keys


async def test_dirty_log_is_cleaned_and_its_checkpoint_written(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    log = logs.create(A)
    fill(log)
    async with cleaning(world, logs, dedupe_buffer_size=10_000) as cleaner:
        await trio.sleep(1)
        assert is_clean(log)
        end = log.active_segment.base_offset
        assert cleaner.cleaned_up_to(A) == end
        assert read_offsets(world.storage, f"/data/{CLEANER_CHECKPOINT}") == {A: end}
        assert cleaner.metrics.passes == 1
        assert 0 < cleaner.metrics.cleaner_recopy_percent < 50
        assert cleaner.metrics.max_buffer_utilization_percent > 0
        assert cleaner.metrics.time_since_last_run_ms <= 1000
        assert cleaner.metrics.max_dirty_percent == 0


async def test_checkpoint_is_read_after_a_restart(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    fill(logs.create(A))
    async with cleaning(world, logs):
        await trio.sleep(1)
    await logs.close()
    logs = logs_of(world)
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(100)
        assert cleaner.metrics.passes == 0


async def test_unreadable_checkpoint_means_that_nothing_is_clean(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    fill(logs.create(A))
    world.storage.replace_file(f"/data/{CLEANER_CHECKPOINT}", b"nonsense")
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(1)
        assert cleaner.metrics.passes == 1


async def test_log_that_is_not_dirty_enough_waits(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    log = logs.create(A)
    fill(log, keys=30)
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(1)
        assert cleaner.metrics.passes == 1
        fill(log, count=8)
        log.roll(now_ms=NOW)
        await trio.sleep(100)
        assert cleaner.metrics.passes == 1
        assert 0 < cleaner.metrics.max_dirty_percent < 50
        log.update_config(compacted(min_cleanable_dirty_ratio=0.1))
        await trio.sleep(16)
        assert cleaner.metrics.passes == 2


async def test_dirtiest_log_comes_first(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    fill(logs.create(A))
    fill(logs.create(B))
    order: list[TopicPartition] = []
    async with cleaning(world, logs, backoff_ms=10_000) as cleaner:
        await trio.sleep(1)
        fill(logs.create(A), count=40)
        fill(logs.create(B), count=400)

        def note() -> None:
            order.extend(tp for tp in (A, B) if cleaner.in_progress(tp) and tp not in order)

        world.before_thread = note
        await trio.sleep(20)
        assert order == [B, A]


async def test_as_many_logs_are_cleaned_at_once_as_there_are_threads(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    for partition in range(5):
        fill(logs.create(TopicPartition("a", partition)))
    most: list[int] = []
    async with cleaning(world, logs, threads=2) as cleaner:
        world.before_thread = lambda: most.append(sum(cleaner.in_progress(tp) for tp in logs.all()))
        await trio.sleep(1)
        assert max(most) == 2
        assert cleaner.metrics.passes == 5


async def test_no_threads_means_no_cleaning_until_there_are_some(autojump_clock: trio.testing.MockClock) -> None:
    """The number may change while the broker runs."""
    world = VirtualWorld()
    logs = logs_of(world)
    fill(logs.create(A))
    async with cleaning(world, logs, threads=0) as cleaner:
        await trio.sleep(100)
        assert cleaner.metrics.passes == 0
        cleaner.config = CleanerConfig(threads=1)
        await trio.sleep(16)
        assert cleaner.metrics.passes == 1


async def test_topic_that_becomes_compacted_is_cleaned_and_one_that_is_not_any_more_is_left(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = VirtualWorld()
    logs = logs_of(world, cleanup_policy=("delete",))
    log = logs.create(A)
    fill(log)
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(20)
        assert cleaner.metrics.passes == 0
        log.update_config(compacted())
        world.before_thread = lambda: log.update_config(compacted(cleanup_policy=("delete",)))
        await trio.sleep(20)
        assert cleaner.metrics.passes == 0
        assert len(records(log)) == 30
        world.before_thread = lambda: None
        log.update_config(compacted())
        await trio.sleep(20)
        assert is_clean(log)


async def test_compacted_log_with_delete_drops_old_segments_after_cleaning(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = VirtualWorld()
    logs = logs_of(world, cleanup_policy=("compact", "delete"), retention_ms=1000)
    log = logs.create(A)
    fill(log, now_ms=NOW - 10_000)
    log.roll(now_ms=NOW)
    put(log, (b"young", b"x"))
    async with cleaning(world, logs):
        await trio.sleep(0.5)
        assert records(log) == [(30, b"young", b"x")]
        assert log.log_start_offset == 30


@pytest.mark.parametrize(("policy", "warned"), [(("compact", "delete"), 0), (("compact",), 1)])
async def test_checkpoint_outside_of_the_log_is_worth_a_warning_unless_retention_deleted_the_records(
    policy: tuple[str, ...], warned: int, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that is compacted and deleted would warn for ever."""
    world = VirtualWorld()
    logs = logs_of(world, cleanup_policy=policy)
    log = logs.create(A)
    fill(log)
    log.roll(now_ms=NOW)
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(20)
        assert cleaner.cleaned_up_to(A) == 30
        fill(log)
        log.roll(now_ms=NOW)
        log.advance_log_start_offset(31)
        await trio.sleep(20)
        assert cleaner.cleaned_up_to(A) == 60
    assert caplog.text.count("the cleaner checkpoint is outside of the log") == warned


async def test_retention_leaves_a_log_alone_while_it_is_cleaned(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world, cleanup_policy=("compact", "delete"), retention_ms=1000)
    log = logs.create(A)
    fill(log, now_ms=NOW - 10_000)
    starts: list[int] = []

    def retain() -> None:
        logs.apply_retention()
        starts.append(log.log_start_offset)

    async with cleaning(world, logs):
        world.before_thread = retain
        await trio.sleep(0.5)
        assert set(starts) == {0}
        assert log.log_start_offset > 0


async def test_open_transaction_keeps_its_segment_from_being_cleaned(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    log = logs.create(A)
    first = put(log, (b"a", b"x"), producer_id=3, producer_epoch=0, base_sequence=0, transactional=True)
    fill(log)
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(20)
        assert cleaner.metrics.passes == 0
        assert len(records(log)) == 31
        assert first == 0


async def test_unreplicated_records_are_not_cleaned(autojump_clock: trio.testing.MockClock) -> None:
    world, listener = VirtualWorld(), Listener()
    logs = logs_of(world, listener=listener)
    log = logs.create(A)
    fill(log)
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(20)
        assert cleaner.metrics.passes == 0
        listener.high_watermark = log.log_end_offset
        await trio.sleep(20)
        assert cleaner.metrics.passes == 1


# Stopping


async def test_log_that_is_deleted_while_it_is_cleaned_is_gone(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    fill(logs.create(A))
    fill(logs.create(B), count=10)
    calls = 0

    def delete() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            logs.delete(A)

    async with cleaning(world, logs) as cleaner:
        world.before_thread = delete
        await trio.sleep(20)
        assert logs.get(A) is None
        assert A not in read_offsets(world.storage, f"/data/{CLEANER_CHECKPOINT}")
        assert cleaner.uncleanable() == []
        again = logs.create(A)
        fill(again)
        await trio.sleep(20)
        assert is_clean(again)


@pytest.mark.parametrize("made_anew", [False, True])
async def test_log_that_is_deleted_at_any_step_of_a_pass_takes_nothing_with_it(
    made_anew: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Neither its data directory nor the log of a new topic of its name."""
    for strike in range(1, 20):
        world = VirtualWorld()
        logs = logs_of(world)
        fill(logs.create(A))
        other = logs.create(B)
        calls = 0

        def delete(logs: LogManager = logs, strike: int = strike) -> None:
            nonlocal calls
            calls += 1
            if calls == strike:
                logs.delete(A)
                if made_anew:
                    put(logs.create(A), (b"new", b"value"))

        async with cleaning(world, logs) as cleaner:
            world.before_thread = delete
            await trio.sleep(10)
            assert cleaner.uncleanable() == []
        world.before_thread = lambda: None
        assert logs.offline_directories() == {}
        assert logs.get(B) is other
        if made_anew and calls >= strike:
            await logs.close()
            reopened = logs_of(world).get(A)
            assert reopened is not None
            assert records(reopened) == [(0, b"new", b"value")]


async def test_log_that_is_deleted_before_its_pass_begins_is_no_matter(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks run between choosing a log and the first step."""
    world = VirtualWorld()
    logs = logs_of(world)
    fill(logs.create(A))
    other = logs.create(B)
    fill(other)
    begin = CleaningStates.begin

    def begin_and_delete(states: CleaningStates, topic_partition: TopicPartition) -> None:
        begin(states, topic_partition)
        if topic_partition == A:
            logs.delete(A)

    monkeypatch.setattr(CleaningStates, "begin", begin_and_delete)
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(20)
        assert not cleaner.in_progress(A)
        assert is_clean(other)


async def test_truncation_ends_a_pass_and_takes_the_checkpoint_back(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    log = logs.create(A)
    fill(log)
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(1)
        before = cleaner.cleaned_up_to(A)
        assert before is not None
        log.truncate_to(10)
        lowered = cleaner.cleaned_up_to(A)
        assert lowered is not None
        assert lowered <= 10
        assert read_offsets(world.storage, f"/data/{CLEANER_CHECKPOINT}") == {A: lowered}
        fill(log)
        await trio.sleep(20)
        assert is_clean(log)


async def test_truncation_in_the_middle_of_a_pass_loses_nothing_and_hides_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The truncation happens at each step of the pass: later records must not count as clean."""
    for strike in range(1, 40, 2):
        world = VirtualWorld()
        logs = logs_of(world)
        log = logs.create(A)
        fill(log)
        calls = 0

        def truncate(log: PartitionLog = log, strike: int = strike) -> None:
            nonlocal calls
            calls += 1
            if calls == strike:
                log.truncate_to(12)
                fill(log, keys=4)

        async with cleaning(world, logs) as cleaner:
            world.before_thread = truncate
            await trio.sleep(40)
            assert cleaner.uncleanable() == []
            assert is_clean(log, keys=4)
        world.before_thread = lambda: None
        found = {key for _, key, _ in records(log)}
        assert found == ({b"k0", b"k1", b"k2", b"k3"} if calls >= strike else {b"k0", b"k1", b"k2"})
        await logs.close()
        logs = logs_of(world)
        reopened = logs.get(A)
        assert reopened is not None
        assert {key for _, key, _ in records(reopened)} == found
        await logs.close()


async def test_paused_log_is_not_cleaned_until_it_is_resumed(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    log = logs.create(A)
    fill(log)
    async with cleaning(world, logs) as cleaner:
        cleaner.pause(A)
        await trio.sleep(100)
        assert cleaner.metrics.passes == 0
        cleaner.resume(A)
        await trio.sleep(1)
        assert is_clean(log)
        with pytest.raises(IllegalStateError):
            cleaner.resume(A)


async def test_cancelled_cleaner_leaves_no_files_behind(autojump_clock: trio.testing.MockClock) -> None:
    """At every step of a pass."""
    for strike in range(1, 40, 2):
        world = VirtualWorld()
        logs = logs_of(world)
        log = logs.create(A)
        fill(log)
        cleaner = LogCleaner(world, logs, CleanerConfig())
        calls = 0
        with trio.CancelScope() as scope:

            def cancel(scope: trio.CancelScope = scope, strike: int = strike) -> None:
                nonlocal calls
                calls += 1
                if calls == strike:
                    scope.cancel()

            world.before_thread = cancel
            with trio.move_on_after(5):
                await cleaner.run()
        assert not [name for name in world.storage.list_dir(log.directory) if name.endswith((".cleaned", ".swap"))]
        assert {key for _, key, _ in records(log)} == {b"k0", b"k1", b"k2"}
        world.before_thread = lambda: None
        await logs.close()


# Trouble


async def test_log_that_cannot_be_cleaned_is_left_alone_and_shown_and_the_others_are_cleaned(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    bad, good = logs.create(A), logs.create(B)
    fill(bad, count=60)
    fill(good)
    file = world.storage.open(bad.segments[1].file.path(".log"))
    file.write_at(bad.segments[1].size - 3, b"?")
    async with cleaning(world, logs) as cleaner:
        await trio.sleep(100)
        assert is_clean(good)
        (entry,) = cleaner.uncleanable()
        assert (entry.topic_partition, entry.directory, entry.size) == (A, "/data", bad.size)
        assert "checksum" in entry.reason
        assert cleaner.cleaned_up_to(A) is None
        assert caplog.text.count("cleaning failed, and the log is skipped") == 1
        logs.delete(A)
        assert cleaner.uncleanable() == []


async def test_full_disk_is_retried_later(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    log = logs.create(A)
    fill(log)
    async with cleaning(world, logs) as cleaner:
        take_back = world.storage.inject(DiskFault("write", "*.cleaned"))
        await trio.sleep(1)
        assert cleaner.uncleanable() == []
        assert len(records(log)) > 5
        take_back()
        await trio.sleep(100)
        assert is_clean(log)


async def test_reads_and_writes_are_throttled(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world)
    log = logs.create(A)
    fill(log, count=60)
    read_twice = 2 * sum(segment.size for segment in log.segments[:-1])
    async with cleaning(world, logs, io_max_bytes_per_second=1000.0, io_buffer_size=100) as cleaner:
        await trio.sleep(read_twice / 1000 - 1)
        assert cleaner.metrics.passes == 0
        await trio.sleep(5)
        assert cleaner.metrics.passes == 1
        assert cleaner.metrics.max_clean_time_secs >= int(read_twice / 1000)


async def test_each_directory_has_a_checkpoint_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    world = VirtualWorld()
    logs = logs_of(world, "/one", "/two")
    fill(logs.create(A))
    fill(logs.create(B))
    async with cleaning(world, logs):
        await trio.sleep(1)
        found = [set(read_offsets(world.storage, f"{path}/{CLEANER_CHECKPOINT}")) for path in ("/one", "/two")]
        assert found == [{A}, {B}]


async def test_log_that_is_deleted_while_it_cannot_be_used_leaves_no_checkpoint(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A log of the same name would count as clean up to there."""
    world = VirtualWorld()
    logs = logs_of(world)
    fill(logs.create(A))
    async with cleaning(world, logs):
        await trio.sleep(1)
    world.storage.kill()
    heal = world.storage.inject(DiskFault("open", "*/a-0/*", errno.EIO))
    again = logs_of(world)
    LogCleaner(world, again)
    assert again.get(A) is None
    again.delete(A)
    heal()
    assert read_offsets(world.storage, f"/data/{CLEANER_CHECKPOINT}") == {}
