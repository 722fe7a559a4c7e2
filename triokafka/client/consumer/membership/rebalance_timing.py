"""How long rebalances take: told to hooks as they happen, and counted for metrics. A plain object."""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.hooks import HookChain
from triokafka.structs import TopicPartition
from triokafka.world import World


class RebalanceTiming:
    """The rebalances of one membership, as its consumer sees them.

    One begins when the consumer hears that something is to change, and ends when it has taken over its partitions.
    """

    def __init__(self, group_id: str, world: World, hooks: HookChain) -> None:
        self.seconds_total = 0.0
        self.seconds_max = 0.0
        self.seconds_last = 0.0
        self.ended = 0
        self.ended_at: float | None = None
        self.lost = 0
        """Partitions that went without having been given up."""
        self._group_id = group_id
        self._world = world
        self._hooks = hooks
        self._since: float | None = None
        self._going_since: float | None = None

    @property
    def since(self) -> float | None:
        """When the rebalance began that is under way."""
        return self._since

    def started(self, reason: str) -> None:
        """Something is to change; nothing happens if that is known."""
        if self._since is None:
            self._since = self._world.now()
            if self._hooks:
                self._hooks.on_rebalance_started(self._group_id, reason)

    def giving_up(self) -> None:
        """Partitions are about to go: what is finished is committed, and the listener told."""
        if self._going_since is None:
            self._going_since = self._world.now()

    def gone(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """They are not this consumer's any more."""
        since, self._going_since = self._going_since, None
        self.lost += len(partitions) if lost else 0
        if self._hooks and partitions:
            if lost:
                self._hooks.on_partitions_lost(self._group_id, partitions)
            else:
                seconds = 0.0 if since is None else self._world.now() - since
                self._hooks.on_partitions_revoked(self._group_id, partitions, seconds)

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """The rebalance is over, and brought these."""
        now = self._world.now()
        since, self._since = self._since, None
        seconds = 0.0 if since is None else now - since
        self.ended += 1
        self.ended_at = now
        self.seconds_last = seconds
        self.seconds_total += seconds
        self.seconds_max = max(self.seconds_max, seconds)
        if self._hooks:
            self._hooks.on_partitions_assigned(self._group_id, partitions, seconds)

    def abandoned(self) -> None:
        """The membership is over; what was under way has no end."""
        self._since = self._going_since = None
