"""Parameter types and option files of commands; an invalid value is a usage error."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from triokafka.cli.numbers import whole_number as whole_number

T = TypeVar("T")


class Integer(click.IntRange):
    """A whole number within a range. Messages call it a number, while click's name is "integer range"."""

    name = "integer"


class FiniteNumber(click.FloatRange):
    """A finite number within a range."""

    name = "number"

    def _describe_range(self) -> str:
        # For help: click prints "x<=None" for a number without limits.
        return "" if self.min is self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


INT32: Final = 2**31 - 1
"""The greatest 32-bit number of the protocol: of partitions, brokers, bytes."""
INT64: Final = 2**63 - 1
"""The greatest offset."""
COUNT: Final = Integer(min=1, max=INT32)
PARTITION: Final = Integer(min=0, max=INT32)
SIZE: Final = Integer(min=1, max=104_857_600)
"""Size of a record in bytes, at most the default of socket.request.max.bytes."""


def principal_of(text: str) -> str:
    """Return a principal without surrounding spaces. Text of another form than ``Type:name`` is a usage error."""
    kind, _, name = text.strip().partition(":")
    if not (kind and name):
        raise click.UsageError(f"{text!r} is not a principal: write Type:name, such as User:{text.strip() or 'alice'}.")
    return text.strip()


def bytes_of_file(path: str, option: str = "") -> bytes:
    """Read a file. An unreadable file is a usage error of ``option``."""
    from triokafka.world.system import RealWorld

    try:
        return RealWorld().storage.read_file(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        problem = f"{getattr(error, 'strerror', None) or error}."
    raise click.UsageError(f"{option}: {path} cannot be read: {problem}".removeprefix(": "))


def text_of_file(path: str, option: str = "") -> str:
    """Read a UTF-8 file. An unreadable file is a usage error of ``option``."""
    try:
        return bytes_of_file(path, option).decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text: {error.reason} at byte {error.start}."
    raise click.UsageError(f"{option}: {path} cannot be read: {problem}".removeprefix(": "))


def configured(kind: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Create a client or another object with options; invalid options are a usage error."""
    from triokafka.errors import ConfigurationError

    try:
        return kind(*arguments, **options)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
