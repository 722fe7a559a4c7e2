"""Methods of a facade that a component carries out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def delegated(component: str, method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method with the signature and docstring of ``method``, for the object in attribute ``component``."""
    component_of = attrgetter(component)

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return method(component_of(self), *arguments, **keywords)

    return call
