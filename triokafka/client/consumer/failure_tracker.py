"""What keeps failing in the background, and since when: so that a wait that leads nowhere ends with a sentence.

Background tasks retry what may succeed later. Each notes its failures here under a name and clears it on success; the
caller that waits for records looks at what has failed without a break for too long.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from triokafka.errors import KafkaTimeoutError

_NEVER: Final = float("inf")


class OngoingFailure(NamedTuple):
    """Something that has failed since ``since`` (seconds on the world's clock), last with ``error``.

    ``told_at`` is when a caller last heard of it, or ``since``; infinity for what callers only see in the health.
    """

    what: str
    since: float
    error: Exception
    told_at: float


class FailureTracker:
    """The things that fail now, by name; false when nothing does."""

    def __init__(self) -> None:
        self._failing: dict[str, OngoingFailure] = {}

    def __bool__(self) -> bool:
        return bool(self._failing)

    def failed(
        self, what: str, error: Exception, now: float, *, quietly: bool = False, since: float | None = None
    ) -> None:
        """``what`` failed once more; ``quietly`` when that alone is never to end a caller's wait.

        ``since`` is when the first failure began, if it began before ``now``.
        """
        known = self._failing.get(what)
        began = known.since if known is not None else now if since is None else since
        if quietly:
            told_at = _NEVER if known is None else known.told_at
        else:
            told_at = began if known is None or known.told_at == _NEVER else known.told_at
        self._failing[what] = OngoingFailure(what, began, error, told_at)

    def succeeded(self, what: str) -> None:
        """``what`` works."""
        self._failing.pop(what, None)

    @property
    def current(self) -> tuple[OngoingFailure, ...]:
        """Everything that fails, the longest first."""
        return tuple(sorted(self._failing.values(), key=lambda failing: failing.since))

    def raise_after(self, limit: float, now: float) -> None:
        """Raise when something has failed for ``limit`` seconds since the caller last heard of it.

        Raises:
            KafkaTimeoutError: says what, since when and why.
        """
        for failing in self.current:
            if now >= failing.told_at + limit:  # as `next_deadline` has it, or a rounding error keeps the caller awake
                self._failing[failing.what] = failing._replace(told_at=now)
                raise KafkaTimeoutError(
                    f"{failing.what} has failed for {now - failing.since:.0f} s; last: {failing.error}"
                ) from failing.error

    def next_deadline(self, limit: float) -> float:
        """When `raise_after` will raise next; infinity when nothing fails."""
        return min((failing.told_at + limit for failing in self._failing.values()), default=_NEVER)
