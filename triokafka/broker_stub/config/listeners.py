"""``listeners``, ``advertised.listeners`` and ``listener.security.protocol.map``: parsers and checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple

SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Kafka's numbers of the security protocols."""


class ListenerSpec(NamedTuple):
    """A listener's name, security protocol and address. An empty host means every interface."""

    name: str
    security_protocol: str
    host: str
    port: int


def parse_security_map(entries: Iterable[str]) -> dict[str, str]:
    """Parse ``listener.security.protocol.map`` into a dictionary from listener name to security protocol."""
    result: dict[str, str] = {}
    for entry in entries:
        name, separator, protocol = entry.partition(":")
        if not separator or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ConfigurationError(
                f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL "
                f"with one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        result[name.strip().upper()] = protocol.strip().upper()
    return result


def parse_listeners(option: str, entries: Iterable[str], protocols: dict[str, str]) -> tuple[ListenerSpec, ...]:
    """Parse the ``NAME://host:port`` entries of ``listeners`` or ``advertised.listeners``.

    Raises:
        ConfigurationError: an entry is malformed, a listener has no security protocol, or two listeners have the same
            name or address.
    """
    result: list[ListenerSpec] = []
    for entry in entries:
        name, separator, address = entry.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit() or int(port) > 65535:
            raise ConfigurationError(f"{option}: {entry!r} is not NAME://host:port")
        name = name.strip().upper()
        if name not in protocols:
            raise ConfigurationError(f"{option}: the listener {name} has no entry in listener.security.protocol.map")
        if any(other.name == name for other in result):
            raise ConfigurationError(f"{option}: two listeners have the name {name}")
        number = int(port)
        clash = next((o for o in result if number and o.port == number and o.host == host.strip("[]")), None)
        if clash is not None:
            raise ConfigurationError(f"{option}: the listeners {clash.name} and {name} have the same address")
        result.append(ListenerSpec(name, protocols[name], host.strip("[]"), number))
    return tuple(result)


def check_advertised(advertised: Iterable[ListenerSpec], listeners: Iterable[ListenerSpec]) -> None:
    """Raise `ConfigurationError` for an advertised listener that is not in ``listeners``, or has no usable host."""
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            raise ConfigurationError(f"advertised.listeners: {listener.name} is not one of listeners")
        if listener.host in ("0.0.0.0", "::"):
            raise ConfigurationError(f"advertised.listeners: clients cannot connect to {listener.host}")
