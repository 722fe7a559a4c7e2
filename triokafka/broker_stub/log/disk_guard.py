"""What an error of the disk means for a log: one refused call, or the end of its use.

A full disk, a file that may not grow (``ulimit -f``), and a process that has too many files open get better: the call
fails, the log goes on. After anything else the disk is not to be trusted; whoever keeps the data directory is told.
After a sync that failed, or a change of several files that came a part of the way, the log itself is not to be trusted:
the next sync would succeed without what the failed one has lost, so only opening the log again, with recovery, shows
what there is.
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


def gets_better(error: OSError) -> bool:
    """Whether the same call may succeed later, without anybody repairing anything but the lack of room."""
    return error.errno in _PASSING


def out_of_files(error: OSError) -> bool:
    """Whether no file could be opened because too many are. As part of a sync: none was tried, so nothing is lost."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class DiskGuard:
    """The errors of one log.

    ``failure`` is the error after which the log must not be used until it was opened again; setting it is enough, also
    from another thread.

    ``on_refusal``, when it is set, is called with an error that gets better.

    Args:
        tell: called with an error that does not get better, in the middle of the call that met it.
    """

    def __init__(self, topic_partition: TopicPartition, tell: Callable[[OSError], None] | None) -> None:
        self.failure: OSError | None = None
        self.closed = False
        self.on_refusal: Callable[[OSError], None] | None = None
        self._topic_partition = topic_partition
        self._tell = tell

    @property
    def usable(self) -> bool:
        """Whether the log is neither closed nor offline."""
        return not self.closed and self.failure is None

    def check(self) -> None:
        """Raise `KafkaStorageError` when the log is closed or offline."""
        if self.failure is not None:
            raise KafkaStorageError(
                f"the log of {self._topic_partition} is offline since its disk failed: {self.failure}"
            )
        if self.closed:
            raise KafkaStorageError(f"the log of {self._topic_partition} is closed")

    @contextmanager
    def during(self, action: str, *, or_offline: bool = False) -> Iterator[None]:
        """Turn `OSError` into `KafkaStorageError`; ``or_offline`` when half of the action would be a damage.

        A damaged batch, `CorruptRecordError`, may cut an action short as well.
        """
        try:
            yield
        except OSError as error:
            if or_offline:
                self.failure = error
            raise self.error(action, error) from error
        except CorruptRecordError as error:
            if or_offline:  # this log alone: the disk has answered
                self.failure = OSError(errno.EIO, str(error))
            raise

    def error(self, action: str, error: OSError) -> KafkaStorageError:
        """What to raise for ``error``, which is told to whom it concerns, unless the log was closed."""
        # Of a log that was closed, the files may be renamed or gone: that is no fault of the disk.
        tell = self._tell if self.failure is not None or not gets_better(error) else self.on_refusal
        if tell is not None and not self.closed:
            tell(error)
        return KafkaStorageError(f"{action} of {self._topic_partition} failed: {error}")
