"""The leader of the quorum in an epoch."""

from __future__ import annotations

from triokafka.named_tuple import NamedTuple


class LeaderAndEpoch(NamedTuple):
    """The newest epoch that a node knows, and the leader of that epoch; None while the leader is unknown."""

    leader_id: int | None
    epoch: int

    def is_leader(self, node_id: int) -> bool:
        """Whether ``node_id`` leads this epoch."""
        return self.leader_id == node_id
