"""Checks of option values: one function per kind of value, and the error message for a wrong one."""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.hooks import Hooks
from triokafka.metrics.reporter import MetricsReporter
from triokafka.security.secret import Secret

Check = Callable[[str, Any], Any]
"""Takes the option's name and the given value; returns the value to use, or raises `ConfigurationError`."""

_OF_REPORTERS: Final = ("init", "metric_change", "metric_removal", "close")
DEFAULT_PORT: Final = 9092
MAX_INT32: Final = 2**31 - 1


def option(default: Any, check: Check, doc: str) -> Any:
    """Declare one option of a table: its default, the check of its value, and its meaning."""
    return field(default=default, metadata={"check": check, "doc": doc})


def _refuse(name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={value!r} cannot be used: expected {expected}")


def number(at_least: float = 0, at_most: float = float("inf")) -> Check:
    """A number within bounds, usually milliseconds."""
    expected = f"a number from {at_least}" + (f" to {at_most}" if at_most != float("inf") else "")

    def check(name: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not at_least <= value <= at_most:
            raise _refuse(name, value, expected)
        return value

    return check


def integer(at_least: int = 0, at_most: int = MAX_INT32) -> Check:
    """A whole number within bounds: bytes, counts."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
            raise _refuse(name, value, f"a whole number from {at_least} to {at_most}")
        return value

    return check


def flag() -> Check:
    """True or False."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, bool):
            raise _refuse(name, value, "True or False")
        return value

    return check


def text(*, optional: bool = False) -> Check:
    """A string."""

    def check(name: str, value: Any) -> Any:
        if value is None and optional:
            return None
        if not isinstance(value, str):
            raise _refuse(name, value, "a string" + (" or None" if optional else ""))
        return value

    return check


def secret(*, callable_too: bool = False) -> Check:
    """A string that no message shows, or None; with ``callable_too`` also a function that returns one."""

    def check(name: str, value: Any) -> Any:
        if value is None or (callable_too and callable(value)):
            return value
        if not isinstance(value, str):
            raise _refuse(name, type(value), "a string" + (", a function" if callable_too else "") + " or None")
        return value if isinstance(value, Secret) else Secret(value)

    return check


def credential(name: str, value: Any) -> Any:
    """A string, a function that returns one, or None."""
    if value is None or isinstance(value, str) or callable(value):
        return value
    raise _refuse(name, value, "a string, a function or None")


def tls_context(name: str, value: Any) -> Any:
    """An `ssl.SSLContext`, or None."""
    if value is None or isinstance(value, ssl.SSLContext):
        return value
    raise _refuse(name, value, "an ssl.SSLContext or None")


def choice(*allowed: Any) -> Check:
    """One of a few values; the error names the nearest string."""

    def check(name: str, value: Any) -> Any:
        if value in allowed and not isinstance(value, bool):
            return value
        expected = "one of " + ", ".join(repr(one) for one in allowed)
        near = difflib.get_close_matches(str(value), [one for one in allowed if isinstance(one, str)], n=1)
        raise _refuse(name, value, expected + (f" (did you mean {near[0]!r}?)" if near else ""))

    return check


def function() -> Check:
    """A callable, or None."""

    def check(name: str, value: Any) -> Any:
        if value is not None and not callable(value):
            raise _refuse(name, value, "a function or None")
        return value

    return check


def anything() -> Check:
    """Any value; the code that uses it checks it."""
    return lambda name, value: value


def items() -> Check:
    """A list or tuple of any values, converted to a tuple."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise _refuse(name, value, "a list")
        return tuple(value)

    return check


def mapping() -> Check:
    """A mapping of names to values, copied into a dict; or None."""

    def check(name: str, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise _refuse(name, value, "a mapping of names to values")
        return dict(value)

    return check


def serializer(interface: type) -> Check:
    """A function, an object or class of the interface, the ``"module:Name"`` of one of these, or None."""

    def check(name: str, value: Any) -> Any:
        if value is None or callable(value) or isinstance(value, (interface, str)):
            return value
        raise _refuse(name, value, f"a {interface.__name__}, a class of it, a function, or None")

    return check


def hook_objects(name: str, value: Any) -> tuple[Hooks, ...]:
    """One `Hooks` object or a list of them, as a tuple."""
    given = value if isinstance(value, (list, tuple)) else (value,)
    for one in given:
        if not isinstance(one, Hooks):
            raise _refuse(name, one, "an object of a class derived from triokafka.Hooks, or a list of them")
    return tuple(given)


def reporter_objects(name: str, value: Any) -> tuple[MetricsReporter, ...]:
    """One `MetricsReporter` or a list of them, as a tuple."""
    given = value if isinstance(value, (list, tuple)) else (value,)
    for one in given:
        if not all(callable(getattr(one, method, None)) for method in _OF_REPORTERS) or isinstance(one, type):
            raise _refuse(name, one, f"an object with the methods {', '.join(_OF_REPORTERS)}, or a list of them")
    return tuple(given)


def acks(name: str, value: Any) -> int:
    known = {"all": -1, -1: -1, "-1": -1, 0: 0, "0": 0, 1: 1, "1": 1}
    if isinstance(value, bool) or not isinstance(value, (int, str)) or value not in known:
        raise _refuse(name, value, "0, 1 or 'all'")
    return known[value]


def bootstrap_addresses(name: str, value: Any) -> tuple[tuple[str, int], ...]:
    """``"host:port,host:port"`` or a list of such texts or of pairs, as host and port pairs; the port may be left
    out."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, Sequence) or not given:
        raise _refuse(name, value, "'host:port', several with commas, or a list of them")
    if any(isinstance(one, str) and "@" in one for one in given):
        raise ConfigurationError(
            f"{name}: an address must not hold credentials: give them as sasl_username and sasl_password"
        )
    found: list[tuple[str, int]] = []
    for one in given:
        if isinstance(one, tuple) and len(one) == 2:
            host, port = str(one[0]), one[1]
        elif isinstance(one, str) and one.strip():
            host, port = _split_address(name, one.strip())
        else:
            raise _refuse(name, one, "'host:port'")
        if not host or isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise _refuse(name, one, "'host:port' with a port from 1 to 65535")
        if (host, port) not in found:
            found.append((host, port))
    return tuple(found)


def _split_address(name: str, address: str) -> tuple[str, int]:
    if "://" in address:
        raise _refuse(name, address, "'host:port' without a scheme")
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
    elif address.count(":") > 1:
        host, port = address, ""  # a bare IPv6 address
    else:
        host, _, port = address.partition(":")
    if port and not port.isdigit():
        raise _refuse(name, address, "'host:port' with a number as port")
    return host, int(port) if port else DEFAULT_PORT
