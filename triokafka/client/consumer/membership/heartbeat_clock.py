"""When heartbeats are due, and when the session with a silent coordinator ends. Pure: time is an argument."""

from __future__ import annotations

from typing import Final

_NEVER: Final = float("inf")


class HeartbeatClock:
    """The times of one membership, in seconds on the world's monotonic clock.

    `started` starts it, unless ``now`` is given.
    """

    def __init__(self, *, interval: float, session_timeout: float, now: float = -_NEVER) -> None:
        self.interval = interval
        self.session_timeout = session_timeout
        self.last_sent = -_NEVER
        self.last_answer = -_NEVER
        self._last_reset = now
        self._retry_at = -_NEVER

    def started(self, now: float) -> None:
        """Start the clock, because the consumer was entered."""
        self._last_reset = now

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
