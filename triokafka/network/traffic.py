"""The requests and responses of one client, for its metrics: short lists that the metrics empty about once a second.

Recording costs one or two appends a request. The lists are emptied when a request is sent a second or more after the
last time, and when someone reads the metrics; `Traffic.at` is the time of the last request before that. While a client
sends few requests, such as a consumer at the end of its partitions, they are emptied more rarely
(`Traffic.drain_to`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from triokafka.protocol.message import Request

PORTION_SECONDS: Final = 1.0
"""How long values are collected before the metrics receive them."""
_FEW_REQUESTS: Final = 16
_COORDINATOR_BASE: Final = 2**31 - 1


class NodeTraffic:
    """The connections to one broker, of one purpose. Sizes are bytes on the wire, times seconds."""

    __slots__ = ("answers", "of", "sizes", "throttles")

    def __init__(self, of: Traffic) -> None:
        self.of = of
        self.sizes: list[int] = []
        self.answers: list[tuple[type[Request[Any]], int, float]] = []
        self.throttles: list[tuple[type[Request[Any]], float]] = []

    def sent(self, size: int, now: float) -> None:
        """Note a request."""
        of = self.of
        if now >= of.due:
            of.drain(now)
        of.at = now
        self.sizes.append(size)


class Traffic:
    """The traffic of one client by node.

    ``opened``, ``closed`` and ``refused`` count connections that became ready, that ended, and whose authentication
    failed.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeTraffic] = {}
        self.at = 0.0
        self.due = 0.0
        self._quiet_seconds = 0.0
        self._has_readers = True
        self._drained_at = 0.0
        self.opened: list[float] = []
        self.closed: list[float] = []
        self.refused: list[float] = []
        self._collect: Callable[[], None] = lambda: None
        self._on_open: Callable[[Mapping[int, Any]], None] = lambda versions: None

    def drain_to(self, collect: Callable[[], None], *, quiet_seconds: float = 0.0, has_readers: bool = True) -> None:
        """Call ``collect``, which takes the values, whenever they are due.

        Args:
            quiet_seconds: how long fewer than `_FEW_REQUESTS` requests may wait.
            has_readers: whether changes of connections may not wait, because the metrics are read without a collection
                of the values.
        """
        self._collect = collect
        self._quiet_seconds = quiet_seconds
        self._has_readers = has_readers

    def notify_open(self, callback: Callable[[Mapping[int, Any]], None]) -> None:
        """Call ``callback`` with the API versions of each new connection."""
        self._on_open = callback

    def node(self, node_id: int, purpose: str) -> NodeTraffic:
        """Return the traffic of one connection; a further connection to a broker has Java's id for coordinators."""
        label = f"node-{_COORDINATOR_BASE - node_id if purpose else node_id}"
        found = self.nodes.get(label)
        if found is None:
            found = self.nodes[label] = NodeTraffic(self)
        return found

    def note_open(self, seconds: float, api_versions: Mapping[int, Any]) -> None:
        """Note a connection that became ready."""
        self.opened.append(seconds)
        self._on_open(api_versions)

    def drain(self, now: float) -> None:
        """Pass the values to the metrics; at the client's first request there are none."""
        is_first = not self.due
        self.due = now + PORTION_SECONDS
        if is_first:
            self._drained_at = now
        elif now - self._drained_at >= self._quiet_seconds or not self._is_quiet():
            self._drained_at = now
            self._collect()

    def _is_quiet(self) -> bool:
        connections = len(self.opened) + len(self.closed) + len(self.refused)
        if self._has_readers and connections:
            return False
        return connections + sum(len(node.sizes) for node in self.nodes.values()) < _FEW_REQUESTS


class ChannelTotals(Traffic):
    """The traffic of the channels between nodes, summed up since the start."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = self.request_bytes = self.responses = self.response_bytes = 0
        self.connections_opened = self.connections_closed = self.connections_refused = 0
        self.drain_to(self.sum_up)

    def sum_up(self) -> None:
        """Add the values since the last call to the sums."""
        for node in self.nodes.values():
            self.requests += len(node.sizes)
            self.request_bytes += sum(node.sizes)
            self.responses += len(node.answers)
            self.response_bytes += sum(size for _, size, _ in node.answers)
            for values in (node.sizes, node.answers, node.throttles):
                values.clear()
        self.connections_opened += len(self.opened)
        self.connections_closed += len(self.closed)
        self.connections_refused += len(self.refused)
        for times in (self.opened, self.closed, self.refused):
            times.clear()
