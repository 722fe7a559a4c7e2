"""Kinds of values that options take, and what a file of options says; what cannot be is wrong use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from triokafka.cli.numbers import whole_number as whole_number

T = TypeVar("T")


class Whole(click.IntRange):
    """A whole number within a range. Messages name it as a person does; click's own word is "integer range"."""

    name = "integer"


class Number(click.FloatRange):
    """A number within a range; neither infinite nor "nan", which compares with nothing."""

    name = "number"

    def _describe_range(self) -> str:
        # For help: of a number without limits click would say "x<=None".
        return "" if self.min is self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that a text stands for."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


INT32: Final = 2**31 - 1
"""The greatest number that goes over the wire in 32 bits: of partitions, brokers, bytes."""
INT64: Final = 2**63 - 1
"""The greatest offset."""
COUNT: Final = Whole(min=1, max=INT32)
PARTITION: Final = Whole(min=0, max=INT32)
SIZE: Final = Whole(min=1, max=104_857_600)
"""Of a record, in bytes: at most as many as a request may have by default (socket.request.max.bytes)."""


def text_of_file(path: str, option: str = "") -> str:
    """What is in a UTF-8 file. One that cannot be read is wrong use of ``option``."""
    from triokafka.world.system import RealWorld

    try:
        return RealWorld().storage.read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text: {error.reason} at byte {error.start}."
    except (OSError, ValueError) as error:  # the latter: a NUL in the name
        problem = f"{getattr(error, 'strerror', None) or error}."
    raise click.UsageError(f"{option}: {path} cannot be read: {problem}".removeprefix(": "))


def configured(kind: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Make a client, or whatever else has options; those that cannot be are wrong use."""
    from triokafka.errors import ConfigurationError

    try:
        return kind(*arguments, **options)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
