"""Limits of the number and the creation rate of connections: of the broker, of a listener and of an address.

Pure bookkeeping without I/O; callers pass events and the time in seconds on the world's clock. Rates use the windows of
quotas (``quota.window.num``). Above its limit, a listener waits until the rate has decreased, for at most one window.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from triokafka.broker_stub.quota_rate import QuotaRate
from triokafka.errors import KafkaError
from triokafka.metrics.metric_config import MetricConfig
from triokafka.named_tuple import NamedTuple

INT_MAX: Final = 2**31 - 1
_MANY: Final = 1000
"""Number of addresses with a rate above which expired rates are removed."""


class TooManyConnectionsError(KafkaError):
    """The address is at its connection limit. The broker closes the new connection."""

    advice = "Close connections, or raise max.connections.per.ip (max.connections.per.ip.overrides for one address)."


class ConnectingTooFastError(KafkaError):
    """The address exceeds its connection rate quota. The broker closes the new connection after ``seconds``."""

    advice = "Keep connections open, or raise the quota connection_creation_rate of the address."

    def __init__(self, message: str, *, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class ConnectionConfig(NamedTuple):
    """The limits with Kafka's configuration names; limits of single listeners by listener name.

    ``protected`` is the inter-broker listener, if there are other listeners too. It accepts connections above
    ``max.connections``, and the broker then closes the most idle connection of another listener (KIP-402).
    """

    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = MappingProxyType({})
    max_connection_creation_rate: int = INT_MAX
    listener_max_connections: Mapping[str, int] = MappingProxyType({})
    listener_max_connection_creation_rate: Mapping[str, int] = MappingProxyType({})
    protected: str | None = None
    rate_samples: int = 11
    rate_window_seconds: float = 1.0


class ConnectionLimits:
    """Counts open connections and checks the limits for new ones."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config
        self._windows = MetricConfig(samples=config.rate_samples, window_seconds=config.rate_window_seconds)
        self._ip_rate_limits: Mapping[str | None, float] = {}
        self._by_ip: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._rate = QuotaRate(self._windows)
        self._listener_rates: dict[str, QuotaRate] = {}
        self._ip_rates: dict[str, QuotaRate] = {}
        self.total = 0

    def configure(self, config: ConnectionConfig) -> None:
        """Replace the limits. Counts of open connections and rates stay."""
        self._config = config

    def configure_ip_rates(self, limits: Mapping[str | None, float]) -> None:
        """Set the connections per second by address. The key None is the default for all other addresses."""
        self._ip_rate_limits = limits
        if not limits:
            self._ip_rates.clear()

    def count(self, listener: str) -> int:
        """Return the number of open connections of one listener."""
        return self._by_listener.get(listener, 0)

    def is_full(self, listener: str) -> bool:
        """Whether a listener must not accept another connection from any address."""
        config = self._config
        limit = config.listener_max_connections.get(listener, INT_MAX)
        if self._by_listener.get(listener, 0) >= limit:
            return True
        return listener != config.protected and self.total >= config.max_connections

    @property
    def excess(self) -> int:
        """Number of connections above ``max.connections``, after a lowered limit or on the protected listener."""
        return max(self.total - self._config.max_connections, 0)

    def may_be_cut(self, listener: str) -> bool:
        """Whether the broker may close connections of a listener to make room."""
        return listener != self._config.protected

    def opened(self, listener: str, ip: str, now: float) -> float:
        """Count a new connection; return the seconds that the listener must wait before it accepts the next one.

        Raises:
            TooManyConnectionsError: the address is at its limit; the connection does not count.
            ConnectingTooFastError: the address exceeds its rate; the connection does not count.
        """
        config = self._config
        count = self._by_ip.get(ip, 0)
        limit = config.max_connections_per_ip_overrides.get(ip, config.max_connections_per_ip)
        if count >= limit:
            raise TooManyConnectionsError(f"{ip} has {count} connections; the limit is {limit}")
        self._check_ip_rate(ip, now)
        self._by_ip[ip] = count + 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        self.total += 1
        return self._wait(listener, now)

    def closed(self, listener: str, ip: str) -> None:
        """Remove a connection from the counts. Call it exactly once per counted connection."""
        count = self._by_ip[ip] - 1
        if count:
            self._by_ip[ip] = count
        else:
            del self._by_ip[ip]
        self._by_listener[listener] -= 1
        self.total -= 1

    def _check_ip_rate(self, ip: str, now: float) -> None:
        limits = self._ip_rate_limits
        if not limits:
            return
        limit = limits.get(ip, limits.get(None))
        if limit is None:
            return
        rate = self._ip_rates.get(ip)
        if rate is None:
            if len(self._ip_rates) >= _MANY:
                self._ip_rates = {known: rate for known, rate in self._ip_rates.items() if not rate.is_over(now)}
            rate = self._ip_rates[ip] = self._new_rate()
        seconds = self._record(rate, limit, now)
        if seconds:
            rate.record(-1, now)  # a refused connection does not count
            raise ConnectingTooFastError(f"{ip} opens more than {limit:g} connections per second", seconds=seconds)

    def _wait(self, listener: str, now: float) -> float:
        """Count a connection towards the rates of broker and listener; return the longer of both waits in seconds."""
        config = self._config
        seconds = self._record(self._rate, config.max_connection_creation_rate, now)
        limit = config.listener_max_connection_creation_rate.get(listener)
        if limit is not None:
            rate = self._listener_rates.get(listener)
            if rate is None:
                rate = self._listener_rates[listener] = self._new_rate()
            seconds = max(seconds, self._record(rate, limit, now))
        return seconds

    def _record(self, rate: QuotaRate, limit: float, now: float) -> float:
        if limit >= INT_MAX:
            return 0.0
        rate.record(1, now)
        return min(rate.throttle_seconds(limit, now), self._config.rate_window_seconds)

    def _new_rate(self) -> QuotaRate:
        return QuotaRate(self._windows)
