"""The background work of a broker's logs: retention, flushes, checkpoints, producer expiry and a check for gaps."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from triokafka.broker_stub.log.cleaner.cleaning_progress import CleaningProgress
from triokafka.broker_stub.log.flush_threads import FlushThreads
from triokafka.broker_stub.log.log_deletion import LogDeletion, remove
from triokafka.broker_stub.log.log_directories import LogDirectories
from triokafka.broker_stub.log.log_listener import LogListener
from triokafka.broker_stub.log.log_manager_config import FLUSH_TICK_MS, LogManagerConfig
from triokafka.broker_stub.log.log_opener import LogOpener
from triokafka.broker_stub.log.offset_gaps import find_gaps
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.errors import KafkaError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

_SEEN_AT_ONCE: Final = 500
"""Logs handled between two checkpoints of the event loop: less than a millisecond."""


class LogMaintenance:
    """Runs the background work. ``checked_for_gaps`` is set once `run` has checked all logs for gaps."""

    def __init__(
        self,
        world: World,
        directories: LogDirectories,
        opener: LogOpener,
        deletion: LogDeletion,
        scheduler: FlushThreads,
        cleaning: CleaningProgress,
        config: LogManagerConfig,
        listener: LogListener | None,
    ) -> None:
        self._world = world
        self._directories = directories
        self._opener = opener
        self._deletion = deletion
        self._scheduler = scheduler
        self._cleaning = cleaning
        self._config = config
        self._listener = listener
        self._clock_jumped = trio.Event()
        self.checked_for_gaps = trio.Event()

    async def run(self) -> None:
        """Do the work until cancelled. Failures are logged and retried at the next interval."""
        config = self._config
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_gaps)
            nursery.start_soon(self._remove_deleted_folders)
            nursery.start_soon(self._every, config.retention_check_interval_ms, self._apply_retention)
            nursery.start_soon(self._every, min(config.flush_scheduler_interval_ms, FLUSH_TICK_MS), self.flush_due)
            nursery.start_soon(self._every, config.recovery_point_checkpoint_interval_ms, self.flush_sealed)
            nursery.start_soon(self._every, config.log_start_offset_checkpoint_interval_ms, self._checkpoint_starts)
            nursery.start_soon(self._every, config.producer_expiration_check_interval_ms, self._expire_producers)

    def clock_jumped(self) -> None:
        """Do the due work immediately, after a jump of the world's clock."""
        self._clock_jumped.set()
        self._clock_jumped = trio.Event()

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        wait = self._config.initial_task_delay_ms / 1000
        while True:
            with trio.move_on_after(wait):
                await self._clock_jumped.wait()
            wait = interval_ms / 1000
            await work()

    def _logs(self) -> list[PartitionLog]:
        return [hosted.log for hosted in self._directories.hosted.values()]

    def _portions(self) -> list[list[PartitionLog]]:
        """Split all logs into portions; the caller runs a checkpoint of the event loop between two portions."""
        logs = self._logs()
        return [logs[start : start + _SEEN_AT_ONCE] for start in range(0, len(logs), _SEEN_AT_ONCE)]

    # -- gaps

    async def _report_gaps(self) -> None:
        """Check all logs once, in a thread, for missing offsets between segments, and report these."""
        for topic_partition, hosted in list(self._directories.hosted.items()):
            log = hosted.log
            segments = log.segments
            bases = [segment.base_offset for segment in segments]
            if len(bases) < 2:
                continue
            find = partial(find_gaps, self._world.storage, log.directory, bases, compacted=log.config.compacts)
            try:
                gaps = await self._world.run_in_thread(find)
            except OSError as error:
                logger.error("%s: the segments cannot be checked for gaps: %s", topic_partition, error)
                continue
            for gap in gaps:
                replaced = log.config.compacts and log.segments[: len(segments)] != segments  # by compaction
                if gap.end > log.log_start_offset and self._directories.log(topic_partition) is log and not replaced:
                    start = max(gap.start, log.log_start_offset)
                    log.add_lost_offsets(gap.end - start)
                    logger.error(
                        "%s: offsets %d to %d are missing after %s: %s. Readers continue at offset %d.",
                        topic_partition,
                        start,
                        gap.end - 1,
                        gap.path,
                        gap.reason,
                        gap.end,
                    )
        self.checked_for_gaps.set()

    # -- retention

    async def _remove_deleted_folders(self) -> None:
        """Remove, in a thread, the folders of logs deleted before this start."""
        folders = self._deletion.take_due(self._world.wall_ms())
        if folders:
            await self._world.run_in_thread(remove, self._world.storage, folders)

    async def _apply_retention(self) -> None:
        """As `apply_retention`, with a checkpoint after each log; a thread removes the files, since large ones take
        long."""
        now_ms = self._world.wall_ms()
        folders, files = self._deletion.take_due(now_ms), list[str]()
        for topic_partition in list(self._directories.hosted):
            if not self._cleaning.states.in_progress(topic_partition):
                self.apply_retention_to(topic_partition, remove_files=False)
            log = self._directories.log(topic_partition)
            if log is not None:
                files += log.take_files_to_delete(now_ms)
            await trio.lowlevel.checkpoint()
        if folders or files:
            await self._world.run_in_thread(remove, self._world.storage, folders, files)

    def apply_retention(self) -> None:
        """Delete old segments of all logs, and remove the folders of deleted logs.

        The cleaner applies retention to a log that it is cleaning when it has finished.
        """
        self.remove_deleted(self._world.wall_ms())
        for topic_partition in list(self._directories.hosted):
            if not self._cleaning.states.in_progress(topic_partition):
                self.apply_retention_to(topic_partition)

    def apply_retention_to(self, topic_partition: TopicPartition, *, remove_files: bool = True) -> None:
        """Run `PartitionLog.apply_retention` up to the high watermark; a failure is logged."""
        committed = self._listener.high_watermark_of(topic_partition) if self._listener is not None else None
        log = self._directories.log(topic_partition)
        if log is None:
            return
        try:
            log.apply_retention(self._world.wall_ms(), up_to_offset=committed, remove_files=remove_files)
        except KafkaError as error:
            logger.error("%s: retention failed; the next check tries again: %s", topic_partition, error)

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the folders of deleted logs whose delay has ended."""
        remove(self._world.storage, self._deletion.take_due(now_ms))

    # -- producers

    async def _expire_producers(self) -> None:
        """Forget inactive producers in all logs (``producer.id.expiration.ms``)."""
        now_ms = self._world.wall_ms()
        for logs in self._portions():
            for log in logs:
                log.expire_producers(now_ms, self._opener.producer_expiration_ms)
            await trio.lowlevel.checkpoint()

    # -- flushes and checkpoints

    async def flush_due(self) -> None:
        """Flush the logs whose ``flush.ms`` has passed."""
        due: list[PartitionLog] = []
        for logs in self._portions():
            now_ms = self._world.wall_ms()  # read per portion: records appended meanwhile must not be newer
            due += [log for log in logs if log.flush_due(now_ms)]
            await trio.lowlevel.checkpoint()
        await self._scheduler.flush(log.flusher for log in due)
        await self._checkpoint_recovery_points()

    async def flush_sealed(self) -> None:
        """Flush sealed segments, so that recovery need not read them."""
        for logs in self._portions():
            for log in logs:
                self._check_files(log)
            await self._scheduler.flush([log.flusher for log in logs if log.usable], sealed_only=True)
            await trio.lowlevel.checkpoint()
        await self._checkpoint_recovery_points()

    async def flush_sealed_of(self, topic_partition: TopicPartition) -> None:
        """`flush_sealed` for one log. A failure is logged."""
        log = self._directories.log(topic_partition)
        await self._scheduler.flush([log.flusher] if log is not None else [], sealed_only=True)
        await self._checkpoint_recovery_points()

    def _check_files(self, log: PartitionLog) -> None:
        if self._directories.log(log.topic_partition) is log:
            try:
                log.check_files()
            except KafkaStorageError as error:
                self._directories.lose(log.topic_partition, str(error))

    async def _checkpoint_recovery_points(self) -> None:
        """Checkpoint each directory without a pause: no truncation may come between reading and writing a recovery
        point.
        """
        for directory in self._directories.online():
            await trio.lowlevel.checkpoint()
            try:
                self._directories.write(directory, directory.checkpoint_recovery_points)
            except KafkaError as error:
                logger.error("%s", error)

    async def _checkpoint_starts(self) -> None:
        for directory in self._directories.online():
            try:
                self._directories.write(directory, directory.checkpoint_start_offsets)
            except KafkaError as error:
                logger.error("%s", error)
