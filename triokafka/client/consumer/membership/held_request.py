"""A JoinGroup or SyncGroup request, which the coordinator answers when all members of the group have sent theirs.

A missing response therefore reveals nothing about the connection: the coordinator may wait for the slowest member of
the group. So the member asks the coordinator over the heartbeat connection, and in any case repeats the request after a
while, over a fresh connection. The coordinator accepts a second JoinGroup of a known member, or a second SyncGroup, in
place of the first.
"""

from __future__ import annotations

from math import inf, log2

from triokafka.errors import KafkaError, NodeNotReadyError, RebalanceInProgressError


class HeldRequest:
    """One such wait, over all repetitions of its request. A plain object; times are seconds of one clock.

    Args:
        began_at: when the request was sent first.
        patience: seconds before the first repetition (``connections_max_silence_ms``). The wait doubles each time.
        longest: maximum wait in seconds (``max_poll_interval_ms``, for which a coordinator may wait for other members).
            With both defaults, 9 s and 300 s, the longest wait is 288 s.
        asks: whether the member sends heartbeats of its last generation meanwhile; the responses show whether the
            coordinator still waits.
    """

    def __init__(self, began_at: float, patience: float, longest: float, *, asks: bool) -> None:
        self.began_at = began_at
        self.sends_again = False
        """Whether the connection was closed to send the request again."""
        self.confirmed = False
        """Whether the last heartbeat's response confirmed that the coordinator waits for other members."""
        self.asks = asks
        self._limit = patience
        self._most = patience if patience == inf else patience * 2.0 ** max(0, int(log2(max(1.0, longest / patience))))
        self._sent_at = began_at

    @property
    def first_look_at(self) -> float:
        """When to ask the coordinator first: after half the wait, as for any silent connection."""
        return self._sent_at + self._limit / 2

    def sent_again(self, now: float) -> None:
        """Note that the request is sent again."""
        self.sends_again = False
        self._limit = min(2 * self._limit, self._most)
        self._sent_at = now

    def is_lost(self, now: float, heartbeat_error: type[KafkaError] | None) -> bool:
        """Process the response to a heartbeat sent during the wait, None for one without an error.

        Returns whether the request must be sent again.
        """
        self.confirmed = heartbeat_error is RebalanceInProgressError
        if self.confirmed or heartbeat_error is NodeNotReadyError or not self.asks:
            return now - self._sent_at >= self._limit
        # Stable in the old generation, in the next one, or without this member: the coordinator waits for no member.
        return True
