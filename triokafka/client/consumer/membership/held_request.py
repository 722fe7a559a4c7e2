"""A JoinGroup or SyncGroup request, whose answer the coordinator holds until all members of the group have sent theirs.

Its silence says nothing about the connection: the coordinator may wait for the slowest member of the group. So the
member asks the coordinator over the connection for heartbeats, and in any case sends the request again after a while,
over a fresh connection. The coordinator accepts a second JoinGroup of a member it knows, or a second SyncGroup, in
place of the first.
"""

from __future__ import annotations

from math import inf, log2

from triokafka.errors import KafkaError, NodeNotReadyError, RebalanceInProgressError


class HeldRequest:
    """One such wait, over all the times that its request is sent. A plain object; times are seconds of one clock.

    Args:
        began_at: when the request was sent first.
        patience: seconds to wait before it is sent again the first time (``connections_max_silence_ms``). The wait
            doubles each time.
        longest: seconds that the wait never exceeds (``max_poll_interval_ms``, for which a coordinator may wait for
            other members). With both defaults, 9 s and 300 s, the longest wait is 288 s.
        asks: whether the member sends heartbeats of its last generation meanwhile; the answers show whether the
            coordinator still waits.
    """

    def __init__(self, began_at: float, patience: float, longest: float, *, asks: bool) -> None:
        self.began_at = began_at
        self.sends_again = False
        """Whether the connection was closed to send the request again."""
        self.confirmed = False
        """Whether the coordinator has just said that it waits for other members."""
        self.asks = asks
        self._limit = patience
        self._most = patience if patience == inf else patience * 2.0 ** max(0, int(log2(max(1.0, longest / patience))))
        self._sent_at = began_at

    @property
    def first_look_at(self) -> float:
        """When to ask the coordinator first: after half the wait, as for any silent connection."""
        return self._sent_at + self._limit / 2

    def sent_again(self, now: float) -> None:
        """The request goes out once more."""
        self.sends_again = False
        self._limit = min(2 * self._limit, self._most)
        self._sent_at = now

    def is_lost(self, now: float, heartbeat_error: type[KafkaError] | None) -> bool:
        """Take the answer to a heartbeat sent during the wait, None for one without an error.

        Returns whether the request must be sent again.
        """
        self.confirmed = heartbeat_error is RebalanceInProgressError
        if self.confirmed or heartbeat_error is NodeNotReadyError or not self.asks:
            return now - self._sent_at >= self._limit
        # Stable in the old generation, or on to the next, or without this member: the coordinator waits for nobody.
        return True
