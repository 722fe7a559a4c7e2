"""The first batch of a snapshot: its header, and the quorum at its end."""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.raft.quorum_history import QuorumHistory
from triokafka.broker_stub.raft.raft_log_interface import SnapshotId
from triokafka.protocol.stored.control_records import (
    ControlRecordType,
    KRaftVersionRecord,
    SnapshotHeaderRecord,
    encode_control_key,
)
from triokafka.records import encode_batch

_VERSION: Final = 0


def encode_header(history: QuorumHistory, snapshot_id: SnapshotId, *, timestamp_ms: int) -> bytes:
    """Return the header batch; with kraft.version 1 also that and the voters before the snapshot's end.

    ``timestamp_ms`` is the time of the last change that the snapshot has in it.
    """
    last = snapshot_id.end_offset - 1
    header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
    controls = [(ControlRecordType.SNAPSHOT_HEADER, header.encode(_VERSION))]
    level, voters = history.kraft_version_at(last), history.voters_at(last)
    if level and voters is not None:
        record = KRaftVersionRecord(kraft_version=level)
        controls.append((ControlRecordType.KRAFT_VERSION, record.encode(_VERSION)))
        controls.append((ControlRecordType.KRAFT_VOTERS, voters.record().encode(_VERSION)))
    return encode_batch(
        [(timestamp_ms, encode_control_key(kind), value, ()) for kind, value in controls],
        leader_epoch=snapshot_id.epoch,
        control=True,
    )
