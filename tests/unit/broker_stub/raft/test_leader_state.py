"""The leader of a quorum that grows."""

from __future__ import annotations

import math
from uuid import UUID

from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import Voter, VoterSet

OWN = ReplicaKey(1, UUID(int=1))
OTHER = ReplicaKey(2, UUID(int=2))


def test_first_other_voter_has_the_whole_time_to_fetch() -> None:
    alone, both = VoterSet([Voter(OWN)]), VoterSet([Voter(OWN), Voter(OTHER)])
    leader = Leader(OWN, 1, 0, alone, (1,), check_quorum=3.0, now=0.0)
    assert leader.check_quorum_at == math.inf
    leader.begin_check_quorum(100.0)
    leader.voters_changed(both)
    assert leader.check_quorum_at == 103.0
    leader.fetched(OTHER, 5, 5, 101.0)
    assert leader.check_quorum_at == 104.0
    leader.begin_check_quorum(102.0)
    assert leader.check_quorum_at == 104.0
