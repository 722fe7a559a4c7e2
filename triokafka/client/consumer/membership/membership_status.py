"""The common state of one membership: its error, its times, and the event that wakes the heartbeat task."""

from __future__ import annotations

from collections.abc import Callable

import trio

from triokafka.client.consumer.membership.rebalance_timing import RebalanceTiming
from triokafka.errors import FencedInstanceIdError, KafkaError
from triokafka.network.network_client import NetworkClient


class MembershipStatus:
    """The common state of one membership.

    ``on_change`` wakes the caller that waits for records. ``joined_at`` is the time of the present assignment;
    ``rebalances`` counts assignments that were taken over in full. ``heartbeat_activity`` and ``join_activity`` are
    names for the failure tracker.
    """

    def __init__(self, group_id: str, network: NetworkClient, on_change: Callable[[], None]) -> None:
        self.group_id = group_id
        self.error: KafkaError | None = None
        self.joined_at: float | None = None
        self.rebalances = 0
        self.timing = RebalanceTiming(group_id, network.world, network.hooks)
        self.changed = trio.Event()
        self.on_change = on_change
        self.heartbeat_activity = f"sending heartbeats to group {group_id!r}"
        self.join_activity = f"joining group {group_id!r}"
        self._network = network

    def notify(self) -> None:
        """Wake the heartbeat task and the caller that waits for records."""
        self.changed.set()
        self.on_change()

    def take_error(self) -> KafkaError | None:
        """Return the error of the membership, once; afterwards it may join again. A fenced member stays out
        permanently."""
        error = self.error
        if not isinstance(error, FencedInstanceIdError):
            self.error = None
        return error

    def note_heartbeat(self, sent_at: float, error: Exception | None) -> None:
        """Report a heartbeat that was sent at ``sent_at`` to the hooks; ``error`` is its failure."""
        if self._network.hooks:
            self._network.hooks.on_heartbeat(self.group_id, self._network.world.now() - sent_at, error)
