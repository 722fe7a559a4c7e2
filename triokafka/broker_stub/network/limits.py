"""How many connections a broker holds and how fast it takes new ones: in all, by listener and by address.

Pure bookkeeping, told what happened and what time it is (seconds on the world's clock). A rate is taken over the
windows of quotas (``quota.window.num``); who is too fast waits until it has come down, for one window at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from triokafka.broker_stub.request.quotas import Rate
from triokafka.errors import KafkaError
from triokafka.named_tuple import NamedTuple

INT_MAX: Final = 2**31 - 1
_MANY: Final = 1000
"""Rates of addresses that are kept before those that mean nothing any more are looked for."""


class TooManyConnectionsError(KafkaError):
    """One address holds as many connections as it may; the new one is closed, the others are untouched."""

    advice = "Close connections, or raise max.connections.per.ip (max.connections.per.ip.overrides for one address)."


class ConnectingTooFastError(KafkaError):
    """One address connects faster than its quota; the new connection is closed after ``seconds``."""

    advice = "Keep connections open, or raise the quota connection_creation_rate of the address."

    def __init__(self, message: str, *, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class ConnectionConfig(NamedTuple):
    """The limits, named as in Kafka's configuration; those of single listeners by the listener's name.

    ``protected`` is the listener of brokers, where there are others: it takes connections though the broker is full,
    and the most idle one of another listener goes (KIP-402).
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
    """Counts connections, and says who may have one more."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config
        self._ip_rate_limits: Mapping[str | None, float] = {}
        self._by_ip: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._rate = Rate(config.rate_samples, config.rate_window_seconds)
        self._listener_rates: dict[str, Rate] = {}
        self._ip_rates: dict[str, Rate] = {}
        self.total = 0

    def configure(self, config: ConnectionConfig) -> None:
        """Other limits from now on; what is open stays counted, rates go on."""
        self._config = config

    def configure_ip_rates(self, limits: Mapping[str | None, float]) -> None:
        """How many connections an address may make in a second; of those that have no limit of their own under None."""
        self._ip_rate_limits = limits
        if not limits:
            self._ip_rates.clear()

    def count(self, listener: str) -> int:
        """Open connections of one listener."""
        return self._by_listener.get(listener, 0)

    def is_full(self, listener: str) -> bool:
        """Whether a listener must not take one more connection now, whoever it is from."""
        config = self._config
        limit = config.listener_max_connections.get(listener, INT_MAX)
        if self._by_listener.get(listener, 0) >= limit:
            return True
        return listener != config.protected and self.total >= config.max_connections

    @property
    def excess(self) -> int:
        """How many connections there are too many of: a limit was lowered, or the protected listener took them."""
        return max(self.total - self._config.max_connections, 0)

    def may_be_cut(self, listener: str) -> bool:
        """Whether connections of a listener may be closed to make room."""
        return listener != self._config.protected

    def opened(self, listener: str, ip: str, now: float) -> float:
        """Count a new connection; returns how many seconds the listener must wait before it takes the next one.

        Raises:
            TooManyConnectionsError: the address is at its limit; nothing was counted.
            ConnectingTooFastError: the address is too fast; nothing was counted but the attempt.
        """
        config = self._config
        count = self._by_ip.get(ip, 0)
        limit = config.max_connections_per_ip_overrides.get(ip, config.max_connections_per_ip)
        if count >= limit:
            raise TooManyConnectionsError(f"{ip} has {count} connections already, the limit is {limit}")
        self._check_ip_rate(ip, now)
        self._by_ip[ip] = count + 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        self.total += 1
        return self._wait(listener, now)

    def closed(self, listener: str, ip: str) -> None:
        """Count a connection out again; exactly once for each that was counted in."""
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
            rate.record(-1, now)  # it was not let in, so it does not count
            raise ConnectingTooFastError(f"{ip} makes more than {limit:g} connections a second", seconds=seconds)

    def _wait(self, listener: str, now: float) -> float:
        """Count towards the rates of broker and listener; the longer of both waits."""
        config = self._config
        seconds = self._record(self._rate, config.max_connection_creation_rate, now)
        limit = config.listener_max_connection_creation_rate.get(listener)
        if limit is not None:
            rate = self._listener_rates.get(listener)
            if rate is None:
                rate = self._listener_rates[listener] = self._new_rate()
            seconds = max(seconds, self._record(rate, limit, now))
        return seconds

    def _record(self, rate: Rate, limit: float, now: float) -> float:
        if limit >= INT_MAX:
            return 0.0
        rate.record(1, now)
        observed, seconds = rate.measure(now)
        if observed <= limit:
            return 0.0
        most = self._config.rate_window_seconds
        return most if limit <= 0 else min((observed - limit) / limit * seconds, most)

    def _new_rate(self) -> Rate:
        return Rate(self._config.rate_samples, self._config.rate_window_seconds)
