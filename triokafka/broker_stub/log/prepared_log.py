"""Logs that are made before their partitions are there, many at once and away from the event loop.

Making a log is a few files and a sync: little for one, but a topic may have thousands of partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_discovery import FoundLog
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.errors import KafkaStorageError

logger = logging.getLogger(__name__)

_Open = Callable[[FoundLog, UUID, OpenFiles, Callable[[OSError], None]], PartitionLog]


class PreparedLog:
    """A log that `HostedLogs.create` is about to be asked for.

    Args:
        disk_failed: told of errors of the disk once the log is in use; making it again meets an earlier one, too.
    """

    def __init__(self, found: FoundLog, topic_id: UUID, disk_failed: Callable[[OSError], None]) -> None:
        self.found = found
        self._topic_id = topic_id
        self._disk_failed = disk_failed
        self._log: PartitionLog | None = None
        self._in_use = False

    def make(self, open_log: _Open, files: OpenFiles) -> None:
        """Make it with files of this thread's own. One that cannot be made is left to `HostedLogs.create`."""
        try:
            self._log = open_log(self.found, self._topic_id, files, self._failed)
        except KafkaStorageError as error:
            logger.warning("%s; it is tried again", error)
        finally:
            files.close_all()

    def _failed(self, error: OSError) -> None:
        if self._in_use:
            self._disk_failed(error)

    def take_over(self, files: OpenFiles, topic_id: UUID | None, config: LogConfig | None) -> PartitionLog | None:
        """The log, if it is that of ``topic_id`` and can be used; None otherwise."""
        log = self._log
        if log is None or topic_id != self._topic_id or self.found.directory.failure:
            self.give_up()
            return None
        log.adopt(files)
        if config is not None and config is not log.config:
            log.update_config(config)
        self._in_use, self._log = True, None  # the log knows this
        return log

    def give_up(self) -> None:
        """It is not wanted any more. Its files stay, as those of a log that nobody hosts."""
        if self._log is not None:
            self._log.abandon()
            self._log = None


def prepare_logs(left: list[PreparedLog], open_log: _Open, files: OpenFiles) -> None:
    """Make logs, and take them from ``left``, until none is left. Several threads may do it."""
    while True:
        try:
            made = left.pop()
        except IndexError:
            return
        made.make(open_log, files)
