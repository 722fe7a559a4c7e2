"""Parsing of option values: numbers, flags, choices, durations. Option names are spelt as in the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from triokafka.errors import ConfigurationError
from triokafka.spark.columns import COLUMNS, HEADERS

T = TypeVar("T")

_UNITS: Final = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def whole(given: Mapping[str, str], name: str, *, at_least: int, largest: int = 2**63 - 1) -> int | None:
    """Return a whole number of at least ``at_least``; None when the option is not given."""
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip(), re.ASCII) or int(text) > largest:
        raise ConfigurationError(f"Option '{name}' must be a whole number up to {largest}, not '{text}'")
    if int(text) < at_least:
        bound = "positive" if at_least == 1 else f"at least {at_least}"
        raise ConfigurationError(f"{name} must be {bound}, not {text}")
    return int(text)


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """Return the value of a ``true`` or ``false`` option."""
    return choice(given, name, str(default).lower(), {"true": True, "false": False})


def choice(given: Mapping[str, str], name: str, default: str, values: Mapping[str, T]) -> T:
    """Return the value that one of a few words stands for."""
    text = given.get(name.lower(), default)
    if text.strip().lower() not in values:
        words = [f"'{word}'" for word in values]
        raise ConfigurationError(f"Option '{name}' must be {', '.join(words[:-1])} or {words[-1]}, not '{text}'")
    return values[text.strip().lower()]


def duration_ms(given: Mapping[str, str], name: str) -> int | None:
    """Return a duration such as ``15m``, ``10s`` or ``500`` (ms) in milliseconds; None when the option is not given."""
    text = given.get(name.lower())
    if text is None:
        return None
    parts = re.fullmatch(r"([0-9]{1,19})\s*([a-z]*)", text.strip().lower(), re.ASCII)
    unit = parts[2] or "ms" if parts else ""
    if parts is None or unit not in _UNITS:
        raise ConfigurationError(f"Option '{name}' must be a time such as 15m, 30s or 500ms, not '{text}'")
    return int(int(parts[1]) * _UNITS[unit])


def column_names(given: Mapping[str, str], headers: bool) -> tuple[str, ...]:
    """Return the requested columns, in the order of the schema."""
    there = (*COLUMNS, HEADERS) if headers else COLUMNS
    text = given.get("columns")
    if text is None:
        return there
    spelled = {name.lower(): name for name in there}
    asked = [name.strip() for name in text.split(",") if name.strip()]
    for name in asked:
        if name.lower() == HEADERS and not headers:
            raise ConfigurationError("Option 'columns' names 'headers', which exists only with includeHeaders")
        if name.lower() not in spelled:
            raise ConfigurationError(f"Option 'columns' names '{name}': there are {', '.join(there)}")
    if not asked:
        raise ConfigurationError(f"Option 'columns' names no column: there are {', '.join(there)}")
    wanted = {spelled[name.lower()] for name in asked}
    return tuple(name for name in there if name in wanted)
