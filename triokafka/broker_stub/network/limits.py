"""How many connections a broker holds: in all, and from one address. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping

from triokafka.errors import KafkaError


class TooManyConnectionsError(KafkaError):
    """One address holds as many connections as it may; the new one is closed, the others are untouched."""

    advice = "Close connections, or raise max.connections.per.ip (max.connections.per.ip.overrides for one address)."


class ConnectionLimits:
    """Counts connections against ``max.connections`` and ``max.connections.per.ip`` with its overrides."""

    def __init__(self, *, max_connections: int, max_per_ip: int, per_ip_overrides: Mapping[str, int]) -> None:
        self._max_connections = max_connections
        self._max_per_ip = max_per_ip
        self._overrides = dict(per_ip_overrides)
        self._by_ip: dict[str, int] = {}
        self.total = 0

    @property
    def full(self) -> bool:
        """Whether the broker holds as many connections as it may, whoever they are from."""
        return self.total >= self._max_connections

    def opened(self, ip: str) -> None:
        """Count a new connection.

        Raises:
            TooManyConnectionsError: the address is at its limit; nothing was counted.
        """
        count = self._by_ip.get(ip, 0)
        limit = self._overrides.get(ip, self._max_per_ip)
        if count >= limit:
            raise TooManyConnectionsError(f"{ip} has {count} connections already, the limit is {limit}")
        self._by_ip[ip] = count + 1
        self.total += 1

    def closed(self, ip: str) -> None:
        """Count a connection out again; exactly once for each that was counted in."""
        count = self._by_ip[ip] - 1
        if count:
            self._by_ip[ip] = count
        else:
            del self._by_ip[ip]
        self.total -= 1
