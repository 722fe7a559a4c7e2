"""When a member must show that it lives, and when silence means that something is dead. Pure: time is an argument.

Two watches run: the coordinator's answers against the session timeout, and the user's calls against
``max_poll_interval_ms`` (KIP-62).
"""

from __future__ import annotations

from typing import Final

_NEVER: Final = float("inf")


class HeartbeatClock:
    """The times of one membership, in seconds on the world's monotonic clock.

    `started` sets it going, unless ``now`` is given.
    """

    def __init__(
        self, *, interval: float, session_timeout: float, max_poll_interval: float, now: float = -_NEVER
    ) -> None:
        self.interval = interval
        self.session_timeout = session_timeout
        self.max_poll_interval = max_poll_interval
        self.last_sent = -_NEVER
        self.last_answer = -_NEVER
        self.last_poll = now
        self._last_reset = now
        self._retry_at = -_NEVER

    def started(self, now: float) -> None:
        """The consumer was entered."""
        self.last_poll = self._last_reset = now

    def reset(self, now: float) -> None:
        """A coordinator was found, or a rebalance is over: everything counts from now."""
        self._last_reset = now
        self._retry_at = -_NEVER

    def sent(self, now: float) -> None:
        """A heartbeat is on its way."""
        self.last_sent = now

    def answered(self, now: float) -> None:
        """The coordinator answered, with whatever."""
        self.last_answer = now
        self._retry_at = -_NEVER

    def failed(self, now: float, backoff: float) -> None:
        """No answer: try again after the back-off, not only after the interval."""
        self._retry_at = now + backoff

    def polled(self, now: float) -> None:
        """The user asked for records, or went on to the next."""
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
