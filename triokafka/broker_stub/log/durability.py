"""How much of a log is on disk: the recovery point, and the syncs that move it.

A flush has a beginning in the log's thread, a slow part that may run in another one while appends go on, and an end in
the log's thread again, which moves the recovery point to where the log ended at the beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from triokafka.broker_stub.log.checkpoints import PARTITION_METADATA, sync_path
from triokafka.broker_stub.log.disk_guard import DiskGuard, out_of_files
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.log_segments import LogSegments
from triokafka.world import Storage


@dataclass(slots=True, eq=False)
class FlushJob:
    """What a flush has to sync: `run` may be called in a thread, then `LogFlusher.flushed` in the log's.

    A job that is never run is done by the next one.
    """

    end_offset: int
    cuts: int
    syncs: list[Callable[[], None]]
    guard: DiskGuard
    unflushed_since_ms: int | None

    def run(self) -> None:
        """Sync. Raises `OSError`; the log is offline then, for the next sync would succeed without what is lost.

        Not for want of files: the next job does what this one could not.
        """
        try:
            for sync in self.syncs:
                sync()
        except OSError as error:
            if not out_of_files(error):
                self.guard.failure = error
            raise


class Durability:
    """What of a log is on disk, or about to be.

    ``recovery_point``: everything below is on disk. ``cuts`` counts how often the log was cut at its end, after which
    its offsets may have other records. ``names_unsynced``: files were made or renamed.
    """

    def __init__(self, storage: Storage, directory: str, guard: DiskGuard) -> None:
        self.recovery_point = 0
        self.cuts = 0
        self.names_unsynced = True  # also of a folder that is there: who made it may have died before syncing it
        self._unflushed_since_ms: int | None = None
        self._storage = storage
        self._directory = directory
        self._guard = guard
        self._begun: list[FlushJob] = []

    def appended(self, now_ms: int) -> None:
        """There is something to flush."""
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms

    def due(self, now_ms: int, flush_ms: int) -> bool:
        """Whether the oldest record that is not on disk has waited for ``flush_ms``."""
        since = self._unflushed_since_ms
        return since is not None and not 0 <= now_ms - since < flush_ms  # the clock may have been put back

    def cut_at(self, offset: int) -> None:
        """The log gives up what is at and after ``offset``."""
        self.cuts += 1
        self.recovery_point = min(self.recovery_point, offset)

    def begin(self, end_offset: int, segments: LogSegments, epochs: LeaderEpochs, *, sealed_only: bool) -> FlushJob:
        """Prepare to sync everything below ``end_offset``. Raises `OSError`."""
        epochs.write()
        # It is not known that what was begun came to its end; the last job has all of those before it.
        syncs = list(self._begun[-1].syncs) if self._begun else []
        syncs += segments.begin_sync(sealed_only=sealed_only)
        if epochs.unsynced:
            syncs.append(partial(sync_path, self._storage, epochs.path))
            self.names_unsynced = True
            epochs.unsynced = False
        if self.names_unsynced:
            syncs.append(self.sync_names)
        job = FlushJob(end_offset, self.cuts, syncs, self._guard, self._unflushed_since_ms)
        if not sealed_only:
            self._unflushed_since_ms = None
        self._begun.append(job)
        return job

    def sync_names(self) -> None:
        """Make the names of the log's files, and of its folder, durable, and to which topic they belong.

        Raises:
            OSError: the disk failed.
        """
        self.names_unsynced = False
        try:
            sync_path(self._storage, f"{self._directory}/{PARTITION_METADATA}")
            self._storage.sync_dir(self._directory)
            self._storage.sync_dir(os.path.dirname(self._directory))
        except OSError:
            self.names_unsynced = True
            raise

    def put_off(self, job: FlushJob) -> None:
        """``job.run()`` has failed for want of files: what it was to flush is still due."""
        if job.unflushed_since_ms is not None:
            self._unflushed_since_ms = job.unflushed_since_ms

    def finished(self, job: FlushJob) -> None:
        """``job.run()`` has succeeded."""
        if job in self._begun:
            del self._begun[: self._begun.index(job) + 1]  # those before it were a part of it
        if job.cuts == self.cuts:  # else these offsets may hold other records by now
            self.recovery_point = max(self.recovery_point, job.end_offset)
