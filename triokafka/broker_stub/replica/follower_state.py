"""A leader's view of one follower: how far it has replicated, and since when it is caught up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True)
class FollowerState:
    """The progress of a replica on another broker. Times are seconds on the world's monotonic clock.

    ``caught_up_at`` is the newest time at which the follower had all records that the leader had then.
    ``leader_end_offset`` is the leader's log end offset at the follower's last fetch. ``broker_epoch`` is that of the
    last fetch (KIP-903); -1 when it was unknown.
    """

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    fetched_at: float = float("-inf")
    caught_up_at: float = float("-inf")
    leader_end_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = -1

    def fetched(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, *, broker_epoch: int, now: float
    ) -> bool:
        """Process a fetch: the follower has all records before ``fetch_offset``. Return whether it differs from the
        last one in more than its time.

        A follower that fetches without ever reaching the end under constant writes is caught up as of the last fetch
        when it has everything that the leader had at that time.
        """
        if fetch_offset >= leader_end_offset:
            self.caught_up_at = max(self.caught_up_at, now)
        elif fetch_offset >= self.leader_end_offset >= 0:
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        differs = (
            fetch_offset != self.log_end_offset
            or log_start_offset != self.log_start_offset
            or leader_end_offset != self.leader_end_offset
            or broker_epoch != self.broker_epoch
        )
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = leader_end_offset
        self.fetched_at = now
        self.broker_epoch = broker_epoch
        return differs

    def fetched_the_same(self, at: float) -> None:
        """Process a fetch at a time that may be past, which was like the last one, and found all records."""
        self.caught_up_at = max(self.caught_up_at, at)
        self.fetched_at = max(self.fetched_at, at)

    def is_caught_up(self, leader_end_offset: int, now: float, lag_seconds: float) -> bool:
        """Whether the follower has everything, or had everything within the last ``lag_seconds``."""
        return self.log_end_offset == leader_end_offset or now - self.caught_up_at <= lag_seconds
