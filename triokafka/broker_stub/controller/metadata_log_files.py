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
"""One segment for ever: what a metadata log is where nothing else is said."""


class MetadataLogFiles:
    """The log and the voter's own state.

    ``snapshots`` are the files beside the log; ``last_append_ms`` is when something was written last (-1: not yet).

    Args:
        directory: the data directory that holds the log's folder.
        config: says when segments are rolled. Nothing goes by age or size, only by `clean`.
        committed: the offset before which everything is known to be committed, from the last checkpoint of it.
        repair: truncate the log at its damage and keep the cut bytes in a file, instead of raising.

    Raises:
        DamagedLogError: the log is damaged; a torn tail is none. Says which file, where, and what to do.
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
                # Snapshots have committed records only: up to their end everything was synced, and need not be read.
                recovery_point=snapshot_end,
                high_watermark=committed if committed > snapshot_end else 0,
                refuse_damage=not repair,
            )
        except DamagedLogError as error:
            raise self.damaged(str(error)) from error

    def damaged(self, what: str) -> DamagedLogError:
        """Return the error that keeps a broker from starting with damaged metadata; says how to repair it."""
        return DamagedLogError(
            f"{what}. Without these records topics, configurations and quotas would be lost: the broker does not "
            f"start. Restore {self.directory} from a backup, or cut it there: triokafka log repair {self.directory} "
            f"(what is cut stays in files that end with {DAMAGED_SUFFIX})"
        )

    @property
    def start_offset(self) -> int:
        """The offset of the first record that is still in the log."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset

    def read_all(self, *, from_offset: int | None = None) -> Iterator[LogBatch]:
        """Every batch, from ``from_offset`` or the beginning of the log.

        Raises as `decode_batches`.
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
        """Write one batch at the end; its offsets and epoch are set already. Raises `KafkaStorageError`."""
        self._log.append_as_follower(batch, now_ms=now_ms)
        self.last_append_ms = now_ms

    def begin_sync(self) -> SyncJob | None:
        """Prepare to bring everything appended to stable storage: ``run`` may go to a thread, then call `synced`.

        None when all is there already. Raises `KafkaStorageError`.
        """
        return self._log.begin_flush()

    def synced(self, job: SyncJob) -> None:
        """Note that ``job.run()`` has returned: everything appended before its `begin_sync` is durable."""
        self._log.flushed(job)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Take back batches from ``offset`` on. Raises `KafkaStorageError`."""
        self._log.truncate_to(offset, now_ms=now_ms)

    def bytes_since(self, offset: int) -> int:
        """Bytes of records from ``offset`` on."""
        return self._log.bytes_between(max(offset, self.start_offset), self.end_offset, 1 << 62)

    def begin_at(self, offset: int, *, now_ms: int) -> None:
        """Forget all records, for a snapshot has more; the next one gets ``offset``. Raises as `truncate_to`."""
        self._log.truncate_fully_and_start_at(offset, now_ms=now_ms)

    def clean(self, *, max_bytes: int, max_age_ms: int, now_ms: int) -> list[SnapshotId]:
        """Drop old snapshots, and the segments before the oldest one that stays; returns which snapshots.

        The newest snapshot always stays. An older one goes when log and snapshots have more than ``max_bytes``, or when
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
            # First the log's beginning: a log that begins before its oldest snapshot is always complete.
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
            return True  # it is of no use to anybody
        return written_ms + max_age_ms < now_ms

    def close(self) -> None:
        """Close the files."""
        self._log.close()

    # The voter's state

    def read_epoch(self) -> int:
        """The last epoch that this voter took part in; 0 before the first.

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
                f"{path} cannot be read: {error!r}. Move it away: the epoch is found in the metadata log, too."
            ) from error
        if epoch >= _MAX_EPOCH:
            raise ConfigurationError(f"{path} is damaged: there is no leader epoch {epoch}. Move it away.")
        return max(0, epoch)

    def write_epoch(self, epoch: int, node_id: int, directory_id: uuid.UUID, *, kraft_version: int) -> None:
        """Remember that this node leads ``epoch``, before anything is written in it. Raises `OSError`."""
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
