"""``max_poll_interval_ms``: how long the user may ask for no records before the member leaves its group (KIP-62).

Pure: time is an argument, in seconds on the world's monotonic clock.
"""

from __future__ import annotations

from typing import Final

from triokafka.errors import MaxPollIntervalExceededError

_NEVER: Final = float("inf")


class PollInterval:
    """The user's calls for records, and the ``limit`` of the time between them.

    `started` starts it, unless ``now`` is given.
    """

    def __init__(self, limit: float, *, now: float = -_NEVER) -> None:
        self.limit = limit
        self.idle_before = 0.0
        """For how long the user has called nothing before a caller between them (asyncio) stops polling."""
        self.last_poll = now
        self._calls = 0
        self._seen_progress = -1

    def started(self, now: float) -> None:
        """Start, because the consumer was entered."""
        self.last_poll = now

    def enter_call(self, now: float) -> None:
        """Note that the user waits for records; this time does not count as the user's."""
        self._calls += 1
        self.last_poll = now

    def leave_call(self, now: float) -> None:
        """Note that the user's wait is over."""
        self._calls -= 1
        self.last_poll = now

    def note_progress(self, progress: int, now: float) -> None:
        """Note a number that changes with every call for records."""
        if self._calls or progress != self._seen_progress:
            self._seen_progress = progress
            self.last_poll = now

    def expired(self, now: float) -> bool:
        """Whether the user took longer between two calls than the group allows."""
        return now - self.last_poll > self.limit

    @property
    def expires_at(self) -> float:
        """When `expired` will become true."""
        return self.last_poll + self.limit

    def error(self, group_id: str, now: float) -> MaxPollIntervalExceededError:
        """Return the error for the user whose member leaves the group."""
        silent, limit = (self.idle_before + seconds for seconds in (now - self.last_poll, self.limit))
        return MaxPollIntervalExceededError(
            f"the program asked for no records in {silent:.0f} s, more than max_poll_interval_ms={limit * 1000:.0f},"
            f" so this member left group {group_id!r} and its partitions went to others. The next"
            " call joins again. Raise max_poll_interval_ms, or lower max_poll_records"
        )
