"""Ongoing failures of background activities, so that a wait for records that cannot succeed ends with a reason.

Background tasks retry after retriable errors. Each notes its failures here under a name, and clears the name on
success. The caller that waits for records raises the error of an activity that has failed without a break for too long.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from triokafka.errors import KafkaTimeoutError

_NEVER: Final = float("inf")


class OngoingFailure(NamedTuple):
    """An activity that has failed since ``since`` (seconds on the world's clock), last with ``error``.

    ``raised_at`` is when a caller last got the error, or ``since``; infinity if only `Consumer.health` shows it.
    """

    what: str
    since: float
    error: Exception
    raised_at: float


class FailureTracker:
    """The failing activities by name; false if there are none."""

    def __init__(self) -> None:
        self._failing: dict[str, OngoingFailure] = {}

    def __bool__(self) -> bool:
        return bool(self._failing)

    def failed(
        self, what: str, error: Exception, now: float, *, quietly: bool = False, since: float | None = None
    ) -> None:
        """Note that activity ``what`` failed once more; with ``quietly`` it never ends a caller's wait.

        ``since`` is when the first failure began, if it began before ``now``.
        """
        known = self._failing.get(what)
        began = known.since if known is not None else now if since is None else since
        if quietly:
            raised_at = _NEVER if known is None else known.raised_at
        else:
            raised_at = began if known is None or known.raised_at == _NEVER else known.raised_at
        self._failing[what] = OngoingFailure(what, began, error, raised_at)

    def succeeded(self, what: str) -> None:
        """Note that activity ``what`` has succeeded."""
        self._failing.pop(what, None)

    @property
    def current(self) -> tuple[OngoingFailure, ...]:
        """All failing activities, the longest failing first."""
        return tuple(sorted(self._failing.values(), key=lambda failing: failing.since))

    def raise_after(self, limit: float, now: float) -> None:
        """Raise if an activity has failed for ``limit`` seconds since the caller last got its error.

        Raises:
            KafkaTimeoutError: names the activity, how long it has failed, and the last error.
        """
        for failing in self.current:
            if (
                now >= failing.raised_at + limit
            ):  # as `next_deadline` has it, or a rounding error keeps the caller awake
                self._failing[failing.what] = failing._replace(raised_at=now)
                raise KafkaTimeoutError(
                    f"{failing.what} has failed for {now - failing.since:.0f} s; last: {failing.error}"
                ) from failing.error

    def next_deadline(self, limit: float) -> float:
        """Return when `raise_after` will raise next; infinity if nothing fails."""
        return min((failing.raised_at + limit for failing in self._failing.values()), default=_NEVER)
