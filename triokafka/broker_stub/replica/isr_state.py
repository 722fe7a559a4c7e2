"""The in-sync set of a partition as its leader sees it: the committed set, and the change that is in flight (KIP-497).

The controller commits a set. Between the proposal (AlterPartition) and its result, either set may be the committed one.
The high watermark waits for the larger of the two, the *maximal* set; ``min.insync.replicas`` is checked before an
append against the committed one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from triokafka.named_tuple import NamedTuple

UNKNOWN_EPOCH: Final = -1


class IsrProposal(NamedTuple):
    """A change that a leader asks the controller for. ``in_sync`` has broker ids with broker epochs (-1: unknown)."""

    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[tuple[int, int], ...]

    @property
    def replicas(self) -> frozenset[int]:
        """The proposed in-sync set."""
        return frozenset(broker_id for broker_id, _ in self.in_sync)


class IsrState:
    """The committed in-sync set, and at most one proposal in flight.

    ``maximal`` includes a replica that is being added. A replica that is being removed stays in both sets until the
    controller has committed the removal.
    """

    __slots__ = ("committed", "in_flight", "maximal")

    def __init__(self) -> None:
        self.committed: frozenset[int] = frozenset()
        self.maximal = self.committed
        self.in_flight: IsrProposal | None = None

    def commit(self, in_sync: Collection[int]) -> None:
        """Take over the set that the controller has committed; whatever was in flight is settled."""
        self.committed = self.maximal = frozenset(in_sync)
        self.in_flight = None

    def propose(self, proposal: IsrProposal) -> None:
        """Send a proposal; the caller has checked that none is in flight."""
        self.in_flight = proposal
        self.maximal = self.committed | proposal.replicas

    def withdraw(self) -> None:
        """Return to the committed set: the controller has refused the proposal, and did not apply it."""
        self.maximal = self.committed
        self.in_flight = None
