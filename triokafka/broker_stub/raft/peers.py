"""The connections of a node of the quorum: one request at a time to each peer, and a pause after a failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triokafka.broker_stub.raft.effects import RaftEffects, Send
from triokafka.broker_stub.raft.election_timeout import Randomness
from triokafka.protocol.message import Request
from triokafka.structs import Node


@dataclass(slots=True)
class _Peer:
    """A request in flight since ``since``, or a failure at that time when ``request_id`` is None."""

    request_id: int | None
    since: float


class Peers:
    """Knows which peers may be sent a request. Times are seconds on the world's monotonic clock.

    A response is unexpected if its request timed out, or if an epoch began after the request.

    Args:
        effects: takes the requests to send.
        retry_backoff: the pause after a failed request.
        request_timeout: the time after which a request is given up.
    """

    def __init__(self, effects: RaftEffects, *, retry_backoff: float, request_timeout: float, rng: Randomness) -> None:
        self._effects = effects
        self._retry_backoff = retry_backoff
        self._request_timeout = request_timeout
        self._random = rng
        self._peers: dict[int, _Peer] = {}
        self._last_id = 0

    def ready_at(self, node_id: int, now: float) -> float:
        """Return when a request may be sent to this peer; not after ``now``: immediately."""
        peer = self._peers.get(node_id)
        if peer is None:
            return now
        return peer.since + (self._retry_backoff if peer.request_id is None else self._request_timeout)

    def is_backing_off(self, node_id: int, now: float) -> bool:
        """Whether the last request to this peer has failed a short time ago."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.request_id is None and now < peer.since + self._retry_backoff

    def has_timed_out(self, node_id: int, now: float) -> bool:
        """Whether this peer has not answered the last request in time."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.request_id is not None and now >= peer.since + self._request_timeout

    def waits_until(self, now: float) -> float:
        """Return when the last request in flight times out; ``now`` or before if none is in flight."""
        return max(
            (peer.since + self._request_timeout for peer in self._peers.values() if peer.request_id is not None),
            default=-math.inf,
        )

    def send(self, node: Node, request: Request[Any], now: float) -> float:
        """Send a request if the peer may be sent one; return when it may be sent the next one."""
        if self.ready_at(node.node_id, now) <= now:
            self.send_now(node, request, now)
        return self.ready_at(node.node_id, now)

    def send_now(self, node: Node, request: Request[Any], now: float) -> None:
        """Send a request whether the peer may be sent one or not; a response to one before is unexpected then."""
        self._last_id += 1
        self._peers[node.node_id] = _Peer(self._last_id, now)
        self._effects.send(Send(node, request, self._last_id))

    def is_expected(self, node_id: int, request_id: int) -> bool:
        """Whether the node still waits for the response to this request."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.request_id == request_id

    def answered(self, node_id: int, request_id: int, *, success: bool, now: float, pause: float = 0.0) -> None:
        """Record the result of a request; does nothing unless its response is still expected.

        After a failure the next request waits for the back-off and ``pause`` seconds more.
        """
        if self.is_expected(node_id, request_id):
            if success:
                del self._peers[node_id]
            else:
                self._peers[node_id] = _Peer(None, now + pause)

    def pause(self, node_id: int, until: float) -> None:
        """Give up the request to one peer, and send it no other one before ``until``."""
        self._peers[node_id] = _Peer(None, until)

    def forget_all(self) -> None:
        """Give up all requests and pauses: an epoch or a state begins."""
        self._peers.clear()

    def any_ready(self, nodes: Sequence[Node], now: float) -> Node | None:
        """Return a random one of the nodes that are ready; None if there is none."""
        ready = [node for node in nodes if self.ready_at(node.node_id, now) <= now]
        return ready[self._random.randrange(len(ready))] if ready else None

    def first_ready_at(self, nodes: Sequence[Node], now: float) -> float:
        """Return when the first of the nodes is ready; infinite without any."""
        return min((self.ready_at(node.node_id, now) for node in nodes), default=math.inf)
