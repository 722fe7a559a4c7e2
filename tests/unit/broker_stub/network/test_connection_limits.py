"""Limits of connections: their number and their rate."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.network.connection_limits import (
    ConnectingTooFastError,
    ConnectionConfig,
    ConnectionLimits,
    TooManyConnectionsError,
)
from triokafka.broker_stub.network.options import ip_connection_rates

ONE, TWO = "192.0.2.1", "192.0.2.2"


def test_address_at_its_limit_is_refused_and_nothing_is_counted() -> None:
    limits = ConnectionLimits(ConnectionConfig(max_connections_per_ip=1, max_connections_per_ip_overrides={TWO: 2}))
    for ip in (ONE, TWO, TWO):
        limits.opened("A", ip, 0)
    for ip in (ONE, TWO):
        with pytest.raises(TooManyConnectionsError, match=ip):
            limits.opened("A", ip, 0)
    assert (limits.total, limits.count("A")) == (3, 3)
    limits.closed("A", ONE)
    limits.opened("B", ONE, 0)
    assert (limits.total, limits.count("A"), limits.count("B")) == (3, 2, 1)


def test_connection_that_was_never_counted_cannot_be_counted_out() -> None:
    limits = ConnectionLimits(ConnectionConfig())
    with pytest.raises(KeyError):
        limits.closed("A", ONE)


def test_broker_that_is_full_takes_connections_on_the_protected_listener_only() -> None:
    """Clients cannot keep brokers from reaching each other: another connection is closed (KIP-402)."""
    limits = ConnectionLimits(ConnectionConfig(max_connections=1, protected="BROKERS"))
    assert not limits.is_full("CLIENTS")
    limits.opened("CLIENTS", ONE, 0)
    assert (limits.is_full("CLIENTS"), limits.is_full("BROKERS")) == (True, False)
    assert limits.excess == 0
    limits.opened("BROKERS", TWO, 0)
    assert limits.excess == 1
    assert (limits.may_be_cut("CLIENTS"), limits.may_be_cut("BROKERS")) == (True, False)


def test_listener_has_a_limit_of_its_own() -> None:
    """This holds for the protected listener, too."""
    limits = ConnectionLimits(ConnectionConfig(listener_max_connections={"BROKERS": 1}, protected="BROKERS"))
    limits.opened("BROKERS", ONE, 0)
    assert (limits.is_full("BROKERS"), limits.is_full("CLIENTS")) == (True, False)


def test_lowered_limit_leaves_too_many() -> None:
    limits = ConnectionLimits(ConnectionConfig())
    for _ in range(3):
        limits.opened("A", ONE, 0)
    limits.configure(ConnectionConfig(max_connections=1))
    assert limits.excess == 2


def test_listener_that_takes_connections_too_fast_has_to_wait_until_the_rate_is_right() -> None:
    """Twenty at once are the allowance of ten windows of two; the next one must wait, at most one window (KIP-612)."""
    limits = ConnectionLimits(ConnectionConfig(max_connection_creation_rate=2))
    assert [limits.opened("A", ONE, 0.5) for _ in range(20)] == [0.0] * 20
    assert limits.opened("A", ONE, 0.5) == pytest.approx(0.5)
    assert limits.opened("B", ONE, 0.5) == 1.0, "one window is the most"
    assert limits.opened("A", ONE, 30.0) == 0.0


def test_rate_of_one_listener_holds_up_that_listener_only() -> None:
    limits = ConnectionLimits(ConnectionConfig(listener_max_connection_creation_rate={"A": 1}))
    assert [limits.opened("A", ONE, 0) for _ in range(11)][-1] > 0
    assert limits.opened("B", ONE, 0) == 0


def test_address_that_connects_too_fast_is_refused_and_others_are_not() -> None:
    """The limit is its own quota or that of all addresses; refused connections do not count (KIP-612)."""
    limits = ConnectionLimits(ConnectionConfig())
    limits.configure_ip_rates({None: 100, ONE: 1})
    for _ in range(10):
        limits.opened("A", ONE, 0)
    for _ in range(5):
        with pytest.raises(ConnectingTooFastError, match=ONE) as refused:
            limits.opened("A", ONE, 0)
        assert refused.value.seconds == pytest.approx(1.0)
    assert limits.total == 10
    for _ in range(50):
        limits.opened("A", TWO, 0)
    limits.opened("A", ONE, 12)
    limits.configure_ip_rates({})
    for _ in range(100):
        limits.opened("A", ONE, 12)


def test_limits_of_addresses_hold_however_the_address_is_written() -> None:
    entity = (("ip", "2001:DB8:0:0:0:0:0:7"),)
    assert ip_connection_rates({entity: {"connection_creation_rate": 3.0}}) == {"2001:db8::7": 3.0}
    assert ip_connection_rates({(("ip", None),): {"connection_creation_rate": 5.0}}) == {None: 5.0}
    config = BrokerConfig(max_connections_per_ip_overrides="2001:db8:0:0:0:0:0:7:2, [::1]:4, 192.0.2.1:3, host:1")
    assert config.connections_per_ip == {"2001:db8::7": 2, "::1": 4, "192.0.2.1": 3, "host": 1}
