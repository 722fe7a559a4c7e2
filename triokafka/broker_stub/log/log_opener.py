"""Opening the logs of a broker with its shared open files, checkpoints and flush scheduler."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from triokafka.broker_stub.log.cleaner.cleaning_progress import CleaningProgress
from triokafka.broker_stub.log.flush_threads import FlushThreads
from triokafka.broker_stub.log.high_watermark_checkpoint import lower_high_watermark
from triokafka.broker_stub.log.log_directories import LogDirectories
from triokafka.broker_stub.log.log_directory import LogDirectory
from triokafka.broker_stub.log.log_discovery import FoundLog
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.structs import TopicPartition
from triokafka.world import World


class LogOpener:
    """Opens logs. ``producer_expiration_ms`` may be changed at any time."""

    def __init__(
        self,
        world: World,
        directories: LogDirectories,
        scheduler: FlushThreads,
        cleaning: CleaningProgress,
        *,
        producer_expiration_ms: int,
    ) -> None:
        self.producer_expiration_ms = producer_expiration_ms
        self._world = world
        self._directories = directories
        self._scheduler = scheduler
        self._cleaning = cleaning

    def open(
        self,
        found: FoundLog,
        files: OpenFiles,
        *,
        clean: bool,
        replicated: bool = False,
        disk_failed: Callable[[OSError], None] | None = None,
    ) -> PartitionLog:
        """Open a log; create it when it does not exist. Raises `KafkaStorageError`.

        Args:
            clean: the log was closed cleanly.
            replicated: see `PartitionLog.open`.
            disk_failed: called with a lasting disk failure; by default, the directory goes offline.
        """
        directories, directory = self._directories, found.directory
        return PartitionLog.open(
            self._world.storage,
            found.path,
            found.topic_partition,
            found.config,
            now_ms=self._world.wall_ms(),
            recovery_point=found.recovery_point,
            high_watermark=found.high_watermark,
            log_start_offset=found.log_start_offset,
            clean=clean,
            replicated=replicated,
            producer_expiration_ms=self.producer_expiration_ms,
            before_cut=partial(self._before_cut, directory, found.topic_partition),
            checkpoint_start=partial(directories.write, directory, directory.checkpoint_start_offsets),
            request_flush=self._scheduler.request,
            disk_failed=partial(directories.fail, directory) if disk_failed is None else disk_failed,
            disk_refused=partial(directories.refused, directory),
            files=files,
        )

    def _before_cut(self, directory: LogDirectory, topic_partition: TopicPartition, offset: int) -> None:
        """Limit the checkpoints of a log to ``offset``, before its truncation to that offset."""
        directories = self._directories
        directories.write(directory, directory.checkpoint)
        directories.write(directory, partial(lower_high_watermark, directory, topic_partition, offset))
        log = directories.log(topic_partition)
        if log is not None:
            self._cleaning.log_truncated(topic_partition, directory.path, log.recovery_point)
