"""The definition of one configuration key: name, type, default and validation."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from triokafka.errors import InvalidConfigurationError
from triokafka.named_tuple import NamedTuple

_MAX_LONG: Final = 2**63 - 1
_MAX_INT: Final = 2**31 - 1
_FLOAT: Final = re.compile(r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)", re.ASCII)


class ConfigType(IntEnum):
    """Types of values, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


def parse_boolean(text: str) -> bool:
    """Parse true or false, in any case. Raises `ValueError`."""
    lower = text.lower()
    if lower not in ("true", "false"):
        raise ValueError
    return lower == "true"


def parse_int(text: str) -> int:
    """Parse a whole number as Java does: without the underscores that Python allows. Raises `ValueError`."""
    if "_" in text:
        raise ValueError
    return int(text)


def parse_float(text: str) -> float:
    """Parse a number as Java does: it spells infinity and NaN in one way only. Raises `ValueError`."""
    if not _FLOAT.fullmatch(text):
        raise ValueError
    return float(text)


class LogConfigDefinition(NamedTuple):
    """One configuration key: its name, type, default and limits.

    Args:
        name: Kafka's dotted name.
        default: the parsed default.
        doc: its description, in a sentence or two.
        check: returns the problem with a parsed value, or an empty string.
        broker_keys: broker keys that give the default, the strongest first, each with the factor that converts its unit
            to this key's unit.
        internal: accepted but not listed.
    """

    name: str
    type: ConfigType
    default: Any
    doc: str
    check: Callable[[Any], str] = lambda _value: ""
    broker_keys: tuple[tuple[str, int], ...] = ()
    internal: bool = False

    @property
    def attribute(self) -> str:
        """The name of the Python attribute."""
        return self.name.replace(".", "_")

    def parse(self, text: str | None) -> Any:
        """Parse ``text``. Raises `InvalidConfigurationError`, which names the key, the value and the limit."""
        if text is None:
            raise InvalidConfigurationError(f"{self.name} needs a value, got null")
        value = self._convert(text.strip())
        problem = self.check(value)
        if problem:
            raise InvalidConfigurationError(f"Invalid value {text} for configuration {self.name}: {problem}")
        return value

    def _convert(self, text: str) -> Any:
        bad = f"Invalid value {text} for configuration {self.name}: Not a number of type {self.type.name}"
        try:
            match self.type:
                case ConfigType.BOOLEAN:
                    return parse_boolean(text)
                case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
                    value = parse_int(text)
                    limit = {ConfigType.INT: _MAX_INT, ConfigType.SHORT: 2**15 - 1}.get(self.type, _MAX_LONG)
                    if not -limit - 1 <= value <= limit:
                        raise ValueError
                    return value
                case ConfigType.DOUBLE:
                    return parse_float(text)
                case ConfigType.LIST:
                    return tuple(filter(None, map(str.strip, text.split(","))))
                case _:
                    return text
        except ValueError:
            if self.type is ConfigType.BOOLEAN:
                bad = f"Invalid value {text} for configuration {self.name}: Expected value to be either true or false"
            raise InvalidConfigurationError(bad) from None

    def format(self, value: Any) -> str:
        """Return the text from which `parse` gives ``value``."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def between(low: float | None = None, high: float | None = None) -> Callable[[Any], str]:
    """Return a check that a number is in a closed range; None means no limit on that side."""

    def check(value: Any) -> str:
        if low is not None and value < low:
            return f"Value must be at least {low}"
        if high is not None and value > high:
            return f"Value must be no more than {high}"
        return ""

    return check


def one_of(*allowed: str) -> Callable[[Any], str]:
    """Return a check that a string, or every item of a list, is one of ``allowed``."""

    def check(value: Any) -> str:
        wrong = [item for item in (value if isinstance(value, tuple) else (value,)) if item not in allowed]
        return f"String must be one of: {', '.join(allowed)}" if wrong else ""

    return check
