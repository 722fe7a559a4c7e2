"""The operations of a broker on its logs, step by step, and the reads of clients; `machine` adds crashes.

Each step changes the models as it must change the logs. Before a step that may end half done, ``expected`` describes
the possible states.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import trio
import trio.testing

from tests.crashing.batches import IDEMPOTENT, encode, new_batch, new_marker
from tests.crashing.model import Batch, Kept, PartitionModel
from tests.crashing.opened import Expected, adopt_cleaned, check_content, check_look_up
from triokafka.broker_stub.log import LogConfig, LogManager, PartitionLog
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.replica.delete_records import delete_records_before
from triokafka.broker_stub.replica.partition import Partition
from triokafka.errors import KafkaStorageError, OffsetOutOfRangeError, OutOfOrderSequenceNumberError
from triokafka.records import decode_records
from triokafka.structs import TopicPartition
from triokafka.world import FileSlice

if TYPE_CHECKING:
    from tests.crashing.machine import DiskWorld
    from triokafka.broker_stub.log.recovery_point import FlushJob

NODE, FOLLOWER = 1, 2
QUICK = (
    "append",
    "append",
    "append",
    "append_control",
    "append_duplicate",
    "follow",
    "replicate",
    "roll",
    "flush",
    "begin_flush",
    "finish_flush",
    "checkpoint",
    "delete_records",
    "recreate",
)
"""Operations in the middle of long work. None that reads records which are being cleaned away, and no truncation, which
never reaches a record that may be cleaned."""


class BrokerSteps:
    """The logs of a broker, with a partition on each, and their models."""

    world: DiskWorld
    power_cut: Callable[[random.Random], None]
    directories: list[str]
    config: LogConfig
    compacted: bool
    replicated: bool
    logs: LogManager
    cleaner: LogCleaner
    partitions: dict[TopicPartition, Partition]
    models: dict[TopicPartition, PartitionModel]
    topic_ids: dict[TopicPartition, UUID]
    expected: dict[TopicPartition, Expected]
    jobs: list[tuple[TopicPartition, PartitionLog, FlushJob]]
    leader_epoch: int
    struck: bool
    """Whether a fault has occurred since the start: the failed part may fail again."""
    interleaved = False
    """Whether several operations run at once."""

    def lead(self, tp: TopicPartition, high_watermark: int) -> None:
        """Return a partition on the log, led by this node."""
        model, log = self.models[tp], self.log(tp)
        partition = Partition(tp, self.topic_ids[tp], node_id=NODE, log=log, high_watermark=high_watermark)
        assert log.log_start_offset <= partition.high_watermark <= log.log_end_offset
        assert partition.high_watermark >= min(model.high_watermark, log.log_end_offset)
        self.partitions[tp] = partition
        self.make_leader(partition)

    def make_leader(self, partition: Partition) -> None:
        replicas = (NODE, FOLLOWER) if self.replicated else (NODE,)
        partition.make_leader(
            leader_epoch=self.leader_epoch, partition_epoch=0, replicas=replicas, in_sync_replicas=replicas
        )
        partition.advance_high_watermark()

    def log(self, tp: TopicPartition) -> PartitionLog:
        log = self.logs.get(tp)
        if log is None:
            raise KafkaStorageError(f"{tp} is offline")
        return log

    def do_append(self, tp: TopicPartition, choices: random.Random) -> None:
        partition, log, model = self.partitions[tp], self.log(tp), self.models[tp]
        batch, data = new_batch(
            choices, log, now_ms=self.world.wall, compacted=self.compacted, leader_epoch=self.leader_epoch
        )
        acks = choices.choice((1, -1))
        with self.appending(tp, batch):
            info = partition.append(data, required_acks=acks, now_ms=self.world.wall)
        assert not info.duplicate
        assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.end - 1)
        partition.advance_high_watermark()
        if not self.replicated:
            assert partition.high_watermark == (log.settled_offset if self.interleaved else model.end)

    def do_append_control(self, tp: TopicPartition, choices: random.Random) -> None:
        log = self.log(tp)
        marker, data = new_marker(choices, log, now_ms=self.world.wall, leader_epoch=self.leader_epoch)
        with self.appending(tp, marker):
            log.append_as_leader(data, leader_epoch=self.leader_epoch, now_ms=self.world.wall, from_client=False)
        self.partitions[tp].advance_high_watermark()

    def do_follow(self, tp: TopicPartition, choices: random.Random) -> None:
        log = self.log(tp)
        at = log.log_end_offset + (choices.choice((0, 0, 3)) if self.compacted else 0)
        batch, data = new_batch(
            choices, log, now_ms=self.world.wall, compacted=self.compacted, leader_epoch=self.leader_epoch, at=at
        )
        with self.appending(tp, batch):
            log.append_as_follower(data, now_ms=self.world.wall)
        self.partitions[tp].advance_high_watermark()

    @contextmanager
    def appending(self, tp: TopicPartition, batch: Batch) -> Iterator[None]:
        """Wrap an append: the model gets the batch when the log has it."""
        log, model = self.log(tp), self.models[tp]
        self.expected[tp] = Expected(batch=batch)
        try:
            yield
        except KafkaStorageError:
            # The sync for flush.messages comes after the append.
            if log.log_end_offset == batch.end:
                model.batches.append(batch)
            self.expected.pop(tp)
            raise
        model.batches.append(batch)
        assert self.interleaved or model.end - log.recovery_point < log.config.flush_messages
        self.expected.pop(tp)

    def do_append_duplicate(self, tp: TopicPartition, choices: random.Random) -> None:
        log, model = self.log(tp), self.models[tp]
        producer = choices.choice(IDEMPOTENT)
        last = model.last_of(producer)
        state = log.producers.get(producer)
        if last is None or last.lost or last.base_offset < model.start or state is None:
            return
        if len(last.records) != last.end - last.base_offset:
            return  # some of it was cleaned away
        info = log.append_as_leader(encode(last), leader_epoch=self.leader_epoch, now_ms=self.world.wall)
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (last.base_offset, last.end - 1)

    def do_append_with_a_gap(self, tp: TopicPartition, choices: random.Random) -> None:
        log = self.log(tp)
        producer = choices.choice(IDEMPOTENT)
        state = log.producers.get(producer)
        if state is None or not state.batches:
            return
        records = [Kept(0, self.world.wall, b"k", b"v")]
        batch = Batch(0, 1, records, -1, 0, producer, state.epoch, state.last_sequence + 2)
        try:
            log.append_as_leader(encode(batch), leader_epoch=self.leader_epoch, now_ms=self.world.wall)
        except OutOfOrderSequenceNumberError:
            return
        raise AssertionError("a gap in the sequence numbers was accepted")

    def do_replicate(self, tp: TopicPartition, choices: random.Random) -> None:
        if self.replicated:
            partition, log = self.partitions[tp], self.log(tp)
            before = partition.high_watermark
            offset = choices.randint(before, log.log_end_offset)
            partition.follower_fetched(FOLLOWER, offset, 0.0)
            # Data for flush.messages is not committed if the disk has refused it.
            assert partition.high_watermark == max(before, min(offset, log.settled_offset))

    def do_new_leader(self, tp: TopicPartition, choices: random.Random) -> None:
        self.leader_epoch += 1
        for partition in self.partitions.values():
            before = partition.high_watermark
            self.make_leader(partition)
            assert partition.high_watermark >= before

    def do_roll(self, tp: TopicPartition, choices: random.Random) -> None:
        self.log(tp).roll(now_ms=self.world.wall)

    def do_flush(self, tp: TopicPartition, choices: random.Random) -> None:
        log = self.log(tp)
        log.flush()
        assert log.recovery_point == log.log_end_offset

    def do_begin_flush(self, tp: TopicPartition, choices: random.Random) -> None:
        log = self.log(tp)
        job = log.begin_flush(sealed_only=choices.random() < 0.3)
        if job is not None:
            self.jobs.append((tp, log, job))

    def do_finish_flush(self, tp: TopicPartition, choices: random.Random) -> None:
        if self.jobs:
            tp, log, job = self.jobs.pop(choices.randrange(len(self.jobs)))
            try:
                job.run()
            except OSError as error:
                raise KafkaStorageError(str(error)) from error
            if self.logs.get(tp) is log:
                log.flushed(job)

    def do_flush_beside_another(self, tp: TopicPartition, choices: random.Random) -> None:
        """Begin a flush while another one runs, which then has synced nothing of its own."""
        self.do_append(tp, choices)
        job = self.log(tp).begin_flush()
        if job is not None:
            self.jobs.append((tp, self.log(tp), job))
        self.do_flush(tp, choices)
        self.check_bounds()
        if choices.random() < 0.5:
            self.power_cut(choices)

    def do_flush_over_a_cut(self, tp: TopicPartition, choices: random.Random) -> None:
        """End a flush that began before a truncation, when the log has other records."""
        self.do_begin_flush(tp, choices)
        self.do_truncate(tp, choices)
        self.do_append(tp, choices)
        self.do_finish_flush(tp, choices)

    def do_background(self, tp: TopicPartition, choices: random.Random) -> None:
        """Run every task of the log manager once."""
        self.world.wall += choices.choice((0, 500, 2_000))
        for other, partition in self.partitions.items():
            self.expected[other] = Expected(latest_start=partition.high_watermark)
        trio.run(self.run_until_it_rests, self.logs.run, clock=trio.testing.MockClock())
        if not self.struck and not self.interleaved:
            for log in map(self.log, self.models):
                assert log.recovery_point == log.log_end_offset or not log.flush_due(self.world.wall)

    def do_clean(self, tp: TopicPartition, choices: random.Random) -> None:
        """Run the cleaner on all logs that are due."""
        for other, partition in self.partitions.items():
            self.expected[other] = Expected(latest_start=partition.high_watermark, cleans=self.compacted)
        trio.run(self.run_until_it_rests, self.cleaner.run, clock=trio.testing.MockClock())
        assert self.struck or not self.cleaner.uncleanable()
        for other, model in self.models.items():
            model.start = self.log(other).log_start_offset
            if self.compacted:
                adopt_cleaned(self.log(other), model)

    def do_move(self, tp: TopicPartition, choices: random.Random) -> None:
        """Move a log to another data directory, with all pending operations."""
        target = choices.choice(self.directories)
        self.logs.mover.move(tp, target)
        trio.run(self.run_until_it_rests, self.logs.mover.run, clock=trio.testing.MockClock())
        assert self.struck or self.interleaved or self.logs.directory_of(tp) == target

    def do_interleave(self, tp: TopicPartition, choices: random.Random) -> None:
        """Run long work, with other operations whenever it waits for a thread."""
        self.interleaved = True
        self.world.between = partial(self.take_a_turn, choices)
        try:
            getattr(self, f"do_{choices.choice(('clean', 'clean', 'move', 'background'))}")(tp, choices)
        finally:
            self.interleaved = False
            self.world.between = lambda: None

    def take_a_turn(self, choices: random.Random) -> None:
        if choices.random() < 0.4:
            self.check_bounds()  # the models record the completed part
            expected = dict(self.expected)
            getattr(self, f"do_{choices.choice(QUICK)}")(choices.choice(list(self.models)), choices)
            self.check_bounds()
            self.expected = expected

    # -- as the listener of the logs

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        partition = self.partitions.get(topic_partition)
        return None if partition is None else partition.high_watermark

    def log_flushed(self, topic_partition: TopicPartition) -> None:
        self.partitions[topic_partition].advance_high_watermark()

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        pass

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """Drop flushes that were begun in the old directory: they never end."""
        self.partitions[topic_partition].log = log
        self.jobs = [job for job in self.jobs if job[0] != topic_partition]

    async def run_until_it_rests(self, work: Callable[[], Awaitable[object]]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    def do_checkpoint(self, tp: TopicPartition, choices: random.Random) -> None:
        self.logs.checkpoint()
        for other, model in self.models.items():
            model.start_floor, model.lost_start = self.log(other).log_start_offset, 0

    def do_checkpoint_high_watermarks(self, tp: TopicPartition, choices: random.Random) -> None:
        offsets = {other: partition.high_watermark for other, partition in self.partitions.items()}
        for other, model in self.models.items():
            model.high_watermark = min(model.high_watermark, offsets[other])
        self.logs.checkpoint_high_watermarks(offsets)
        for other, model in self.models.items():
            model.high_watermark = offsets[other]

    def do_truncate(self, tp: TopicPartition, choices: random.Random) -> None:
        log, model = self.log(tp), self.models[tp]
        offset = round(model.start + (model.end - model.start) * choices.random())
        lowest = end = model.batch_start(offset)
        if self.compacted:  # a gap before it goes, too
            left = (batch for batch in model.batches if batch.records and not batch.lost and batch.end <= end)
            kept = (batch.end for batch in left if batch.records[-1].offset >= model.start)
            lowest = max(kept, default=0)
        self.cutting(tp, lowest, partial(log.truncate_to, max(offset, end), now_ms=self.world.wall))
        assert lowest <= log.log_end_offset <= end, f"{log}, cut at {max(offset, end)}: not from {lowest} to {end}"
        model.cut(log.log_end_offset)
        model.start = min(model.start, model.end)

    def do_start_afresh(self, tp: TopicPartition, choices: random.Random) -> None:
        log, model = self.log(tp), self.models[tp]
        offset = choices.choice((model.start, model.end, model.end + 7, model.end // 2))
        self.cutting(
            tp, 0, partial(log.truncate_fully_and_start_at, offset, now_ms=self.world.wall), latest_start=offset
        )
        model.batches.clear()
        model.placeholders.clear()
        model.start = model.origin = model.durable_end = model.latest_start = offset

    def cutting(
        self, tp: TopicPartition, end: int, cut: Callable[[], None], *, latest_start: int | None = None
    ) -> None:
        model = self.models[tp]
        self.expected[tp] = Expected(lowest_end=end, latest_start=latest_start, cuts=True)
        model.start_floor = min(model.start_floor, end)
        model.lost_start = min(model.lost_start, end)
        model.high_watermark = min(model.high_watermark, end)
        cut()
        self.expected.pop(tp)
        partition = self.partitions[tp]
        self.lead(tp, min(partition.high_watermark, self.log(tp).log_end_offset))

    def do_delete_records(self, tp: TopicPartition, choices: random.Random) -> None:
        partition, model = self.partitions[tp], self.models[tp]
        if not self.config.deletes:
            return
        offset = round(model.start + (partition.high_watermark - model.start) * choices.random())
        assert delete_records_before(partition, offset) == max(offset, model.start)
        model.start = max(offset, model.start)

    def do_retain(self, tp: TopicPartition, choices: random.Random) -> None:
        self.world.wall += choices.randint(0, 4_000)
        log, partition = self.log(tp), self.partitions[tp]
        self.expected[tp] = Expected(latest_start=partition.high_watermark)
        log.apply_retention(self.world.wall, up_to_offset=partition.high_watermark)
        self.expected.pop(tp)

    def do_recreate(self, tp: TopicPartition, choices: random.Random) -> None:
        """Delete and recreate the topic in the metadata, whatever the disk does."""
        if not self.models[tp].durable_end:
            return  # the topic's id is on the disk with the first flush; before that, old and new look alike
        self.models[tp] = PartitionModel()
        self.topic_ids[tp] = UUID(bytes=choices.randbytes(16), version=4)
        self.expected[tp] = Expected(is_new=True)
        self.jobs = [job for job in self.jobs if job[0] != tp]
        self.logs.delete(tp)
        self.logs.create(tp, self.topic_ids[tp], self.config)
        self.expected.pop(tp)
        self.lead(tp, 0)

    # -- reads

    def do_read(self, tp: TopicPartition, choices: random.Random) -> None:
        partition, model = self.partitions[tp], self.models[tp]
        high_watermark = partition.high_watermark
        for outside in (model.start - 1, model.end + 1):
            try:
                partition.read(outside, 100, min_one_batch=True)
            except OffsetOutOfRangeError:
                continue
            raise AssertionError(f"offset {outside} was read, there is {model.start} to {model.end}")
        offset = round(model.start + (model.end - model.start) * choices.random())
        max_bytes, first = choices.choice((0, 70, 300, 2_000)), choices.random() < 0.5
        records = partition.read(offset, max_bytes, min_one_batch=first).records
        assert not isinstance(records, FileSlice)
        got = [Kept(r.offset, r.timestamp, r.key, r.value) for r in decode_records(records, from_offset=offset)]
        wanted = [r for r in model.records(offset, high_watermark) if model.batch_end(r.offset) <= high_watermark]
        assert got == wanted[: len(got)]
        assert first or len(records) <= max_bytes
        if first and wanted and wanted[0].offset == offset:
            assert got

    def do_look_up_by_time(self, tp: TopicPartition, choices: random.Random) -> None:
        log, model = self.log(tp), self.models[tp]
        time = self.world.wall + choices.randint(-9_000, 4_000)
        check_look_up(log, model, time, up_to=choices.choice((model.end, choices.randint(model.start, model.end))))

    def check_read(self, tp: TopicPartition) -> None:
        check_content(self.log(tp), self.models[tp], times=[self.world.wall - 1_000])

    def check_bounds(self) -> None:
        for tp, model in self.models.items():
            log = self.log(tp)
            assert model.start <= log.log_start_offset <= self.partitions[tp].high_watermark
            model.start = log.log_start_offset
            model.latest_start = max(model.latest_start, model.start)
            assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
            assert log.recovery_point <= model.end
            # Data that the log reports as durable must survive a power cut.
            model.durable_end = max(model.durable_end, log.recovery_point)
