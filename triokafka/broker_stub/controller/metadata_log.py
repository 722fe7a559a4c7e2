"""The metadata log of a quorum of one: ``__cluster_metadata-0`` with its records, and ``quorum-state`` beside them.

Calls block, some of them on the disk; the caller chooses where to run them. A batch is committed once a sync that began
after it has returned: there is nobody else to wait for.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from triokafka.broker_stub.controller import topic_names
from triokafka.broker_stub.controller.meta_properties import encode_uuid
from triokafka.broker_stub.controller.records import LogBatch, decode_batches
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log import FlushJob, PartitionLog
from triokafka.errors import ConfigurationError
from triokafka.structs import Buffer, TopicPartition
from triokafka.world import Storage

PARTITION: Final = TopicPartition(topic_names.CLUSTER_METADATA_TOPIC, 0)
QUORUM_STATE_FILE: Final = "quorum-state"
SyncJob: TypeAlias = FlushJob
_SNAPSHOT: Final = re.compile(r"\d{20}-\d{10}\.checkpoint")
_READ_BYTES: Final = 1 << 20
_KEEP_ALL: Final = LogConfig(retention_ms=-1, retention_bytes=-1, segment_ms=2**63 - 1, cleanup_policy=("delete",))


class Snapshot(NamedTuple):
    """The whole state before the record at ``end_offset``, as batches of records."""

    end_offset: int
    epoch: int
    batches: Sequence[LogBatch]


class MetadataLog:
    """The log and the voter's own state.

    Args:
        directory: the data directory that holds the log's folder.
    """

    def __init__(self, storage: Storage, directory: str, *, now_ms: int) -> None:
        self.directory = os.path.join(directory, str(PARTITION))
        self._storage = storage
        storage.make_dirs(self.directory)
        self._log = PartitionLog.open(storage, self.directory, PARTITION, _KEEP_ALL, now_ms=now_ms)

    def newest_snapshot(self) -> Snapshot | None:
        """The newest snapshot that Kafka has left beside the log; None without one.

        Raises as `decode_batches`.
        """
        names = [name for name in self._storage.list_dir(self.directory) if _SNAPSHOT.fullmatch(name)]
        if not names:
            return None
        name = max(names)
        end_offset, epoch = (int(part) for part in name.removesuffix(".checkpoint").split("-"))
        data = self._storage.read_file(os.path.join(self.directory, name))
        return Snapshot(end_offset, epoch, list(decode_batches(data)))

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
                raise ConfigurationError(f"the metadata log in {self.directory} cannot be read at offset {offset}")

    def append(self, batch: Buffer, *, now_ms: int) -> None:
        """Write one batch at the end; its offsets and epoch are set already. Raises `KafkaStorageError`."""
        self._log.append_as_follower(batch, now_ms=now_ms)

    def begin_sync(self) -> SyncJob | None:
        """Prepare to bring everything appended to stable storage: ``run`` may go to a thread, then call `synced`.

        None when all is there already. Raises `KafkaStorageError`.
        """
        return self._log.begin_flush()

    def synced(self, job: SyncJob) -> None:
        """``job.run()`` has returned: what was appended before `begin_sync` is committed."""
        self._log.flushed(job)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Take back batches from ``offset`` on. Raises `KafkaStorageError`."""
        self._log.truncate_to(offset, now_ms=now_ms)

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
            epoch = json.loads(self._storage.read_file(path))["leaderEpoch"]
            return max(0, int(epoch))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}") from error

    def write_epoch(self, epoch: int, node_id: int, directory_id: uuid.UUID, *, kraft_version: int) -> None:
        """Remember that this node leads ``epoch``, before anything is written in it. Raises `OSError`."""
        state: dict[str, object]
        if kraft_version:
            state = {
                "leaderId": node_id,
                "leaderEpoch": epoch,
                "votedId": node_id,
                "votedDirectoryId": encode_uuid(directory_id),
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
