"""The log levels of this process, as configuration of the resource BROKER_LOGGER (KIP-412).

Loggers are Python's: ``root``, and those of this package. Levels have Kafka's names. A changed level is not stored: it
lasts until the process ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from triokafka import errors

ROOT: Final = "root"
_PACKAGE: Final = "triokafka"
_TRACE: Final = 5
_LEVELS: Final[Mapping[str, int]] = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """The effective level of every logger, by name."""
    return {name: _name_of(_logger(name).getEffectiveLevel()) for name in _names()}


def check(name: str, level: str | None) -> None:
    """Check a change of one logger; ``level`` None removes its own level.

    Raises:
        InvalidConfigurationError: the logger or the level does not exist.
        InvalidRequestError: the logger must have a level.
    """
    if name not in _names():
        raise errors.InvalidConfigurationError(f"Logger {name} does not exist!")
    if level is None:
        if name == ROOT:
            raise errors.InvalidRequestError(f"Removing the log level of the {ROOT} logger is not allowed")
    elif level not in _LEVELS:
        raise errors.InvalidConfigurationError(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}"
        )


def set_level(name: str, level: str | None) -> None:
    """Set a logger's level; None restores that of its parent. The caller has checked the change."""
    _logger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _names() -> list[str]:
    known = (name for name in logging.root.manager.loggerDict if name.partition(".")[0] == _PACKAGE)
    return [ROOT, *sorted({_PACKAGE, *known})]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _name_of(level: int) -> str:
    """Return the nearest of Kafka's levels that logs as much."""
    return next((name for name, number in _LEVELS.items() if level <= number), "FATAL")
