"""Moving logs from one data directory to another while they are in use (KIP-113).

Threads read the log, and write and sync a copy in the other directory, in a folder whose name ends with ``-future``.
When the copy is nearly complete and on disk, the event loop copies the rest and replaces the log by the copy between
two requests. `triokafka.broker_stub.log.move_recovery` describes the state after a crash: the next start begins an
unfinished move again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from triokafka.broker_stub.log.future_log_promotion import FutureLogPromotion, UnclearMoveError
from triokafka.broker_stub.log.io_throttle import Throttle
from triokafka.broker_stub.log.log_directories import HostedLog, LogDirectories
from triokafka.broker_stub.log.log_directory import FUTURE_SUFFIX, LogDirectory, renamed_folder
from triokafka.broker_stub.log.log_disk_errors import is_temporary
from triokafka.broker_stub.log.page_cache import ColdReadError
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.partition_metadata import PARTITION_METADATA, write_topic_id
from triokafka.broker_stub.log.pending_moves import PendingMove, PendingMoves
from triokafka.errors import (
    InvalidReplicationAssignmentError,
    KafkaError,
    KafkaStorageError,
    LogDirNotFoundError,
    ReplicaNotAvailableError,
)
from triokafka.named_tuple import NamedTuple
from triokafka.records import iter_batches
from triokafka.structs import Buffer, TopicPartition
from triokafka.world import FileSlice, World

logger = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 1 << 20
_LAST_BYTES: Final = 1 << 19
"""The most bytes that the event loop copies and syncs at the end of a move, while all requests wait."""
_NEVER: Final = 2**63 - 1


class FutureLog(NamedTuple):
    """An unfinished copy: its data directory, its size in bytes, and its lag in offsets."""

    topic_partition: TopicPartition
    directory: str
    size: int
    behind: int


class _LogRemovedError(Exception):
    """The log was closed, deleted or replaced during its move."""


class LogMover:
    """Moves logs while `run` is running.

    Args:
        moves_at_once: the number of parallel moves (``num.replica.alter.log.dirs.threads``); further moves wait.
    """

    def __init__(
        self,
        world: World,
        directories: LogDirectories,
        moves: PendingMoves,
        promotion: FutureLogPromotion,
        *,
        moves_at_once: int,
    ) -> None:
        self.bytes_per_second = float("inf")
        """The limit of all moves together (``replica.alter.log.dirs.io.max.bytes.per.second``); may be changed."""
        self._world = world
        self._directories = directories
        self._promotion = promotion
        self._moves_at_once = moves_at_once
        self._moves = moves
        self._active = 0
        self._throttle = Throttle()
        self._wake = trio.Event()

    # -- requests

    def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Schedule the move of a log to the data directory ``path``; do nothing if it is already there.

        A move of that log to another directory is cancelled.

        Raises:
            LogDirNotFoundError: there is no such data directory.
            KafkaStorageError: the data directory is offline.
            InvalidReplicationAssignmentError: the data directory is cordoned.
            ReplicaNotAvailableError: there is no log of that partition.
        """
        target = self._directories.get(path)
        if target is None:
            raise LogDirNotFoundError(f"{path} is not in log.dirs")
        if target.failure:
            raise KafkaStorageError(target.failure)
        if target.path in self._directories.cordoned:
            raise InvalidReplicationAssignmentError(f"the data directory {path} is cordoned (cordoned.log.dirs)")
        hosted = self._directories.hosted.get(topic_partition)
        if hosted is None:
            raise ReplicaNotAvailableError(f"there is no log of {topic_partition} here")
        move = self._moves.get(topic_partition)
        if move is not None and move.target is target:
            return
        self._moves.give_up(topic_partition)
        if hosted.directory is not target:
            name = renamed_folder(topic_partition, self._world.uuid().hex, FUTURE_SUFFIX)
            self._moves.add(PendingMove(topic_partition, target, f"{target.path}/{name}"))
            self._wake.set()

    def future_logs(self) -> Iterator[FutureLog]:
        """Yield the current copies."""
        for move in self._moves:
            log = self._directories.log(move.topic_partition)
            if log is not None:
                start, end = log.log_start_offset, log.log_end_offset
                size, copied = (0, start) if move.copy is None else (move.copy.size, move.copy.log_end_offset)
                yield FutureLog(move.topic_partition, move.target.path, size, max(end - copied, 0))

    # -- the work

    async def run(self) -> None:
        """Do the scheduled moves until cancelled. A failed move is logged and cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wake = trio.Event()
                for move in self._moves:
                    if not move.begun and self._active < self._moves_at_once:
                        move.begun = True
                        self._active += 1
                        nursery.start_soon(self._carry_out, move)
                await self._wake.wait()

    async def _carry_out(self, move: PendingMove) -> None:
        done = stays = False
        try:
            with move.scope:
                await self._copy(move)
                done = True
        except (_LogRemovedError, KafkaError, OSError) as error:
            stays = isinstance(error, UnclearMoveError)
            logger.error(
                "%s: the move to %s failed; the log stays in its directory: %s",
                move.topic_partition,
                move.target.path,
                error,
            )
        except trio.Cancelled:
            stays = True  # the broker stops: with the folder, the next start begins the move again
            raise
        finally:
            if move.copy is not None:
                move.copy.abandon()
            if done:
                logger.info("%s was moved to %s", move.topic_partition, move.target.path)
            elif not stays:
                with trio.CancelScope(shield=True):
                    await self._remove(move.folder)
            if self._moves.get(move.topic_partition) is move:
                self._moves.ended(move.topic_partition)
            self._active -= 1
            self._wake.set()

    async def _remove(self, folder: str) -> None:
        try:
            await self._world.run_in_thread(self._world.storage.remove_tree, folder)
        except OSError as error:
            logger.error("%s cannot be removed; the next start tries again: %s", folder, error)

    async def _copy(self, move: PendingMove) -> None:
        run = self._world.run_in_thread
        hosted = self._hosted(move)
        source = hosted.log
        with self._on_disk_of(move.target):
            copy = move.copy = await run(self._make, move, hosted)
        cuts = -1  # truncations of the source when the copy began
        while True:
            self._hosted(move, source)
            afresh = source.cuts != cuts or copy.log_end_offset < source.log_start_offset
            cuts = source.cuts
            at = source.log_start_offset if afresh else copy.log_end_offset
            data = await self._read(source, at)
            if source.cuts != cuts:
                cuts = -1  # a truncation may have removed the records just read
            elif len(data) or afresh:
                with self._on_disk_of(move.target):
                    await run(_append, copy, data, at if afresh else None)
                rate = max(self.bytes_per_second, 1.0)
                await trio.sleep(self._throttle.wait_for(len(data), rate, self._world.now()))
            else:
                with self._on_disk_of(move.target):
                    job = copy.begin_flush()
                    if job is not None:
                        await run(job.run)
                        copy.flushed(job)
                self._hosted(move, source)
                start, end, copied = source.log_start_offset, source.log_end_offset, copy.log_end_offset
                whole = source.cuts == cuts and start <= copied
                if whole and source.bytes_between(copied, end, _LAST_BYTES + 1) <= _LAST_BYTES:
                    self._finish(move, source, copy)
                    return

    def _make(self, move: PendingMove, hosted: HostedLog) -> PartitionLog:
        """Create an empty copy. Only this task syncs it."""
        storage = self._world.storage
        config = hosted.log.config._replace(flush_messages=_NEVER, flush_ms=_NEVER)
        copy = PartitionLog.open(storage, move.folder, move.topic_partition, config, now_ms=self._world.wall_ms())
        if hosted.topic_id is not None:
            write_topic_id(storage, f"{move.folder}/{PARTITION_METADATA}", hosted.topic_id)
        return copy

    def _hosted(self, move: PendingMove, known: PartitionLog | None = None) -> HostedLog:
        """Return the log to be moved, with its directory. Raises `_LogRemovedError` when there is none, or it is not
        ``known``.
        """
        hosted = self._directories.hosted.get(move.topic_partition)
        if hosted is None or (known is not None and hosted.log is not known):
            raise _LogRemovedError("the log is gone")
        return hosted

    async def _read(self, source: PartitionLog, offset: int) -> Buffer:
        """Read batches of a log from ``offset`` on; return nothing at its end."""
        while source.log_start_offset <= offset < source.log_end_offset:
            try:
                found = source.read_to_send(offset, _CHUNK_BYTES, up_to_offset=source.log_end_offset).records
            except ColdReadError as cold:
                await self._world.run_in_thread(cold.warm)
                continue
            return await self._world.run_in_thread(found.read) if isinstance(found, FileSlice) else found
        return b""

    def _finish(self, move: PendingMove, source: PartitionLog, copy: PartitionLog) -> None:
        """Copy the rest, and replace the log by the copy, without a checkpoint in between."""
        while copy.log_end_offset < source.log_end_offset:
            data = source.read(copy.log_end_offset, _CHUNK_BYTES).records
            with self._on_disk_of(move.target):
                if len(data):
                    copy.append_as_follower(data)
                else:  # only offsets without records are left
                    copy.skip_to(source.log_end_offset, now_ms=self._world.wall_ms())
        with self._on_disk_of(move.target):
            copy.advance_log_start_offset(source.log_start_offset)
            copy.close()
        self._promotion.promote(move.topic_partition, copy, move.target)

    @contextmanager
    def _on_disk_of(self, target: LogDirectory) -> Iterator[None]:
        """Attribute errors within the block to the disk of ``target``."""
        try:
            yield
        except (KafkaStorageError, OSError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and not is_temporary(cause):
                self._directories.fail(target, cause)
            raise


def _append(copy: PartitionLog, data: Buffer, start_offset: int | None) -> None:
    """Append batches to a copy; with ``start_offset``, they are the first ones of a log that starts there."""
    if start_offset is not None:
        first = next(iter_batches(data), None)
        # The log start offset may lie within a batch, or in a gap that compaction left before the first batch.
        copy.truncate_fully_and_start_at(start_offset if first is None else min(start_offset, first.base_offset))
    if len(data):
        copy.append_as_follower(data)
