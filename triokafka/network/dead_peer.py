"""Dead peer detection: when a connection with an overdue response counts as dead. Plain objects without I/O.

A peer can vanish without a reset: a NAT table or a load balancer drops the connection, a host loses power. The kernel
notices some of these cases (see `Stream.limit_silence`); a proxy that acknowledges bytes and drops them hides the rest.
So the client sends a request to the same broker over a new connection. If the broker answers there and the older
connection brings nothing, the older connection is dead.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from triokafka.protocol.message import Request

_NEVER: Final = float("inf")
_QUICK: Final = {12: 1 / 3, 18: 2 / 9, 68: 1 / 3}
"""The share of the limit for requests that no broker delays: Heartbeat, ApiVersions, ConsumerGroupHeartbeat."""
_SETTLING_SHARE: Final = 1 / 18
"""The share of the limit in which a connection must receive bytes after the broker answered over another one. After a
pause of the whole broker, responses come on all connections, in any order."""
LEAST_PROGRESS_BYTES: Final = 4096
"""Fewer bytes of an incomplete response between two checks are no progress: a connection that drips counts as
silent."""


_FETCH: Final = 1
_WAITS_FOR_MEMBERS: Final = frozenset({11, 14})
"""JoinGroup and SyncGroup: the coordinator answers when all members of the group have joined."""
_WAITS_FOR_CONTROLLER: Final = frozenset({19, 20, 21, 37, 43, 45, 57})
"""CreateTopics, DeleteTopics, DeleteRecords, CreatePartitions, ElectLeaders, AlterPartitionReassignments,
UpdateFeatures: the response comes when the change is made, within the request's ``timeout_ms``. A repetition may
report the success of the first request as a failure."""


def allowed_wait(request: Request[Any]) -> float:
    """Return how many seconds the protocol lets a broker delay the response to ``request``.

    Produce is not included: a leader waits for its replicas, but a producer with sequence numbers may send again.
    """
    api_key = request.api_key
    if api_key == _FETCH:
        wait_ms: int = getattr(request, "max_wait_ms", 0)
        return max(0, wait_ms) / 1000
    if api_key in _WAITS_FOR_MEMBERS:
        return _NEVER
    if api_key in _WAITS_FOR_CONTROLLER:
        return max(0, getattr(request, "timeout_ms", 0)) / 1000
    return 0.0


def needs_checked_connection(request_type: type[Request[Any]]) -> bool:
    """Return whether a request needs a connection that was just tested, because its silence reveals nothing."""
    return request_type.api_key in _WAITS_FOR_MEMBERS or request_type.api_key in _WAITS_FOR_CONTROLLER


def share_of_limit(request_type: type[Request[Any]]) -> float:
    """Return the share of the limit that the response to this kind of request may take."""
    return _QUICK.get(request_type.api_key, 1.0)


class Verdict(enum.Enum):
    """The next action of the owner of a silent connection."""

    WAIT = "look again later"
    PROBE = "probe the broker over a new connection"
    CLOSE = "close the connection"


class DeadPeerDetector:
    """Decides about one connection, from the time of its overdue response. Times are seconds of one clock.

    Args:
        limit: how long a response may be overdue, with nothing received, before the connection counts as dead.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._silent_since = _NEVER
        self._probing = False
        self._probed_at = -_NEVER
        self._alive = False

    @property
    def probe_timeout(self) -> float:
        """The time limit of one probe."""
        return self.limit / 2

    @property
    def recent(self) -> float:
        """How long after its last response a connection needs no check, and the least time between two probes."""
        return self.limit / 9

    def look(
        self, silent_since: float, now: float, *, share: float, patience: float, has_others: bool
    ) -> tuple[Verdict, float]:
        """Return the action for a response that is overdue since ``silent_since``, and when to check again.

        Args:
            silent_since: when the oldest response became due, or the connection last received bytes.
            now: the time.
            share: the share of the limit for this kind of request.
            patience: the multiple of the limit for this kind of request, because the broker was slow before.
            has_others: whether another broker is available, so that ending this connection helps.
        """
        if silent_since == _NEVER:
            return Verdict.WAIT, _NEVER
        if silent_since != self._silent_since:
            self._silent_since, self._alive, self._probed_at = silent_since, False, -_NEVER
        limit = self.limit * patience
        allowed = limit * share
        if now < silent_since + allowed / 2:
            return Verdict.WAIT, silent_since + allowed / 2
        if self._alive:
            close_at = max(silent_since + allowed, self._probed_at + self.limit * _SETTLING_SHARE)
            return (Verdict.CLOSE, now) if now >= close_at else (Verdict.WAIT, close_at)
        if has_others and now >= silent_since + limit:
            return Verdict.CLOSE, now
        close_at = silent_since + limit if has_others else _NEVER
        if self._probing:
            return Verdict.WAIT, close_at
        probe_at = self._probed_at + self.recent
        if now < probe_at:
            return Verdict.WAIT, min(probe_at, close_at)
        self._probing = True
        return Verdict.PROBE, close_at

    def probed(self, now: float, *, alive: bool) -> None:
        """Process the outcome of the probe that `look` requested."""
        self._probing = False
        self._probed_at = now
        self._alive = alive
