"""Whether one connection still works. Plain objects without I/O."""

from __future__ import annotations

from typing import Any, Final

from triokafka.network.dead_peer import LEAST_PROGRESS_BYTES, DeadPeerDetector, Verdict, share_of_limit
from triokafka.network.in_flight_request import InFlightRequest
from triokafka.protocol.message import Request

_NEVER: Final = float("inf")


class Liveness:
    """The received bytes of one connection, and its overdue response. Times are seconds of one clock.

    ``heard_at`` is the time of the last response. ``first_look`` is the number of seconds after a request when its
    response is first checked; after the same time without a response, a ping precedes the next request.

    Args:
        limit: how long a response may be overdue before the connection counts as dead; None disables the check.
        now: the time.
        patience: the multiple of the limit for a kind of request, because the broker was slow before. Outlives the
            connection.
    """

    def __init__(self, limit: float | None, now: float, patience: dict[type[Request[Any]], float]) -> None:
        self.heard_at = now
        self.is_watched = limit is not None
        self.patience = patience
        self._detector = DeadPeerDetector(_NEVER if limit is None else limit)
        self.first_look = self._detector.limit / 2
        self._progressed_at = now
        self._progress = 0
        self._progress_since = now
        self._suspected_since = _NEVER
        self._is_dying = False

    @property
    def probe_timeout(self) -> float:
        """The time limit of a probe of this connection's broker, in seconds."""
        return self._detector.probe_timeout

    def is_proven(self, now: float) -> bool:
        """Whether the connection needs no ping: a response came just now, or nothing is checked."""
        return not self.is_watched or now - self.heard_at < self._detector.recent

    def look(self, oldest: InFlightRequest, progress: int, now: float, *, has_others: bool) -> tuple[Verdict, float]:
        """Return the action for the ``oldest`` request in flight, and when to check again.

        Args:
            oldest: the request.
            progress: the bytes received, and those that the peer has acknowledged.
            now: the time.
            has_others: whether the client can ask another broker instead.
        """
        # Bytes of responses before the silence began are no progress within it, however late the first check comes.
        quiet_since = max(oldest.started_at, self.heard_at)
        if quiet_since == self._progress_since and progress - self._progress >= LEAST_PROGRESS_BYTES:
            self._progressed_at = now
        self._progress, self._progress_since = progress, quiet_since
        verdict, look_at = self._detector.look(
            self._silent_since(oldest),
            now,
            share=share_of_limit(oldest.request_type) / (2 if self._suspected_since == self.heard_at else 1),
            patience=self.patience.get(oldest.request_type, 1.0),
            has_others=has_others,
        )
        if verdict is Verdict.CLOSE:
            self.patience[oldest.request_type] = self.patience.get(oldest.request_type, 1.0) * 2
        return verdict, min(look_at, now + self.first_look)

    def _silent_since(self, oldest: InFlightRequest) -> float:
        # For a request that the broker may delay, the wait counts from its turn.
        return max(max(oldest.started_at, self.heard_at) + oldest.may_wait, self._progressed_at)

    def suspect(self, since: float, oldest: InFlightRequest | None, now: float) -> Verdict:
        """Return what to do after another connection of this client died, silent since ``since``.

        A connection without a recent response may have died with it: ``CLOSE`` if no request is in flight, or the
        ``oldest`` is overdue by half the limit. Otherwise that request gets half the limit from now on, and ``PROBE``
        means to check again now.
        """
        if self._is_dying or not self.is_watched or self.heard_at > since + self._detector.recent:
            return Verdict.WAIT
        if oldest is not None and now - self._silent_since(oldest) < self.first_look:
            self._suspected_since = self.heard_at
            return Verdict.PROBE
        return Verdict.CLOSE

    def die(self, oldest: InFlightRequest | None) -> float:
        """Note that the connection ends as dead, and return the time since which it has been silent."""
        self._is_dying = True
        return self.heard_at if oldest is None else max(self.heard_at, oldest.started_at)

    def probed(self, now: float, *, alive: bool) -> None:
        """Process the outcome of a probe: whether the broker answers over a new connection."""
        self._detector.probed(now, alive=alive)

    def note_prompt_answer(self, entry: InFlightRequest, now: float) -> None:
        """Reset the patience for a kind of request once the broker answers it in time again."""
        if now - entry.started_at < self.first_look:
            self.patience.pop(entry.request_type, None)
