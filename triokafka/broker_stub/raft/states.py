"""The states of a node in an epoch, except that of a leader (`leader_state`).

A state has only the fields that the node needs in it. Times are seconds on the world's monotonic clock. An observer is
unattached or a follower, and never leaves these states on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from triokafka.broker_stub.raft.leader_state import Leader
from triokafka.broker_stub.raft.raft_log_interface import SnapshotWriter
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.vote_count import VoteCount
from triokafka.broker_stub.raft.voter_set import VoterEndpoint

Endpoints: TypeAlias = tuple[VoterEndpoint, ...]


@dataclass(slots=True)
class Unattached:
    """Knows the epoch but follows no leader. ``leader_id`` may be known without an address.

    The node may have voted in the epoch (``voted``). A voter becomes prospective at ``election_at``.
    """

    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    election_at: float


@dataclass(slots=True)
class Prospective:
    """Asks the voters whether they would vote for it, before it begins an epoch (pre-vote, KIP-996)."""

    epoch: int
    leader_id: int | None
    leader_endpoints: Endpoints
    voted: ReplicaKey | None
    election: VoteCount
    election_ends_at: float


@dataclass(slots=True)
class Candidate:
    """Has begun an epoch with a vote for itself, and asks the other voters for theirs."""

    epoch: int
    voted: ReplicaKey
    election: VoteCount
    election_ends_at: float
    leader_id: None = None


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


State: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned
