"""The recovery point of a log, and the syncs that advance it.

A flush begins in the log's thread. Its slow part may run in another thread, while appends continue. It ends in the
log's thread, which sets the recovery point to the log end offset at the beginning of the flush.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.log_disk_errors import LogDiskErrors, out_of_files
from triokafka.broker_stub.log.log_segments import LogSegments
from triokafka.broker_stub.log.partition_metadata import PARTITION_METADATA
from triokafka.world import Storage


@dataclass(slots=True, eq=False)
class FlushJob:
    """The syncs of one flush. Call `run`, in any thread, and then `LogFlusher.flushed` in the log's thread.

    If a job never runs, the next job includes its syncs.
    """

    end_offset: int
    cuts: int
    syncs: list[Callable[[], None]]
    guard: LogDiskErrors
    unflushed_since_ms: int | None

    def run(self) -> None:
        """Sync. Raises `OSError`; the log is offline then, since a later sync would succeed without the lost data.

        Exception: after too many open files the log stays online, and the next job syncs the rest.
        """
        try:
            for sync in self.syncs:
                sync()
        except OSError as error:
            if not out_of_files(error):
                self.guard.failure = error
            raise


class Durability:
    """The durable part of a log, and its unfinished syncs.

    ``recovery_point``: every record below it is on disk. ``cuts`` counts truncations; after one, the same offsets may
    have other records. ``unflushed_since_ms``: the time of the oldest append that no flush has begun to sync.
    ``names_unsynced``: files were created or renamed since the directory was synced.
    """

    def __init__(self, storage: Storage, directory: str, guard: LogDiskErrors) -> None:
        self.recovery_point = 0
        self.cuts = 0
        self.names_unsynced = True  # also of an existing folder, which its creator may not have synced
        self.unflushed_since_ms: int | None = None
        self._storage = storage
        self._directory = directory
        self._guard = guard
        self._begun: list[FlushJob] = []

    def appended(self, now_ms: int) -> None:
        """Note an append, which needs a flush."""
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms

    def cut_at(self, offset: int) -> None:
        """Note a truncation to ``offset``."""
        self.cuts += 1
        self.recovery_point = min(self.recovery_point, offset)

    def begin(self, end_offset: int, segments: LogSegments, epochs: LeaderEpochs, *, sealed_only: bool) -> FlushJob:
        """Prepare to sync everything below ``end_offset``. Raises `OSError`."""
        epochs.write()
        # Earlier jobs may not have finished; the last one includes the syncs of all before it.
        syncs = list(self._begun[-1].syncs) if self._begun else []
        syncs += segments.begin_sync(sealed_only=sealed_only)
        if epochs.unsynced:
            syncs.append(partial(sync_path, self._storage, epochs.path))
            self.names_unsynced = True
            epochs.unsynced = False
        if self.names_unsynced:
            syncs.append(self.sync_names)
        job = FlushJob(end_offset, self.cuts, syncs, self._guard, self.unflushed_since_ms)
        if not sealed_only:
            self.unflushed_since_ms = None
        self._begun.append(job)
        return job

    def sync_names(self) -> None:
        """Sync the directory entries of the log's files and folder, and ``partition.metadata``.

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
        """Note that ``job.run()`` failed because too many files are open: its syncs are still due."""
        if job.unflushed_since_ms is not None:
            self.unflushed_since_ms = job.unflushed_since_ms

    def finished(self, job: FlushJob) -> None:
        """Note that ``job.run()`` has succeeded."""
        if job in self._begun:
            del self._begun[: self._begun.index(job) + 1]  # it included the jobs before it
        if job.cuts == self.cuts:  # otherwise these offsets may have other records now
            self.recovery_point = max(self.recovery_point, job.end_offset)
