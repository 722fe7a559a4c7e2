"""The control records with which a leader begins its epoch."""

from __future__ import annotations

from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.state_transitions import Quorum
from triokafka.protocol.stored.control_records import (
    ControlRecordType,
    KRaftVersionRecord,
    LeaderChangeMessage,
    Voter,
)

_VERSION = 0


def epoch_controls(quorum: Quorum, leader: Leader) -> list[tuple[ControlRecordType, bytes]]:
    """Return the LeaderChange record, in version 0: Apache Kafka 4.3 reads no other.

    With kraft.version 1 also that and the voters, if the voters are only in the snapshot with which the directory was
    formatted, or if the leader's own endpoints have changed.
    """
    level = quorum.history.kraft_version
    voters = quorum.voters
    change = LeaderChangeMessage(
        version=_VERSION,
        leader_id=leader.leader_id,
        voters=[Voter(voter_id=node_id) for node_id in voters.ids],
        granting_voters=[Voter(voter_id=node_id) for node_id in leader.granting],
    )
    controls = [(ControlRecordType.LEADER_CHANGE, change.encode(_VERSION))]
    if level >= 1:
        own = quorum.config.voter
        updated = voters.with_updated(own)
        if updated is not None and (updated != voters or quorum.history.voters_offset == -1):
            record = KRaftVersionRecord(kraft_version=level)
            controls.append((ControlRecordType.KRAFT_VERSION, record.encode(_VERSION)))
            controls.append((ControlRecordType.KRAFT_VOTERS, updated.record().encode(_VERSION)))
    return controls
