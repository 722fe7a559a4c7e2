"""The states of a node in an epoch, except that of a leader (`leader_state`).

A state has only the fields that the node needs in it. Times are seconds on the world's monotonic clock. An observer is
unattached or a follower, and never leaves these states on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.raft_log import SnapshotWriter
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import VoterEndpoint, VoterSet

Endpoints: TypeAlias = tuple[VoterEndpoint, ...]


class VoteCount:
    """The votes for one nominee in one epoch."""

    def __init__(self, voters: VoterSet, own: ReplicaKey) -> None:
        self.voters = voters
        self._votes: dict[int, bool] = {own.node_id: True} if voters.is_voter(own) else {}

    def record(self, node_id: int, *, granted: bool) -> None:
        """Count the answer of one voter; nodes that do not vote are ignored."""
        if node_id in self.voters:
            self._votes[node_id] = granted

    @property
    def granting(self) -> list[int]:
        """The voters that have granted their vote."""
        return [node_id for node_id, granted in self._votes.items() if granted]

    @property
    def is_won(self) -> bool:
        """Whether a majority has granted its vote."""
        return len(self.granting) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether too many voters have refused for a majority."""
        refused = sum(not granted for granted in self._votes.values())
        return len(self.voters) - refused < self.voters.majority

    @property
    def unrecorded(self) -> list[ReplicaKey]:
        """The voters that have not answered."""
        return [key for key in self.voters.keys if key.node_id not in self._votes]


@dataclass(slots=True)
class Unattached:
    """Knows the epoch but follows no leader. ``leader_id`` may be known without an address.

    The node may have voted in the epoch (``voted``). A voter becomes prospective at ``election_at``.
    """

    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    election_at: float

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        """Whether this node votes for the candidate."""
        return _grants_without_leader(self.voted, self.leader_id, candidate, up_to_date=up_to_date, pre_vote=pre_vote)


@dataclass(slots=True)
class Prospective:
    """Asks the voters whether they would vote for it, before it begins an epoch (pre-vote, KIP-996)."""

    epoch: int
    leader_id: int | None
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    election: VoteCount
    election_ends_at: float

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        """Whether this node votes for the candidate."""
        return _grants_without_leader(self.voted, self.leader_id, candidate, up_to_date=up_to_date, pre_vote=pre_vote)


@dataclass(slots=True)
class Candidate:
    """Has begun an epoch with a vote for itself, and asks the other voters for theirs."""

    epoch: int
    voted: ReplicaKey
    election: VoteCount
    election_ends_at: float
    leader_id: None = None

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        """Whether this node votes for the candidate: only a pre-vote, since its vote is given."""
        return pre_vote and up_to_date


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of the epoch. A voter becomes prospective at ``fetch_timeout_at``.

    ``has_fetched`` says that the leader has answered a fetch in this epoch; ``snapshot`` is a snapshot in transfer.
    ``has_announced`` says that the leader knows the directory and the addresses of this static voter.
    """

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    fetch_timeout_at: float
    update_voter_at: float
    has_fetched: bool = False
    snapshot: SnapshotWriter | None = None
    finishing_snapshot: bool = False
    has_announced: bool = False

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        """Whether this node votes for the candidate: only a pre-vote, while the leader has not answered yet."""
        return pre_vote and up_to_date and not self.has_fetched


@dataclass(slots=True)
class Resigned:
    """Was the leader of the epoch, before a restart or until it gave up; ends the epoch for the other voters.

    ``preferred_successors`` are the other voters, the one with the longest log first.
    """

    epoch: int
    leader_id: int
    voted: ReplicaKey | None
    election_at: float
    unacknowledged: set[int] = field(default_factory=set)
    preferred_successors: Sequence[ReplicaKey] = ()

    def grants(self, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        """Whether this node votes for the candidate: only a pre-vote, since the epoch has a leader."""
        return pre_vote and up_to_date


State: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned


def _grants_without_leader(
    voted: ReplicaKey | None, leader_id: int | None, candidate: ReplicaKey, *, up_to_date: bool, pre_vote: bool
) -> bool:
    if not up_to_date:
        return False
    if pre_vote:
        return True
    if voted is not None:
        return voted.admits(candidate)
    # With a known leader there will be no other one in this epoch.
    return leader_id is None
