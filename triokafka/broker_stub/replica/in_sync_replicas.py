"""The in-sync set of a partition as its leader sees it: the committed set, the change in flight (KIP-497), and which
followers may join or have to leave.

The controller commits a set. Between the proposal (AlterPartition) and its result, either set may be the committed one.
The high watermark waits for the larger of the two, the *maximal* set; ``min.insync.replicas`` is checked before an
append against the committed one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from triokafka.broker_stub.replica.follower_state import FollowerState
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


class Registrations(Protocol):
    """The brokers of the cluster, as far as this broker knows."""

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the broker epoch of a registered broker; None for an unknown one."""

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, not fenced, and not shutting down."""


class InSyncReplicas:
    """The committed in-sync set, and at most one proposal in flight.

    ``maximal`` includes a replica that is being added. A replica that is being removed stays in both sets until the
    controller has committed the removal.

    Args:
        registrations: decides which followers may join; None lets all in.
        lag_seconds: ``replica.lag.time.max.ms``.
    """

    __slots__ = ("committed", "in_flight", "lag_seconds", "maximal", "registrations")

    def __init__(self, registrations: Registrations | None = None, lag_seconds: float = 30.0) -> None:
        self.registrations = registrations
        self.lag_seconds = lag_seconds
        self.committed: frozenset[int] = frozenset()
        self.maximal = self.committed
        self.in_flight: IsrProposal | None = None

    def commit(self, in_sync: Collection[int]) -> None:
        """Take over the set that the controller has committed; whatever was in flight is settled."""
        self.committed = self.maximal = frozenset(in_sync)
        self.in_flight = None

    def may_join(self, replica_id: int, follower: FollowerState) -> bool:
        """Whether the follower's broker may join: registered, neither fenced nor stopping, and the one that fetched
        (KIP-903).
        """
        if self.registrations is None:
            return True
        if not self.registrations.is_active(replica_id):
            return False
        registered = self.registrations.broker_epoch(replica_id)
        return follower.broker_epoch in (UNKNOWN_EPOCH, registered)

    def propose_expansion(
        self,
        replica_id: int,
        followers: Mapping[int, FollowerState],
        complete_at: int,
        *,
        leader_epoch: int,
        partition_epoch: int,
    ) -> IsrProposal | None:
        """Propose to add a follower that has all records before ``complete_at``; None if not."""
        if self.in_flight is not None or replica_id in self.committed:
            return None
        follower = followers.get(replica_id)
        if follower is None or follower.log_end_offset < complete_at or not self.may_join(replica_id, follower):
            return None
        return self._propose(self.committed | {replica_id}, followers, leader_epoch, partition_epoch)

    def propose_shrink(
        self,
        followers: Mapping[int, FollowerState],
        log_end_offset: int,
        now: float,
        *,
        leader_epoch: int,
        partition_epoch: int,
    ) -> IsrProposal | None:
        """Propose to remove the followers that were not caught up within the lag time; None if there are none."""
        if self.in_flight is not None or len(self.committed) < 2:
            return None
        lagging = {
            replica
            for replica, follower in followers.items()
            if replica in self.committed and not follower.is_caught_up(log_end_offset, now, self.lag_seconds)
        }
        return self._propose(self.committed - lagging, followers, leader_epoch, partition_epoch) if lagging else None

    def _propose(
        self,
        in_sync: frozenset[int],
        followers: Mapping[int, FollowerState],
        leader_epoch: int,
        partition_epoch: int,
    ) -> IsrProposal:
        members = []
        for broker_id in sorted(in_sync):
            follower = followers.get(broker_id)
            epoch = UNKNOWN_EPOCH if follower is None else follower.broker_epoch
            if follower is None and self.registrations is not None:
                registered = self.registrations.broker_epoch(broker_id)
                epoch = UNKNOWN_EPOCH if registered is None else registered
            members.append((broker_id, epoch))
        self.in_flight = proposal = IsrProposal(leader_epoch, partition_epoch, tuple(members))
        self.maximal = self.committed | proposal.replicas
        return proposal

    def withdraw(self) -> None:
        """Return to the committed set: the controller has refused the proposal, and did not apply it."""
        self.maximal = self.committed
        self.in_flight = None
