"""The definition of a broker option: name, type, default, limits, parsing and formatting.

The package ``log`` declares the topic configurations, with the same types (`ConfigType`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from triokafka.broker_stub.log.config_definition import ConfigType, parse_boolean, parse_float, parse_int
from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.secret import HIDDEN, Secret

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_RANGES: Final[dict[int, tuple[int, int]]] = {3: (-(2**31), INT_MAX), 4: (-(2**15), 2**15 - 1), 5: (-(2**63), LONG_MAX)}


class UpdateMode(enum.Enum):
    """Whether an option can change while the broker runs, and with which scope."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigDefinition(NamedTuple):
    """The definition of one option.

    ``default`` is a Python value (None: unset). ``minimum`` and ``maximum`` bound numbers; ``choices`` restricts texts
    and list items; ``check`` raises `ValueError` for any other invalid value. DescribeConfigs shows an ``internal``
    option only when it is set.
    """

    name: str
    type: ConfigType
    default: Any
    documentation: str = ""
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    check: Callable[[Any], None] | None = None
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """Whether the option's value is a secret."""
        return self.type is ConfigType.PASSWORD

    @property
    def default_text(self) -> str | None:
        """The default as text in configuration files."""
        return self.format(self.default)

    def parse(self, text: str) -> Any:
        """Parse and validate a text.

        Raises:
            ConfigurationError: the text has the wrong type or the value is out of bounds. The message contains the
                option, the value and the reason.
        """
        try:
            value = self._convert(text)
        except ValueError as error:
            raise ConfigurationError(f"{self.name}={self._shown(text)}: {error}") from None
        self.validate(value)
        return value

    def validate(self, value: Any) -> None:
        """Check a value of the right Python type against the bounds. Raises `ConfigurationError`."""
        if value is None and self.default is None:
            return
        reason = self._objection(value)
        if reason:
            raise ConfigurationError(f"{self.name}={self._shown(self.format(value))}: {reason}")

    def format(self, value: Any) -> str | None:
        """Format a value like Kafka's tools; None stays None."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Secret):
            return value.reveal()
        if isinstance(value, list | tuple):
            return ",".join(str(item) for item in value)
        if isinstance(value, float):
            return repr(value).replace("e+", "E").replace("e", "E")  # Java's format
        return str(value)

    def _shown(self, text: str | None) -> str:
        return HIDDEN if self.sensitive else str(text)

    def _convert(self, text: str) -> Any:
        stripped = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                try:
                    return parse_boolean(stripped)
                except ValueError:
                    raise ValueError("must be true or false") from None
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                try:
                    number = parse_int(stripped)
                except ValueError:
                    raise ValueError("must be a whole number") from None
                low, high = _RANGES[self.type]
                if not low <= number <= high:
                    raise ValueError(f"must be between {low} and {high}")
                return number
            case ConfigType.DOUBLE:
                try:
                    return parse_float(stripped)
                except ValueError:
                    raise ValueError("must be a number") from None
            case ConfigType.LIST:
                return tuple(item.strip() for item in stripped.split(",") if item.strip())
            case ConfigType.PASSWORD:
                return Secret(text)
            case _:
                return stripped

    def _objection(self, value: Any) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if value < self.minimum:
                return f"must be at least {_number(self.minimum)}"
            if value > self.maximum:
                return f"must be at most {_number(self.maximum)}"
        if self.choices:
            items = value if isinstance(value, list | tuple) else (value,)
            for item in items:
                if item not in self.choices:
                    return f"must be {'some' if self.type is ConfigType.LIST else 'one'} of {', '.join(self.choices)}"
        if self.check is not None:
            try:
                self.check(value)
            except ValueError as error:
                return str(error)
        return None


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def unknown_option(name: str, known: Iterable[str]) -> ConfigurationError:
    """Return the error for an unknown option; its message suggests the nearest known one."""
    from difflib import get_close_matches  # slow import, needed only for errors

    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ConfigurationError(f"unknown configuration option {name!r}{hint}")
