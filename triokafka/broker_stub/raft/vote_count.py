"""Counts the votes of one election, and says when it is won or lost."""

from __future__ import annotations

from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import VoterSet


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
