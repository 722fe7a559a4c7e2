"""When heartbeats are due, and when the coordinator or the user counts as dead. Pure: time is an argument.

There are two deadlines: the session timeout for the coordinator's responses, and ``max_poll_interval_ms`` for the
user's calls (KIP-62).
"""

from __future__ import annotations

from typing import Final

_NEVER: Final = float("inf")


class HeartbeatClock:
    """The times of one membership, in seconds on the world's monotonic clock.

    `started` starts it, unless ``now`` is given.
    """

    def __init__(
        self, *, interval: float, session_timeout: float, max_poll_interval: float, now: float = -_NEVER
    ) -> None:
        self.interval = interval
        self.session_timeout = session_timeout
        self.max_poll_interval = max_poll_interval
        self.idle_before = 0.0
        """For how long the user has called nothing before a caller between them (asyncio) stops polling."""
        self.last_sent = -_NEVER
        self.last_answer = -_NEVER
        self.last_poll = now
        self._last_reset = now
        self._retry_at = -_NEVER

    def started(self, now: float) -> None:
        """Start the clock, because the consumer was entered."""
        self.last_poll = self._last_reset = now

    def reset(self, now: float) -> None:
        """Restart the clock: a coordinator was found, or a rebalance is over."""
        self._last_reset = now
        self._retry_at = -_NEVER

    def sent(self, now: float) -> None:
        """Note that a heartbeat was sent."""
        self.last_sent = now

    def answered(self, now: float) -> None:
        """Note a response of the coordinator, whatever it says."""
        self.last_answer = now
        self._retry_at = -_NEVER

    def failed(self, now: float, backoff: float) -> None:
        """Note a missing response: the next heartbeat is due after the back-off, not after the interval."""
        self._retry_at = now + backoff

    def polled(self, now: float) -> None:
        """Note that the user asked for records, or for the next one."""
        self.last_poll = now

    @property
    def backs_off(self) -> bool:
        """Whether the last heartbeat failed, so that the next has to wait."""
        return self._retry_at > -_NEVER

    @property
    def next_at(self) -> float:
        """When the next heartbeat is due."""
        if self.backs_off:
            return self._retry_at
        return max(self.last_sent, self._last_reset) + self.interval

    def session_expired(self, now: float) -> bool:
        """Whether the coordinator must be presumed dead."""
        return now - max(self._last_reset, self.last_answer) > self.session_timeout

    def poll_expired(self, now: float) -> bool:
        """Whether the user took longer between two calls than the group allows."""
        return now - self.last_poll > self.max_poll_interval

    @property
    def poll_expires_at(self) -> float:
        """When `poll_expired` will become true."""
        return self.last_poll + self.max_poll_interval
