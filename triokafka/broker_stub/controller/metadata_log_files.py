"""The files of the metadata log: ``__cluster_metadata-0`` with its records and snapshots, and ``quorum-state``.

Calls block, some of them on the disk; the caller chooses the thread. A batch is durable once a sync that began after
its append has returned.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from typing import Final, TypeAlias

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.damage import DAMAGED_SUFFIX, DamagedLogError
from triokafka.broker_stub.log.durability import FlushJob
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.metadata import topic_names
from triokafka.broker_stub.metadata.records import LogBatch, decode_batches
from triokafka.broker_stub.metadata.snapshots import SnapshotFiles, SnapshotId
from triokafka.errors import ConfigurationError, KafkaError
from triokafka.structs import Buffer, TopicPartition, format_uuid
from triokafka.world import Storage

PARTITION: Final = TopicPartition(topic_names.CLUSTER_METADATA_TOPIC, 0)
QUORUM_STATE_FILE: Final = "quorum-state"
SyncJob: TypeAlias = FlushJob
_READ_BYTES: Final = 1 << 20
_MAX_EPOCH: Final = 2**31 - 1
KEEP_ALL: Final = LogConfig(retention_ms=-1, retention_bytes=-1, segment_ms=2**63 - 1, cleanup_policy=("delete",))
"""The default configuration of a metadata log: one segment without retention."""


class MetadataLogFiles:
    """The log and the voter's own state.

    ``snapshots`` are the files beside the log; ``last_append_ms`` is the time of the last append (-1: none).

    Args:
        directory: the data directory that holds the log's folder.
        config: determines when segments are rolled. Only `clean` deletes segments.
        committed: the checkpointed offset up to which all records are known to be committed.
        repair: truncate the log at its damage and keep the cut bytes in a file, instead of raising.

    Raises:
        DamagedLogError: the log is damaged, beyond a torn tail. The message names the file, the position and the
            remedy.
        KafkaStorageError: the disk failed.
    """

    def __init__(
        self,
        storage: Storage,
        directory: str,
        *,
        now_ms: int,
        config: LogConfig = KEEP_ALL,
        committed: int = 0,
        repair: bool = False,
    ) -> None:
        self.directory = os.path.join(directory, str(PARTITION))
        self._storage = storage
        storage.make_dirs(self.directory)
        self.snapshots = SnapshotFiles(storage, self.directory)
        self.last_append_ms = -1
        known = self.snapshots.ids()
        snapshot_end = known[-1].end_offset if known else 0
        try:
            self._log = PartitionLog.open(
                storage,
                self.directory,
                PARTITION,
                config,
                now_ms=now_ms,
                # Snapshots have only committed records: the log was synced up to their end, so recovery need not read
                # that part.
                recovery_point=snapshot_end,
                high_watermark=committed if committed > snapshot_end else 0,
                refuse_damage=not repair,
            )
        except DamagedLogError as error:
            raise self.damaged(str(error)) from error

    def damaged(self, what: str) -> DamagedLogError:
        """Return the error that prevents a start with damaged metadata; its message has the remedy."""
        return DamagedLogError(
            f"{what}. Without these records topics, configurations and quotas would be lost: the broker does not "
            f"start. Restore {self.directory} from a backup, or truncate it: triokafka log repair {self.directory} "
            f"(the cut bytes stay in files that end with {DAMAGED_SUFFIX})"
        )

    @property
    def start_offset(self) -> int:
        """The offset of the first record in the log."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    def read_all(self, *, from_offset: int | None = None) -> Iterator[LogBatch]:
        """Yield every batch, from ``from_offset`` or the beginning of the log.

        Raises the errors of `decode_batches`.
        """
        offset = self._log.log_start_offset if from_offset is None else from_offset
        while offset < self._log.log_end_offset:
            data = self._log.read(offset, _READ_BYTES).records
            before = offset
            for batch in decode_batches(data):
                offset = batch.last_offset + 1
                yield batch
            if offset == before:
                raise self.damaged(f"{self.directory} cannot be read at offset {offset}")

    def append(self, batch: Buffer, *, now_ms: int) -> None:
        """Append one batch with final offsets and epoch. Raises `KafkaStorageError`."""
        self._log.append_as_follower(batch, now_ms=now_ms)
        self.last_append_ms = now_ms

    def begin_sync(self) -> SyncJob | None:
        """Prepare a sync of all appended records: call ``run``, in any thread, and then `synced`.

        Returns None when all records are synced. Raises `KafkaStorageError`.
        """
        return self._log.begin_flush()

    def synced(self, job: SyncJob) -> None:
        """Record that ``job.run()`` has returned: everything appended before its `begin_sync` is durable."""
        self._log.flushed(job)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Truncate the log to ``offset``. Raises `KafkaStorageError`."""
        self._log.truncate_to(offset, now_ms=now_ms)

    def bytes_since(self, offset: int) -> int:
        """Return the size of the records from ``offset`` on, in bytes."""
        return self._log.bytes_between(max(offset, self.start_offset), self.end_offset, 1 << 62)

    def begin_at(self, offset: int, *, now_ms: int) -> None:
        """Drop all records after a newer snapshot was found; the next record gets ``offset``. Raises
        `KafkaStorageError`.
        """
        self._log.truncate_fully_and_start_at(offset, now_ms=now_ms)

    def clean(self, *, max_bytes: int, max_age_ms: int, now_ms: int) -> list[SnapshotId]:
        """Delete old snapshots, and the segments before the oldest remaining one; return the deleted snapshots.

        The newest snapshot always stays. An older one is deleted when log and snapshots exceed ``max_bytes``, or when
        it is older than ``max_age_ms`` (-1 for no limit: ``metadata.max.retention.bytes`` and ``.ms``).

        Raises:
            KafkaStorageError, OSError: the disk failed.
        """
        known = self.snapshots.ids()
        dropped: list[SnapshotId] = []
        total = self._log.size + sum(self.snapshots.size(snapshot_id) for snapshot_id in known)
        while len(known) > 1:
            oldest, following = known[0], known[1]
            if not (0 <= max_bytes < total or self._is_older(oldest, max_age_ms, now_ms)):
                break
            # Advance the log start first: the log must never begin after its oldest snapshot.
            self._log.advance_log_start_offset(min(following.end_offset, self.end_offset))
            before = self._log.size
            self._log.apply_retention(now_ms, up_to_offset=self.end_offset)
            total -= self.snapshots.size(oldest) + before - self._log.size
            self.snapshots.remove(oldest)
            dropped.append(known.pop(0))
        return dropped

    def _is_older(self, snapshot_id: SnapshotId, max_age_ms: int, now_ms: int) -> bool:
        if max_age_ms < 0:
            return False
        try:
            written_ms = self.snapshots.read(snapshot_id).batches[0].timestamp_ms
        except (ValueError, IndexError, KafkaError):
            return True  # an unreadable snapshot is useless
        return written_ms + max_age_ms < now_ms

    def close(self) -> None:
        """Close the files."""
        self._log.close()

    # The voter's state

    def read_epoch(self) -> int:
        """Return the last epoch of this voter; 0 before the first.

        Raises:
            ConfigurationError: the file is malformed.
        """
        path = os.path.join(self.directory, QUORUM_STATE_FILE)
        if not self._storage.exists(path):
            return 0
        try:
            epoch = int(json.loads(self._storage.read_file(path))["leaderEpoch"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{path} cannot be read: {error!r}. Move it away: the metadata log has the epoch too."
            ) from error
        if epoch >= _MAX_EPOCH:
            raise ConfigurationError(f"{path} is damaged: there is no leader epoch {epoch}. Move it away.")
        return max(0, epoch)

    def write_epoch(self, epoch: int, node_id: int, directory_id: uuid.UUID, *, kraft_version: int) -> None:
        """Store that this node leads ``epoch``, before the first write in it. Raises `OSError`."""
        state: dict[str, object]
        if kraft_version:
            state = {
                "leaderId": node_id,
                "leaderEpoch": epoch,
                "votedId": node_id,
                "votedDirectoryId": format_uuid(directory_id),
                "data_version": 1,
            }
        else:
            state = {
                "clusterId": "",
                "leaderId": node_id,
                "leaderEpoch": epoch,
                "votedId": node_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": node_id}],
                "data_version": 0,
            }
        path = os.path.join(self.directory, QUORUM_STATE_FILE)
        self._storage.replace_file(path, json.dumps(state, separators=(",", ":")).encode())
