"""All logs of a broker: opening and closing them, and the work in the background.

`LogManager` is told what to do by others and does it at once; only `LogManager.load`, `LogManager.run` and
`LogManager.close` wait. Deleted logs are renamed and removed later.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.hosted_logs import FLUSH_TICK_MS, Hosted, LogManagerConfig, LogWatcher, cause_of
from triokafka.broker_stub.log.log_creator import LogCreator
from triokafka.broker_stub.log.log_directory import STRAY_SUFFIX, LogDirectory, OfflineLog
from triokafka.broker_stub.log.log_loading import FoundLog, LoadedLog, TopicIds, find_logs, open_logs, settle_twins
from triokafka.broker_stub.log.move_recovery import UnsettledError, settle_moves
from triokafka.broker_stub.log.offset_gaps import find_gaps
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.errors import ConfigurationError, KafkaError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import Storage

__all__ = ["LogManager", "LogManagerConfig", "LogWatcher"]

logger = logging.getLogger(__name__)

TopicConfigs = Callable[[str], Mapping[str, str | None]]

_CLOSED_AT_ONCE: Final = 8
_SEEN_AT_ONCE: Final = 500
"""Logs that are looked at before others have their turn: less than a millisecond."""


class LogManager(LogCreator):
    """The logs of one broker. ``watcher`` is told of truncations and deletions, when there is one.

    While `run` runs, ``on_flushed`` is called with a partition when more of its log is on disk, and ``on_offline`` with
    partitions whose logs cannot be used any more, and why. While `load` runs, ``on_log_opened`` is called for each log
    that was opened, in the thread that opened it, with how many there are in all.

    Args:
        directories: the data directories (``log.dirs``).
        defaults: what topics have when they say nothing.
        high_watermark_of: up to where records are committed, for retention; None for a partition that is not hosted.
            The end of the log when not given. May be set later.
    """

    # -- start and stop

    def start(self, topic_configs: TopicConfigs | None = None, topic_id_of: TopicIds | None = None) -> None:
        """`lock` and `load` in one, all in this thread."""
        self.lock()
        try:
            left, loaded = self._find(topic_configs, topic_id_of), list[LoadedLog]()
            for logs in left:
                self._open_found(logs, loaded, sum(map(len, left)))
            self._take_over(loaded)
        except BaseException:
            self._give_up()
            raise

    def lock(self) -> None:
        """Lock the data directories. One of several that cannot be used is offline.

        Raises:
            ConfigurationError: none can be used, or another broker uses one. Nothing stays locked.
        """
        try:
            for directory in self._directories:
                try:
                    directory.open()
                except KafkaStorageError as error:
                    if len(self._directories) == 1:
                        raise ConfigurationError(str(error)) from error
                    self._fail(directory, cause_of(error))
            self._check_any_is_online()
        except BaseException:
            self._release()
            raise

    def cannot_use(self, failed: Mapping[str, OSError]) -> None:
        """Take these data directories offline, in which somebody could not read or write, before `load`."""
        for path, error in failed.items():
            directory = self.data_directory(path)
            if directory is not None:
                self._fail(directory, error)

    async def load(self, topic_configs: TopicConfigs | None = None, topic_id_of: TopicIds | None = None) -> None:
        """Open every log, recovering those that a crash left behind: several at once, each in a thread.

        Cancelled, it ends with the logs that are being opened.

        Args:
            topic_configs: the configuration of a topic, as far as it has one of its own.
            topic_id_of: the id of the topic that a partition is of; None when there is no such partition. Of two logs
                of a partition, the one of another topic is put aside.

        Raises:
            ConfigurationError: a partition is in two directories, and nothing says which of the logs is the right one;
                or no directory can be used. Nothing stays locked.
            KafkaStorageError: as above. A single log that cannot be opened is offline: `create` says why.
        """
        run = self._world.run_in_thread
        try:
            found, loaded = await run(self._find, topic_configs, topic_id_of), list[LoadedLog]()
            count = sum(map(len, found))
            async with trio.open_nursery() as watched:
                watched.start_soon(_empty_when_cancelled, found)
                async with trio.open_nursery() as nursery:
                    for left in found:
                        for _ in range(min(self._config.recovery_threads_per_data_dir, len(left))):
                            nursery.start_soon(run, self._open_found, left, loaded, count)
                watched.cancel_scope.cancel()
            await run(self._take_over, loaded)
        except BaseException:
            self._give_up()
            raise

    def _find(self, topic_configs: TopicConfigs | None, topic_id_of: TopicIds | None) -> list[list[FoundLog]]:
        """The logs of each directory."""

        def config_of(topic: str) -> LogConfig:
            return self.config_for(topic_configs(topic) if topic_configs is not None else {})

        found: list[list[FoundLog]] = []
        self._settle_moves()
        for directory in self._online():
            try:
                here = find_logs(directory, config_of)
                self._doomed += [(self._world.wall_ms(), path) for path in directory.deleted_folders()]
                self._count_strays(directory)
            except OSError as error:
                self._fail(directory, error)
                continue
            found.append(here)
        return settle_twins(found, topic_id_of, self._world.storage, self._put_found_aside)

    def _count_strays(self, directory: LogDirectory) -> None:
        strays = directory.stray_folders()
        self._strays[directory.path] = len(strays)
        if strays:
            logger.warning(
                "%s has %d folders of logs that belong to no topic in the cluster, such as %s. Remove them when they "
                "are not needed.",
                directory.path,
                len(strays),
                strays[0],
            )

    def _put_found_aside(self, log: FoundLog) -> None:
        try:
            renamed = self._rename_away(log.topic_partition, log.directory, log.path, STRAY_SUFFIX)
            self._note_stray(log.directory, log.path, None, renamed)
        except KafkaStorageError as error:
            self._fail(log.directory, cause_of(error))

    def _settle_moves(self) -> None:
        """Bring moves between data directories to their end that a crash, or a stop, has cut short."""
        self._moves_again = []
        while True:
            try:
                settle_moves(
                    self._world.storage,
                    self._online(),
                    self._moves_again,
                    all_there=not self.offline_directories(),
                    new_name=lambda: self._world.uuid().hex,
                )
                return
            except UnsettledError as unsettled:
                self._fail(unsettled.directory, unsettled.error)

    def _open_found(self, left: list[FoundLog], loaded: list[LoadedLog], count: int) -> None:
        now_ms = self._world.wall_ms()

        def open_log(found: FoundLog, files: OpenFiles) -> PartitionLog:
            try:
                return self._open(found, files, clean=found.directory.clean, now_ms=now_ms)
            finally:
                if self.on_log_opened is not None:
                    self.on_log_opened(count)

        open_logs(self._world.storage, left, loaded, open_log, max(1, self._config.max_open_files // 8))

    def _take_over(self, loaded: list[LoadedLog]) -> None:
        for entry in sorted(loaded, key=lambda entry: entry.found.topic_partition):
            found, directory = entry.found, entry.found.directory
            if isinstance(entry.log, OfflineLog):
                directory.offline[found.topic_partition] = entry.log
            else:
                entry.log.adopt(self._files)
                self._host(found.topic_partition, entry.log, directory, entry.topic_id)
        changed = {
            entry.found.directory
            for entry in loaded
            if not isinstance(entry.log, OfflineLog)
            and (entry.log.recovery_point < entry.found.recovery_point or entry.log.lost_offsets)
        }
        for directory in self._online():
            try:
                # Else the checkpoint would vouch for what is appended there next; or not for the records behind a gap.
                if directory in changed:
                    directory.checkpoint_recovery_points()
                directory.forget_clean_stop()
            except KafkaStorageError as error:
                self._fail(directory, cause_of(error))
            except OSError as error:
                self._fail(directory, error)
        self._check_any_is_online()
        self._started = True
        for again in self._moves_again:
            if again.topic_partition in self._logs and not again.target.failure:
                self.mover.move(again.topic_partition, again.target.path)

    async def close(self) -> None:
        """Flush and close all logs, write the checkpoints, mark each directory as cleanly closed, and unlock.

        A directory with a log that cannot be closed gets no mark: it is recovered at the next start. Not cancelled.
        """
        if not self._started:
            self._give_up()  # the locks alone
            return
        self._started = False
        failed = {directory for directory in self._directories if directory.offline or directory.failure}
        # Logs are synced side by side, since the disk takes many requests at once.
        left = list(self._logs.items())
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for _ in range(min(_CLOSED_AT_ONCE, len(left))):
                    nursery.start_soon(self._close_logs, left, failed)
            for directory in self._online():
                try:
                    directory.checkpoint()
                    if directory not in failed:
                        directory.mark_clean_stop(self.broker_epoch)
                except (KafkaError, OSError) as error:
                    logger.error("%s could not be closed cleanly: %s", directory.path, error)
        self._give_up()

    def abandon(self) -> None:
        """Let go of all logs as a process that dies does: nothing is flushed or marked as closed, and the locks go."""
        self._started = False
        self._give_up()

    async def _close_logs(self, left: list[tuple[TopicPartition, Hosted]], failed: set[LogDirectory]) -> None:
        while left:
            topic_partition, hosted = left.pop()
            try:
                hosted.log.check_files()
                job = hosted.log.begin_close()
                if job is not None:
                    await self._world.run_in_thread(job.run)
                    hosted.log.flushed(job)
            except (KafkaError, OSError) as error:
                logger.error("%s could not be closed: %s", topic_partition, error)
                failed.add(hosted.directory)
            hosted.log.abandon()

    def _give_up(self) -> None:
        for hosted in self._logs.values():
            hosted.log.abandon()
        self._logs.clear()
        self._files.close_all()
        self._release()

    def _release(self) -> None:
        for directory in self._directories:
            directory.logs.clear()
            directory.offline.clear()
            directory.failure = ""
            directory.release()

    # -- background work

    async def run(self) -> None:
        """Retention, flushing and checkpoints, until cancelled. Failures are logged, and tried again next time."""
        config = self._config
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flusher.run)
            nursery.start_soon(self.mover.run)
            nursery.start_soon(self._report_offline)
            nursery.start_soon(self._report_gaps)
            nursery.start_soon(self._remove_leftover_folders)
            nursery.start_soon(self._every, config.retention_check_interval_ms, self._apply_retention)
            nursery.start_soon(self._every, min(config.flush_scheduler_interval_ms, FLUSH_TICK_MS), self.flush_due)
            nursery.start_soon(self._every, config.recovery_point_checkpoint_interval_ms, self.flush_sealed)
            nursery.start_soon(self._every, config.log_start_offset_checkpoint_interval_ms, self._checkpoint_starts)
            nursery.start_soon(self._every, config.producer_expiration_check_interval_ms, self._expire_producers)

    def clock_jumped(self) -> None:
        """The world's clock was put forward: look at once for what is due now."""
        self._clock_jumped.set()
        self._clock_jumped = trio.Event()

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        wait = self._config.initial_task_delay_ms / 1000
        while True:
            with trio.move_on_after(wait):
                await self._clock_jumped.wait()
            wait = interval_ms / 1000
            await work()

    async def _remove_leftover_folders(self) -> None:
        """Remove, in a thread, the folders of logs that were deleted before this start."""
        folders = self._take_deleted(self._world.wall_ms())
        if folders:
            await self._world.run_in_thread(_remove, self._world.storage, folders, [])

    async def _report_gaps(self) -> None:
        """Look once, in a thread, for offsets that are missing between segments, and report them."""
        for topic_partition, log in self.all().items():
            segments = log.segments
            bases = [segment.base_offset for segment in segments]
            if len(bases) < 2:
                continue
            find = partial(find_gaps, self._world.storage, log.directory, bases, compacted=log.config.compacts)
            try:
                gaps = await self._world.run_in_thread(find)
            except OSError as error:
                logger.error("%s: its segments cannot be checked for gaps: %s", topic_partition, error)
                continue
            for gap in gaps:
                replaced = log.config.compacts and log.segments[: len(segments)] != segments  # while they were read
                if gap.end > log.log_start_offset and self.get(topic_partition) is log and not replaced:
                    start = max(gap.start, log.log_start_offset)
                    log.add_lost_offsets(gap.end - start)
                    logger.error(
                        "%s: offsets %d to %d are missing after %s: %s. Readers go on at offset %d.",
                        topic_partition,
                        start,
                        gap.end - 1,
                        gap.path,
                        gap.reason,
                        gap.end,
                    )
        self.checked_for_gaps.set()

    async def _report_offline(self) -> None:
        while True:
            await self._went_offline.wait()
            self._went_offline = trio.Event()
            reports, self._gone_offline = self._gone_offline, []
            for gone, reason in reports:
                if self.on_offline is not None and gone:
                    self.on_offline(gone, reason)

    async def _apply_retention(self) -> None:
        """As `apply_retention`; others have their turn after each log, and files are removed in a thread: what is large
        takes long."""
        now_ms = self._world.wall_ms()
        folders, files = self._take_deleted(now_ms), list[str]()
        for topic_partition in list(self._logs):
            if not self._in_progress(topic_partition):
                self.apply_retention_to(topic_partition, remove_files=False)
            log = self.get(topic_partition)
            if log is not None:
                files += log.take_doomed_files(now_ms)
            await trio.lowlevel.checkpoint()
        if folders or files:
            await self._world.run_in_thread(_remove, self._world.storage, folders, files)

    def apply_retention(self) -> None:
        """Drop old segments of all logs, and the folders of deleted ones."""
        self.remove_deleted(self._world.wall_ms())
        for topic_partition in list(self._logs):
            if not self._in_progress(topic_partition):
                self.apply_retention_to(topic_partition)

    def _in_progress(self, topic_partition: TopicPartition) -> bool:
        """Whether somebody works on a log, who drops its old segments afterwards."""
        return self.watcher is not None and self.watcher.in_progress(topic_partition)

    def apply_retention_to(self, topic_partition: TopicPartition, *, remove_files: bool = True) -> None:
        """Drop old segments of one log; a failure is logged. ``remove_files`` as in `PartitionLog.apply_retention`."""
        committed = self.high_watermark_of(topic_partition) if self.high_watermark_of is not None else None
        hosted = self._logs.get(topic_partition)
        if hosted is None:
            return
        try:
            hosted.log.apply_retention(self._world.wall_ms(), up_to_offset=committed, remove_files=remove_files)
        except KafkaError as error:
            logger.error("retention of %s: %s", topic_partition, error)

    async def _expire_producers(self) -> None:
        """Forget producers that have been silent for too long, in all logs."""
        now_ms = self._world.wall_ms()
        for logs in self._portions():
            for log in logs:
                log.expire_producers(now_ms, self.producer_expiration_ms)
            await trio.lowlevel.checkpoint()

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the folders of deleted logs whose time has come."""
        _remove(self._world.storage, self._take_deleted(now_ms), [])

    def _take_deleted(self, now_ms: int) -> list[str]:
        due = [path for at, path in self._doomed if at <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        return due

    async def flush_due(self) -> None:
        """Flush the logs whose ``flush.ms`` is over."""
        due: list[PartitionLog] = []
        for logs in self._portions():
            now_ms = self._world.wall_ms()  # each time: to what was appended meanwhile, the clock would have gone back
            due += [log for log in logs if log.flush_due(now_ms)]
            await trio.lowlevel.checkpoint()
        await self._flusher.flush(log.flusher for log in due)
        await self._checkpoint_recovery_points()

    async def flush_sealed(self) -> None:
        """Flush segments that are not written to any more, so that recovery need not read them."""
        for logs in self._portions():
            for log in logs:
                self._check_files(log)
            await self._flusher.flush([log.flusher for log in logs if log.usable], sealed_only=True)
            await trio.lowlevel.checkpoint()
        await self._checkpoint_recovery_points()

    def _check_files(self, log: PartitionLog) -> None:
        hosted = self._logs.get(log.topic_partition)
        if hosted is None or hosted.log is not log:
            return
        try:
            log.check_files()
        except KafkaStorageError as error:
            self.lose(log.topic_partition, str(error))

    async def flush_sealed_of(self, topic_partition: TopicPartition) -> None:
        """`flush_sealed` for one log. A failure is logged."""
        log = self.get(topic_partition)
        await self._flusher.flush([log.flusher] if log is not None else [], sealed_only=True)
        await self._checkpoint_recovery_points()

    def _portions(self) -> list[list[PartitionLog]]:
        """The logs that there are now; others are to have their turn between two portions."""
        logs = list(self.all().values())
        return [logs[start : start + _SEEN_AT_ONCE] for start in range(0, len(logs), _SEEN_AT_ONCE)]

    async def _checkpoint_recovery_points(self) -> None:
        """Each directory's in one turn: no log is to be cut back between the points of it being read and written."""
        for directory in self._online():
            await trio.lowlevel.checkpoint()
            try:
                self._written(directory, directory.checkpoint_recovery_points)
            except KafkaError as error:
                logger.error("%s", error)

    async def _checkpoint_starts(self) -> None:
        for directory in self._online():
            try:
                self._written(directory, directory.checkpoint_start_offsets)
            except KafkaError as error:
                logger.error("%s", error)


async def _empty_when_cancelled(left: list[list[FoundLog]]) -> None:
    """Threads are not interrupted; they end when there is nothing left."""
    try:
        await trio.sleep_forever()
    finally:
        for logs in left:
            logs.clear()


def _remove(storage: Storage, folders: Sequence[str], files: Sequence[str]) -> None:
    """What cannot be removed is logged, and left to the next start."""
    for path in folders:
        try:
            storage.remove_tree(path)
        except OSError as error:
            logger.error("%s cannot be removed: %s", path, error)
    for path in files:
        try:
            storage.remove(path)
        except FileNotFoundError:
            pass  # of two files of the same name, one in the place of the other
        except OSError as error:
            logger.error("%s cannot be removed: %s", path, error)
