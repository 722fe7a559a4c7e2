"""Drives the logs of a broker through a plan, together with models of them, on a disk that crashes.

It drives the synchronous core of a broker: `LogManager` over one or two data directories with logs and checkpoints, and
a `Partition` on each log for leadership, acknowledgements and the high watermark. A disk fault or a power cut may occur
during each action; the model then describes the possible states.
"""

from __future__ import annotations

import errno
import random
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import trio
import trio.testing

from tests.crashing.model import PartitionModel
from tests.crashing.opened import EXPIRATION_MS, Expected, check_opened
from tests.crashing.plan import Step, plan, shrink
from tests.crashing.steps import BrokerSteps
from triokafka.broker_stub.log import LogConfig, LogManager, PartitionLog
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.log.log_manager_config import LogManagerConfig
from triokafka.broker_stub.replica.partition import Partition
from triokafka.errors import ConfigurationError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.power_cut import SyncFailure
from triokafka.world.system import RealWorld

if TYPE_CHECKING:
    from triokafka.broker_stub.log.recovery_point import FlushJob

NOW = 1_700_000_000_000
_NEVER = 2**63 - 1


class PowerCutError(BaseException):
    """The power fails at this moment. Not an `Exception`: no code may handle it."""


class DiskWorld(RealWorld):
    """A world with its own disk, a wall clock that is moved by hand, and no threads."""

    def __init__(self, disk: MemoryStorage, choices: random.Random) -> None:
        super().__init__()
        self.storage: MemoryStorage = disk
        self.random = choices
        self.wall = NOW
        self.between: Callable[[], None] = lambda: None  # runs before a thread begins its work

    def now(self) -> float:
        return self.wall / 1000

    def wall_ms(self) -> int:
        return self.wall

    def random_bytes(self, size: int) -> bytes:
        return self.random.randbytes(size)

    async def run_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        self.between()
        return function(*args)


class Machine(BrokerSteps):
    """One run. Raises `AssertionError` if log and model differ."""

    def __init__(self, seed: int) -> None:
        choices = random.Random(f"{seed}/setup")
        self.disk = MemoryStorage(page_bytes=choices.choice((16, 64, 512, 4096)))
        self.world = DiskWorld(self.disk, random.Random(f"{seed}/world"))
        self.disk.wall_ms = self.world.wall_ms
        policy = choices.choice((("delete",), ("delete",), ("compact",), ("compact", "delete")))
        self.compacted = "compact" in policy
        self.config = LogConfig(
            segment_bytes=choices.choice((300, 900, 900, 5_000)),
            index_interval_bytes=choices.choice((60, 200)),
            retention_bytes=choices.choice((-1, 1_500)),
            retention_ms=choices.choice((-1, 5_000)),
            flush_messages=choices.choice((1, 4, _NEVER, _NEVER)),
            flush_ms=choices.choice((_NEVER, 1_000)),
            file_delete_delay_ms=choices.choice((0, 2_000)),
            delete_retention_ms=3_000,
            min_cleanable_dirty_ratio=0.0,
            cleanup_policy=policy,
        )
        self.directories = ["/data/a", "/data/b"][: choices.choice((1, 2))]
        self.replicated = choices.random() < 0.4
        names = ["t-0", "t-1", "u-0"][: choices.choice((1, 1, 2, 3))]
        self.models = {TopicPartition(name[0], int(name[2:])): PartitionModel() for name in names}
        self.topic_ids = {tp: self.world.uuid() for tp in self.models}
        self.made: set[TopicPartition] = set()
        self.leader_epoch = 0
        self.jobs: list[tuple[TopicPartition, PartitionLog, FlushJob]] = []
        self.expected: dict[TopicPartition, Expected] = {}
        self.struck = False  # a fault occurred since the start: the failed part may fail again
        self.lost_pages = SyncFailure.DIRTY  # the effect of the last failed sync
        self.logs: LogManager
        self.cleaner: LogCleaner
        self.partitions: dict[TopicPartition, Partition] = {}
        self.start(lossless=True)

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            choices = step.choices()
            tp = choices.choice(list(self.models))
            try:
                getattr(self, f"do_{step.kind}")(tp, choices)
                self.check_bounds()
                self.expected.clear()
            except (KafkaStorageError, ConfigurationError):
                if not self.struck:
                    raise
                self.restart(choices)
                self.check_bounds()
        for tp in self.models:
            self.check_read(tp)

    # -- start and end

    def start(self, *, lossless: bool) -> None:
        """Open everything, and compare it with the models."""
        self.open()
        self.compare(lossless=lossless)

    def open(self) -> None:
        """Open everything."""
        self.jobs.clear()
        self.partitions.clear()
        self.struck = False
        self.logs = LogManager(
            self.world,
            self.directories,
            self.config,
            LogManagerConfig(initial_task_delay_ms=0, producer_expiration_ms=EXPIRATION_MS),
            listener=self,
        )
        self.cleaner = LogCleaner(self.world, self.logs)
        self.logs.start(topic_id_of=self.topic_ids.get)

    def compare(self, *, lossless: bool) -> None:
        """Compare the opened logs with the models."""
        high_watermarks = self.logs.read_high_watermarks()
        for tp, model in self.models.items():
            known = self.logs.get(tp)
            log = self.logs.create(tp, self.topic_ids[tp], self.config, is_new=tp not in self.made)
            self.made.add(tp)
            expected = self.expected.get(tp) or Expected()
            if known is not log:
                expected.is_new = True
            expected.checkpoints_lost = self.struck  # without a readable directory there are no checkpoints
            check_opened(tp, log, model, expected, lossless=lossless, now_ms=self.world.wall, compacted=self.compacted)
            if self.struck:
                model.high_watermark = 0
            self.lead(tp, high_watermarks.get(tp, 0))
        self.expected.clear()

    def restart(self, choices: random.Random) -> None:
        """End the process. Data lost by a sync may be visible until the machine ends; then the machine must end too."""
        if self.lost_pages is SyncFailure.CLEAN:
            self.power_cut(choices)
        elif self.lost_pages is SyncFailure.DIRTY and choices.random() < 0.2:
            # The power fails during the next start, which may have read data that is not on the disk.
            self.disk.kill()
            self.heal()
            with self.power_cut_after(choices.randrange(80)):
                self.start(lossless=True)
                return
            self.power_cut(choices)
        else:
            self.disk.kill()
            self.start(lossless=self.lost_pages is SyncFailure.DIRTY)
            self.lost_pages = SyncFailure.DIRTY

    def power_cut(self, choices: random.Random) -> None:
        """Cut the power, and maybe again while the logs are opened."""
        self.lost_pages = SyncFailure.DIRTY
        self.heal()
        self.disk.crash(choices, tear=choices.random() < 0.9)
        for _ in range(2):
            if choices.random() < 0.8:
                break
            with self.power_cut_after(choices.randrange(40)):
                self.start(lossless=False)
                return
            self.disk.crash(choices)
        self.start(lossless=False)

    def heal(self) -> None:
        """Let the disk work again."""
        self.disk.before_operation = None
        self.disk.faults.clear()

    @contextmanager
    def power_cut_after(self, operations: int, *, syncs_of: Sequence[str] = ()) -> Iterator[None]:
        """Suppress the rest of the block after this many disk operations, or this many syncs of names in these
        directories."""
        left = [operations]

        def before(operation: str, path: str, size: int) -> None:
            left[0] -= not syncs_of or (operation == "sync_dir" and path in syncs_of)
            if left[0] < 0:
                raise PowerCutError

        self.disk.before_operation = before
        try:
            yield
        except PowerCutError:
            pass
        except BaseExceptionGroup as group:
            if group.split(PowerCutError)[1] is not None:
                raise
        finally:
            self.disk.before_operation = None

    # -- events of a broker

    def do_close(self, tp: TopicPartition, choices: random.Random) -> None:
        """Stop cleanly; a power cut after that loses nothing."""
        while self.jobs:  # wait for the threads
            self.do_finish_flush(tp, choices)
        trio.run(self.logs.close)
        if not self.struck:
            for model in self.models.values():
                model.durable_end, model.start_floor, model.lost_start = model.end, model.start, 0
        if choices.random() < 0.3:
            self.power_cut(choices)
        else:
            self.restart(choices)

    def do_kill(self, tp: TopicPartition, choices: random.Random) -> None:
        self.restart(choices)

    def do_power_cut(self, tp: TopicPartition, choices: random.Random) -> None:
        self.power_cut(choices)

    def do_power_cut_within(self, tp: TopicPartition, choices: random.Random) -> None:
        kind = choices.choice(_FRAGILE)
        with self.power_cut_after(choices.choice((0, 1, 2, 3, 5, 8, 13, 21))):
            getattr(self, f"do_{kind}")(tp, choices)
            self.check_bounds()
        self.power_cut(choices)

    def do_move_cut_twice(self, tp: TopicPartition, choices: random.Random) -> None:
        """Kill the process before the renames of a move are on the disk, and cut the power during the next start, which
        has read them."""
        if len(self.directories) > 1:
            source = self.logs.directory_of(tp)
            target = next(path for path in self.directories if path != source)
            with self.power_cut_after(choices.randrange(2), syncs_of=(source,)):
                self.logs.mover.move(tp, target)
                trio.run(self.run_until_it_rests, self.logs.mover.run, clock=trio.testing.MockClock())
                self.check_bounds()
            self.disk.kill()
            with self.power_cut_after(choices.randrange(3), syncs_of=self.directories):
                self.open()
        self.power_cut(choices)

    def do_fail(self, tp: TopicPartition, choices: random.Random) -> None:
        """Fail the disk during an action, once or until the action ends."""
        kind = choices.choice(_FRAGILE)
        left = [choices.choice((0, 1, 2, 3, 5, 8, 13))]
        fault = DiskFault(
            code=choices.choice((errno.EIO, errno.ENOSPC)),
            times=choices.choice((1, None)),
            partial=choices.choice((0, 10, 64)),
            pages=choices.choice(tuple(SyncFailure)),
        )

        def before(operation: str, path: str, size: int) -> None:
            left[0] -= 1
            self.struck = self.struck or left[0] < 0
            if left[0] == -1:
                self.disk.inject(fault)
            if left[0] < 0 and operation == "sync" and fault.times != 0:
                self.lost_pages = fault.pages

        self.disk.before_operation = before
        try:
            getattr(self, f"do_{kind}")(tp, choices)
        except KafkaStorageError:
            if kind not in _ALL_OR_NOTHING or not all(self.log(other).usable for other in self.models):
                raise
        finally:
            self.heal()
        if self.struck and choices.random() < 0.5:
            self.check_bounds()  # the models record the completed part anyway
            self.restart(choices)


_FRAGILE = (
    "append",
    "append",
    "append_control",
    "roll",
    "flush",
    "finish_flush",
    "background",
    "checkpoint",
    "checkpoint_high_watermarks",
    "clean",
    "move",
    "move",
    "truncate",
    "start_afresh",
    "retain",
    "recreate",
    "close",
    "kill",
)


_ALL_OR_NOTHING = ("append", "append_control", "roll", "flush", "finish_flush", "retain", "checkpoint")


def run_seed(seed: int, only: Collection[int] | None = None) -> None:
    """Do one run, or only the steps with these numbers."""
    Machine(seed).run([step for number, step in enumerate(plan(seed)) if only is None or number in only])


def explain(seed: int) -> str:
    """Return the failure of a run, and the fewest steps that cause it; None if there is none."""

    def failure(only: Collection[int] | None) -> Exception | None:
        try:
            run_seed(seed, only)
        except Exception as error:
            return error
        return None

    error = failure(None)
    if error is None:
        return ""
    steps = plan(seed)
    needed = shrink(range(len(steps)), lambda only: failure(set(only)) is not None)
    found = failure(set(needed)) or error
    names = ", ".join(f"{number} {steps[number].kind}" for number in needed)
    where = "".join(traceback.format_tb(found.__traceback__)[-3:])
    return f"seed {seed}, steps {names}: {found!r}\n{where}"
