"""Control batches of a quorum of one, encoded by hand: the start of an epoch, and the header of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from triokafka.protocol.stored.control_records import (
    ControlRecordType,
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    VotersRecordVoter,
    encode_control_key,
)
from triokafka.records import encode_batch

_CONTROL_VERSION: Final = 0


def encode_leader_change(
    node_id: int,
    directory_id: UUID,
    *,
    base_offset: int,
    epoch: int,
    timestamp_ms: int,
    kraft_version: int = 0,
    endpoints: Sequence[tuple[str, str, int]] = (),
) -> bytes:
    """Encode the control batch that starts an epoch: its leader and, with ``kraft_version``, that version and the
    voters.
    """
    voter = Voter(voter_id=node_id)
    change = LeaderChangeMessage(leader_id=node_id, voters=[voter], granting_voters=[voter])
    controls = [(ControlRecordType.LEADER_CHANGE, change.encode(_CONTROL_VERSION))]
    if kraft_version:
        controls += _quorum_controls(node_id, directory_id, kraft_version, endpoints)
    return _control_batch(controls, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)


def encode_snapshot_header(
    node_id: int,
    directory_id: UUID,
    *,
    epoch: int,
    timestamp_ms: int,
    kraft_version: int = 0,
    endpoints: Sequence[tuple[str, str, int]] = (),
) -> bytes:
    """Encode the control batch at the start of a snapshot; with ``kraft_version`` also that version and the voters.

    ``timestamp_ms`` is the time of the last change in the snapshot.
    """
    header = SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
    controls = [(ControlRecordType.SNAPSHOT_HEADER, header.encode(_CONTROL_VERSION))]
    if kraft_version:
        controls += _quorum_controls(node_id, directory_id, kraft_version, endpoints)
    return _control_batch(controls, base_offset=0, epoch=epoch, timestamp_ms=timestamp_ms)


def _quorum_controls(
    node_id: int, directory_id: UUID, kraft_version: int, endpoints: Sequence[tuple[str, str, int]]
) -> list[tuple[ControlRecordType, bytes]]:
    voters = VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=node_id,
                voter_directory_id=directory_id,
                endpoints=[Endpoint(name=name, host=host, port=port) for name, host, port in endpoints],
                kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
            )
        ]
    )
    return [
        (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=kraft_version).encode(_CONTROL_VERSION)),
        (ControlRecordType.KRAFT_VOTERS, voters.encode(_CONTROL_VERSION)),
    ]


def _control_batch(
    controls: Sequence[tuple[ControlRecordType, bytes]], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytes:
    return encode_batch(
        [(timestamp_ms, encode_control_key(kind), value, ()) for kind, value in controls],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )
