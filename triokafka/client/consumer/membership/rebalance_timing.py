"""Durations of rebalances, for hooks and metrics. A plain object."""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.hooks import HookChain
from triokafka.structs import TopicPartition
from triokafka.world import World


class RebalanceTiming:
    """The rebalances of one membership, from its consumer's view.

    A rebalance begins when the consumer learns that the assignment will change. It ends when the consumer has taken
    over its partitions.
    """

    def __init__(self, group_id: str, world: World, hooks: HookChain) -> None:
        self.seconds_total = 0.0
        self.seconds_max = 0.0
        self.seconds_last = 0.0
        self.ended = 0
        self.ended_at: float | None = None
        self.durations: list[float] = []
        """Seconds of rebalances that the metrics have not seen yet."""
        self.lost = 0
        """The number of partitions that were lost, not revoked."""
        self._group_id = group_id
        self._world = world
        self._hooks = hooks
        self.since: float | None = None
        """When the present rebalance began, None if there is none."""
        self._revoking_since: float | None = None

    def started(self, reason: str) -> None:
        """Note the beginning of a rebalance, unless one is under way."""
        if self.since is None:
            self.since = self._world.now()
            if self._hooks:
                self._hooks.on_rebalance_started(self._group_id, reason)

    def revoking(self) -> None:
        """Note the beginning of a revocation: the consumer commits finished records and calls the listener."""
        if self._revoking_since is None:
            self._revoking_since = self._world.now()

    def dropped(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """Note that the consumer has dropped these partitions."""
        since, self._revoking_since = self._revoking_since, None
        self.lost += len(partitions) if lost else 0
        if self._hooks and partitions:
            if lost:
                self._hooks.on_partitions_lost(self._group_id, partitions)
            else:
                seconds = 0.0 if since is None else self._world.now() - since
                self._hooks.on_partitions_revoked(self._group_id, partitions, seconds)

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Note the end of the rebalance; ``partitions`` are new."""
        now = self._world.now()
        since, self.since = self.since, None
        seconds = 0.0 if since is None else now - since
        self.ended += 1
        self.ended_at = now
        self.seconds_last = seconds
        self.durations.append(seconds)
        self.seconds_total += seconds
        self.seconds_max = max(self.seconds_max, seconds)
        if self._hooks:
            self._hooks.on_partitions_assigned(self._group_id, partitions, seconds)

    def abandoned(self) -> None:
        """Drop a rebalance under way, because the membership ends."""
        self.since = self._revoking_since = None
