"""Disk errors of one log: temporary errors fail one call, lasting errors take the log offline.

A full disk, a file size limit (``ulimit -f``), and too many open files are temporary: the call fails, and the log stays
usable. Every other error is reported to the owner of the data directory, which takes it offline. After a failed sync,
or a partial change of several files, the log itself goes offline: the next sync would succeed without the data that the
failed one lost. Only reopening the log, with recovery, shows its content.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.structs import TopicPartition

_PASSING: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
)


def is_temporary(error: OSError) -> bool:
    """Whether the error is temporary: the same call may succeed once space or file handles are free."""
    return error.errno in _PASSING


def is_full(error: OSError) -> bool:
    """Whether the disk, or this user's part of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def out_of_files(error: OSError) -> bool:
    """Whether the error is too many open files. A sync that fails this way was not attempted, so no data is lost."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class LogDiskErrors:
    """Handles the disk errors of one log.

    ``failure`` is the error that took the log offline until it is reopened. Any thread may set it.

    Args:
        disk_failed: called with each lasting error, from within the failing call.
        disk_refused: called with each temporary error.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        disk_failed: Callable[[OSError], None] | None,
        disk_refused: Callable[[OSError], None] | None = None,
    ) -> None:
        self.failure: OSError | None = None
        self.closed = False
        self._topic_partition = topic_partition
        self._disk_failed = disk_failed
        self._disk_refused = disk_refused

    @property
    def usable(self) -> bool:
        """Whether the log is neither closed nor offline."""
        return not self.closed and self.failure is None

    def check(self) -> None:
        """Raise `KafkaStorageError` when the log is closed or offline."""
        if self.failure is not None:
            raise KafkaStorageError(
                f"the log of {self._topic_partition} is offline after a disk failure: {self.failure}"
            )
        if self.closed:
            raise KafkaStorageError(f"the log of {self._topic_partition} is closed")

    @contextmanager
    def during(self, action: str, *, or_offline: bool = False) -> Iterator[None]:
        """Convert `OSError` to `KafkaStorageError`; with ``or_offline``, an error also takes the log offline, since
        half of the action would damage it.

        A damaged batch (`CorruptRecordError`) may also interrupt an action.
        """
        try:
            yield
        except OSError as error:
            if or_offline:
                self.failure = error
            raise self.error(action, error) from error
        except CorruptRecordError as error:
            if or_offline:  # affects this log only: the disk works
                self.failure = OSError(errno.EIO, str(error))
            raise

    def error(self, action: str, error: OSError) -> KafkaStorageError:
        """Return the exception to raise for ``error``; report ``error`` unless the log is closed."""
        # The files of a closed log may be renamed or removed: such an error is not a disk failure.
        is_lasting = self.failure is not None or not is_temporary(error)
        report = self._disk_failed if is_lasting else self._disk_refused
        if report is not None and not self.closed:
            report(error)
        return KafkaStorageError(f"{action} of {self._topic_partition} failed: {error}")
