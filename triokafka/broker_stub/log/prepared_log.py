"""Logs created in threads, in parallel, before their partitions exist.

Creating a log takes a few files and a sync. That is cheap for one log, but a topic may have thousands of partitions.
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
    """A log for `LogCreator.create` to take over.

    Args:
        disk_failed: called with disk errors once the log is in use. Creating the log again shows earlier errors.
    """

    def __init__(self, found: FoundLog, topic_id: UUID, disk_failed: Callable[[OSError], None]) -> None:
        self.found = found
        self._topic_id = topic_id
        self._disk_failed = disk_failed
        self._log: PartitionLog | None = None
        self._in_use = False

    def make(self, open_log: _Open, files: OpenFiles) -> None:
        """Create the log with this thread's ``files``. If that fails, `LogCreator.create` tries again."""
        try:
            self._log = open_log(self.found, self._topic_id, files, self._failed)
        except KafkaStorageError as error:
            logger.warning("%s. The log's creation is retried.", error)
        finally:
            files.close_all()

    def _failed(self, error: OSError) -> None:
        if self._in_use:
            self._disk_failed(error)

    def take_over(self, files: OpenFiles, topic_id: UUID | None, config: LogConfig | None) -> PartitionLog | None:
        """Return the log if it is usable and belongs to ``topic_id``; None otherwise."""
        log = self._log
        if log is None or topic_id != self._topic_id or self.found.directory.failure:
            self.give_up()
            return None
        log.adopt(files)
        if config is not None and config is not log.config:
            log.update_config(config)
        self._in_use, self._log = True, None  # the log reports disk errors from now on
        return log

    def give_up(self) -> None:
        """Close an unused log. Its files stay, as those of a log that is not hosted."""
        if self._log is not None:
            self._log.abandon()
            self._log = None


def prepare_logs(left: list[PreparedLog], open_log: _Open, files: OpenFiles) -> None:
    """Create the logs in ``left`` and remove them from it, until it is empty. Several threads may run this."""
    while True:
        try:
            made = left.pop()
        except IndexError:
            return
        made.make(open_log, files)
