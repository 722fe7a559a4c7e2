"""The metadata log of a quorum of one: a record is committed when it is synced to the local disk."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from triokafka.broker_stub.controller import feature_updates
from triokafka.broker_stub.raft.metadata_log import MetadataLogListener
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.records import encode_leader_change, encode_records
from triokafka.broker_stub.metadata.replay import LogReplay
from triokafka.broker_stub.metadata.snapshots import Quorum
from triokafka.broker_stub.raft.metadata_log_files import MetadataLogFiles
from triokafka.broker_stub.raft.quorum_state import ElectionState
from triokafka.broker_stub.raft.quorum_state_file import QuorumStateFile
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.errors import CorruptRecordError, KafkaError, KafkaStorageError, NotControllerError, ProtocolError
from triokafka.protocol.message import Struct
from triokafka.world import World

logger = logging.getLogger(__name__)


class LocalMetadataLog:
    """A `MetadataLog` over the files of this node. One sync commits everything appended before it began.

    Run `run` in a nursery: it syncs, in a thread. After a failed append or sync the log drops all uncommitted
    records. If that fails, too, the content of the disk is unknown, and ``failure`` is set until the next start.

    ``committed_bytes`` counts the bytes committed since the start.
    """

    def __init__(self, world: World, files: MetadataLogFiles, epoch: int, listener: MetadataLogListener) -> None:
        self.committed_bytes = 0
        self.failure: KafkaStorageError | None = None
        self._world = world
        self._files = files
        self._epoch = epoch
        self._listener = listener
        self._committed_end = files.end_offset
        self._uncommitted_bytes = 0
        self._append_error: Exception | None = None
        self._stopped = False
        self._appended = trio.Event()

    @property
    def end_offset(self) -> int:
        """See `MetadataLog`."""
        return self._files.end_offset

    def append(self, records: Sequence[Struct], epoch: int, *, metadata_version: int) -> int:
        """See `MetadataLog.append`."""
        if self._stopped or epoch != self._epoch:
            raise NotControllerError(f"this node does not lead the metadata log in epoch {epoch}")
        if self._append_error is not None:
            raise _not_written(self._append_error)
        files, now_ms = self._files, self._world.wall_ms()
        try:
            batch = encode_records(
                records,
                base_offset=files.end_offset,
                epoch=epoch,
                timestamp_ms=now_ms,
                metadata_version=metadata_version,
            )
            files.append(batch, now_ms=now_ms)
        except (OSError, KafkaError) as error:
            self._append_error = error.with_traceback(None)  # its frames refer to the caller, which refers to the error
            raise _not_written(error) from None
        else:
            self._uncommitted_bytes += len(batch)
        finally:
            self._appended.set()
        return files.end_offset

    async def run(self) -> None:
        """Sync appended records until cancelled. Before it ends, it syncs the rest and reports lost leadership."""
        try:
            while True:
                await self._appended.wait()
                await self._commit()
        finally:
            try:
                await self._commit()
            finally:
                self._stopped = True
                self._listener.lost_leadership(self._epoch)

    async def _commit(self) -> None:
        """Sync and report. Shielded from cancellation: the result of a started sync must be known."""
        self._appended = trio.Event()
        files, end_offset, size = self._files, self._files.end_offset, self._uncommitted_bytes
        error = self._append_error
        if error is None and end_offset > self._committed_end:
            try:
                job = files.begin_flush()
                if job is not None:
                    with trio.CancelScope(shield=True):
                        await self._world.run_in_thread(job.run)
                    files.flushed(job)
            except (OSError, KafkaError) as failure:
                error = failure.with_traceback(None)
            else:
                self._committed_end = end_offset
                self.committed_bytes += size
                self._uncommitted_bytes -= size
                self._listener.committed(end_offset)
        if error is not None:
            self._drop_uncommitted(error)

    def _drop_uncommitted(self, error: Exception) -> None:
        files = self._files
        logger.error("Metadata log %s: write failed: %s", files.directory, error)
        self._append_error, self._uncommitted_bytes = None, 0
        try:
            files.truncate_to(self._committed_end)
        except (OSError, KafkaError) as truncation_error:
            # The disk may have records whose operations failed: no append may follow them.
            logger.critical(
                "Metadata log %s: cannot be truncated to offset %d: %s. It accepts no records until a restart",
                files.directory,
                self._committed_end,
                truncation_error,
            )
            self.failure = KafkaStorageError(f"the metadata log is closed for writes until a restart, after: {error}")
        self._listener.rolled_back(_not_written(error))


def _not_written(error: Exception) -> KafkaStorageError:
    return KafkaStorageError(f"the metadata log could not be written: {error}")


def load(files: MetadataLogFiles, now_ms: int) -> tuple[LogReplay, int]:
    """Replay the newest snapshot and the log after it; return the replay and the end offset of the snapshot.

    Raises:
        KafkaStorageError: a file cannot be read, or records are missing.
    """
    replay = LogReplay()
    start = files.start_offset
    try:
        files.reconcile(alone=True, now_ms=now_ms)
        newest = files.latest_snapshot_id()
        if newest is not None:
            replay.load(files.snapshots.read(newest).batches, end_offset=newest.end_offset, epoch=newest.epoch)
            start = newest.end_offset
        replay.replay(files.read_all(from_offset=start))
    except CorruptRecordError as error:
        raise files.damaged(f"{files.directory}: {error}") from error
    except (OSError, ValueError, ProtocolError) as error:
        raise KafkaStorageError(f"{files.directory}: {error}") from error
    return replay, start


def begin_epoch(
    files: MetadataLogFiles,
    quorum_state: QuorumStateFile,
    image: MetadataImage,
    voter: Quorum,
    *,
    now_ms: int,
    first_min_insync_replicas: str | None = None,
) -> MetadataImage:
    """Begin a new epoch in the log; return the image with it.

    With ``first_min_insync_replicas`` the log is new and also gets the cluster's first records.

    Raises:
        KafkaStorageError: the disk failed.
    """
    stored = quorum_state.read()
    epoch = max(0 if stored is None else stored.epoch, image.epoch) + 1
    replay = LogReplay(image)
    first = first_min_insync_replicas is not None
    node_id, directory_id, kraft_version, endpoints = voter
    try:
        state = ElectionState(epoch, node_id, ReplicaKey(node_id, directory_id))
        quorum_state.write(state, kraft_version=kraft_version, voter_ids=[node_id])
        start = files.end_offset
        opening = encode_leader_change(
            node_id,
            directory_id,
            base_offset=start,
            epoch=epoch,
            timestamp_ms=now_ms,
            kraft_version=kraft_version if first else 0,
            endpoints=endpoints,
        )
        files.append(opening, now_ms=now_ms)
        if first_min_insync_replicas is not None:
            batch = encode_records(
                feature_updates.initial_records(first_min_insync_replicas),
                base_offset=files.end_offset,
                epoch=epoch,
                timestamp_ms=now_ms,
                metadata_version=features.metadata_version(features.INITIAL_LEVELS),
            )
            files.append(batch, now_ms=now_ms)
        job = files.begin_flush()
        if job is not None:
            job.run()
            files.flushed(job)
    except OSError as error:
        raise KafkaStorageError(f"{files.directory}: {error}") from error
    replay.replay(files.read_all(from_offset=start))
    return replay.image
