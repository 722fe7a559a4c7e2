"""A request that waits for all members of a group, JoinGroup or SyncGroup, and the signs that its answer is lost.

Its silence says nothing about the connection: the coordinator may wait for the slowest member of the group. So the
coordinator is asked over the connection for heartbeats, and in any case the request is sent again after a while, over
a fresh connection. The coordinator takes a second JoinGroup of a member it knows, or a second SyncGroup, in the place
of the first.
"""

from __future__ import annotations

from typing import Final

from triokafka.errors import KafkaError, NodeNotReadyError, RebalanceInProgressError

_MOST_DOUBLINGS: Final = 5


class HeldRequest:
    """One such wait, over all the times that its request is sent. A plain object; times are seconds of one clock.

    Args:
        began_at: when the request was sent first.
        patience: seconds to wait before it is sent again the first time; the wait doubles each time.
        asks: whether heartbeats of the member's last generation are sent meanwhile; their answers show whether the
            coordinator still waits.
    """

    def __init__(self, began_at: float, patience: float, *, asks: bool) -> None:
        self.began_at = began_at
        self.sends_again = False
        """Whether the connection was closed to send the request again."""
        self.confirmed = False
        """Whether the coordinator has just said that it waits for other members."""
        self._patience = patience
        self.asks = asks
        self._times = 0
        self._sent_at = began_at

    @property
    def _limit(self) -> float:
        return self._patience * 2.0 ** min(self._times, _MOST_DOUBLINGS)

    @property
    def first_look_at(self) -> float:
        """When to ask the coordinator first."""
        return self._sent_at + self._limit / 2

    def sent_again(self, now: float) -> None:
        """The request goes out once more."""
        self.sends_again = False
        self._times += 1
        self._sent_at = now

    def is_lost(self, now: float, heartbeat_error: type[KafkaError] | None) -> bool:
        """Take the answer to a heartbeat sent during the wait, None for one without an error.

        Returns whether the request must be sent again.
        """
        self.confirmed = heartbeat_error is RebalanceInProgressError
        if self.confirmed or heartbeat_error is NodeNotReadyError or not self.asks:
            return now - self._sent_at >= self._limit
        # Stable in the old generation, or on to the next, or without this member: nobody waits for it.
        return True
