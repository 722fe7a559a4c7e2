"""Whether a response is overdue (``request_timeout_ms``), or a connection was idle for too long. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.errors import KafkaConnectionError, RequestTimedOutError
from triokafka.network.in_flight_request import InFlightRequest


def check_timeouts(
    unanswered: Sequence[InFlightRequest], last_used_at: float, max_idle: float, now: float, name: str
) -> tuple[float, RequestTimedOutError | KafkaConnectionError | None]:
    """Return when to check again, and the error that ends the connection to the broker ``name`` now, or None.

    Args:
        unanswered: the requests in flight, oldest first.
        last_used_at: when the last request was submitted, in seconds on the clock of ``now``.
        max_idle: how many seconds a connection without requests is kept.
    """
    if not unanswered:
        due = last_used_at + max_idle
        if due > now:
            return due, None
        idle_ms = round(max_idle * 1000)
        return due, KafkaConnectionError(f"the connection to {name} was closed after {idle_ms} ms without use")
    due = min(entry.deadline for entry in unanswered)
    if due > now:
        return due, None
    overdue = next(entry for entry in unanswered if entry.deadline <= now)
    waited = round((now - overdue.started_at) * 1000)
    return due, RequestTimedOutError(
        f"{name} did not answer {overdue.request_type.__name__} within {waited} ms; connection closed"
    )
