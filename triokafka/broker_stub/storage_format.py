"""The files that ``storage format`` writes into data directories, as Kafka's kafka-storage does.

- ``meta.properties`` in every directory: the ids of the cluster, the node and the directory.
- ``bootstrap.checkpoint``: the first records of the cluster. The first active controller appends them to the log.
- ``__cluster_metadata-0/00000000000000000000-0000000000.checkpoint`` in the directory of the metadata log: the voters
  of a dynamic quorum (KIP-853).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from triokafka.broker_stub.metadata.records import decode_batches, encode_records, encode_snapshot_footer
from triokafka.broker_stub.metadata.snapshots import SnapshotId
from triokafka.broker_stub.raft.metadata_log import PARTITION
from triokafka.broker_stub.raft.quorum_state_file import QUORUM_STATE_FILE
from triokafka.broker_stub.raft.voter_set import Voter, VoterSet
from triokafka.errors import ConfigurationError, CorruptRecordError, KafkaError
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.control_records import (
    ControlRecordType,
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    encode_control_key,
)
from triokafka.records import encode_batch, iter_batches
from triokafka.world import Storage
from triokafka.world.private_storage import PrivateStorage

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
FORMAT_SNAPSHOT: Final = SnapshotId(0, 0)
"""The snapshot with which a directory is formatted: nothing but the voters."""
KRAFT_VERSION: Final = 1
_VERSION: Final = 0


def encode_format_snapshot(voters: Iterable[Voter], *, now_ms: int) -> bytes:
    """Return the snapshot that gives a new quorum its voters."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=now_ms)
    controls = [
        (ControlRecordType.SNAPSHOT_HEADER, header.encode(_VERSION)),
        (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=KRAFT_VERSION).encode(_VERSION)),
        (ControlRecordType.KRAFT_VOTERS, VoterSet(voters).record().encode(_VERSION)),
    ]
    first = _control_batch(controls, now_ms)
    return first + encode_snapshot_footer(base_offset=len(controls), epoch=0, timestamp_ms=now_ms)


def encode_bootstrap(records: Sequence[Struct], *, metadata_version: int, now_ms: int) -> bytes:
    """Return the content of ``bootstrap.checkpoint``."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=0)
    first = _control_batch([(ControlRecordType.SNAPSHOT_HEADER, header.encode(_VERSION))], now_ms)
    middle = encode_records(records, base_offset=1, epoch=0, timestamp_ms=now_ms, metadata_version=metadata_version)
    return first + middle + encode_snapshot_footer(base_offset=1 + len(records), epoch=0, timestamp_ms=now_ms)


def _control_batch(controls: Sequence[tuple[ControlRecordType, bytes]], now_ms: int) -> bytes:
    return encode_batch(
        [(now_ms, encode_control_key(kind), value, ()) for kind, value in controls], leader_epoch=0, control=True
    )


def read_bootstrap_records(storage: Storage, directory: str) -> list[Struct]:
    """Return the records of a data directory's ``bootstrap.checkpoint``; empty without the file.

    Raises:
        ConfigurationError: the file is damaged.
        OSError: the disk failed.
    """
    path = os.path.join(directory, BOOTSTRAP_FILE)
    if not storage.exists(path):
        return []
    content = storage.read_file(path)
    try:
        end = max((info.end for info in iter_batches(content)), default=0)
        if end < len(content):
            raise CorruptRecordError(f"the batch at byte {end} is incomplete")
        return [record for batch in decode_batches(content) for record in batch.records]
    except KafkaError as error:
        raise ConfigurationError(f"{path} is damaged: {error}. Format the directory again.") from error


def format_metadata_directory(storage: Storage, directory: str, voter: Voter, *, now_ms: int) -> bool:
    """Make a node the only voter of a new quorum, unless the directory has a metadata log already.

    Returns whether the directory was new. Raises `OSError`.
    """
    folder = os.path.join(directory, str(PARTITION))
    if storage.is_dir(folder):
        names = storage.list_dir(folder)
        used = any(name.endswith((".log", ".checkpoint")) or name == QUORUM_STATE_FILE for name in names)
        if used:
            return False
    write_format_snapshot(storage, directory, [voter], now_ms=now_ms)
    return True


def write_format_snapshot(storage: Storage, directory: str, voters: Iterable[Voter], *, now_ms: int) -> None:
    """Write the snapshot that gives a new quorum its voters. Raises `OSError`."""
    folder = os.path.join(directory, str(PARTITION))
    storage = PrivateStorage(storage)
    storage.make_dirs_durably(folder)
    storage.replace_file(os.path.join(folder, FORMAT_SNAPSHOT.file_name), encode_format_snapshot(voters, now_ms=now_ms))
