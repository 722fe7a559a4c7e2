"""Checks of arguments by their annotations, for rare calls in which a wrong type would be noticed late."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import inspect
import math
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_COLLECTIONS: Final = (
    collections.abc.Iterable,
    collections.abc.Collection,
    collections.abc.Sequence,
    collections.abc.Set,
    list,
    set,
    frozenset,
)
_MOST_SHOWN: Final = 60


def check_public_methods(owner: type) -> None:
    """Have every public method that ``owner`` defines check its arguments; see `checked`."""
    for name, member in list(vars(owner).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(owner, name, checked(member))


def checked(function: F) -> F:
    """Wrap a method so that arguments of a wrong type raise `TypeError` before the method runs.

    A negative ``timeout_ms`` raises `ValueError`. Iterators become lists, so that their items can be checked.
    Annotations with types that exist only for type checkers are not checked.
    """
    signature = inspect.signature(function)

    def check(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> inspect.BoundArguments:
        try:
            bound = signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{function.__name__}(): {error}") from None
        hints = _hints(function)
        for name, value in bound.arguments.items():
            if name in hints:
                bound.arguments[name] = value = _materialized(value, hints[name])
                problem = _problem(value, hints[name], name)
                if problem is not None:
                    raise TypeError(f"{function.__name__}(): {problem}")
            if name == "timeout_ms" and value is not None and not value >= 0:
                raise ValueError(f"{function.__name__}(): timeout_ms={value} must be at least 0")
        return bound

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*arguments: Any, **keywords: Any) -> Any:
            bound = check(arguments, keywords)
            return await function(*bound.args, **bound.kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            bound = check(arguments, keywords)
            return function(*bound.args, **bound.kwargs)

    return typing.cast(F, wrapper)


@functools.cache
def _hints(owner: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(owner)
    except NameError:
        return {}


def _materialized(value: Any, hint: Any) -> Any:
    return list(value) if isinstance(value, Iterator) and hint is not Any else value


def _problem(value: Any, hint: Any, path: str) -> str | None:
    """Return the problem with ``value``, given for ``path``; None when it fits ``hint``."""
    if isinstance(hint, TypeVar):
        parts = hint.__constraints__ or (hint.__bound__ or Any,)
        return _problem_of_union(value, parts, hint, path)
    if hint is Any or hint is object:
        return None
    if hint is None:
        hint = type(None)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _problem_of_union(value, parts, hint, path)
    if origin is typing.Literal:
        return None if value in parts else _mismatch(value, hint, path)
    if origin is tuple:
        return _problem_of_tuple(value, parts, hint, path)
    if origin is not None and issubclass(origin, collections.abc.Mapping):
        return _problem_of_mapping(value, parts, hint, path)
    if origin in _COLLECTIONS:
        return _problem_of_collection(value, parts, hint, path)
    if origin is not None:
        return None if isinstance(value, origin) else _mismatch(value, hint, path)
    return _problem_of_plain(value, hint, path)


def _problem_of_union(value: Any, parts: tuple[Any, ...], hint: Any, path: str) -> str | None:
    problems = [_problem(value, part, path) for part in parts]
    if None in problems:
        return None
    # A problem of an inner item is more precise than the message that no alternative fits.
    inner = [problem for problem in problems if problem is not None and not problem.startswith(f"{path} must")]
    return inner[0] if inner else _mismatch(value, hint, path)


def _problem_of_tuple(value: Any, parts: tuple[Any, ...], hint: Any, path: str) -> str | None:
    if not isinstance(value, (tuple, list)):
        return _mismatch(value, hint, path)
    if parts[-1:] == (...,):
        return _first(_problem(item, parts[0], f"{path}[{number}]") for number, item in enumerate(value))
    if len(value) != len(parts):
        return _mismatch(value, hint, path)
    return _first(_problem(item, part, f"{path}[{n}]") for n, (item, part) in enumerate(zip(value, parts, strict=True)))


def _problem_of_mapping(value: Any, parts: tuple[Any, ...], hint: Any, path: str) -> str | None:
    if not isinstance(value, Mapping):
        return _mismatch(value, hint, path)
    of_key, of_value = parts
    return _first(
        _problem(key, of_key, f"a key of {path}") or _problem(item, of_value, f"{path}[{_shown(key)}]")
        for key, item in value.items()
    )


def _problem_of_collection(value: Any, parts: tuple[Any, ...], hint: Any, path: str) -> str | None:
    if isinstance(value, (str, bytes, bytearray)) or not isinstance(value, Iterable):
        return _mismatch(value, hint, path)
    if hasattr(value, "_fields"):
        return _mismatch(value, hint, path)  # a named tuple is a single value, such as a TopicPartition
    right = _right_types(parts[0])
    return _first(
        _problem(item, parts[0], f"{path}[{number}]") for number, item in enumerate(value) if type(item) not in right
    )


@functools.cache
def _right_types(hint: Any) -> frozenset[type]:
    """Return types whose instances always fit ``hint``, for long lists."""
    if isinstance(hint, TypeVar):
        parts = hint.__constraints__ or (hint.__bound__,)
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = typing.get_args(hint)
    else:
        parts = (hint,)
    return frozenset(part for part in parts if part in (str, bytes, int, uuid.UUID))


def _problem_of_plain(value: Any, hint: Any, path: str) -> str | None:
    if hint is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
    elif hint is int:
        fits = hasattr(value, "__index__") and not isinstance(value, bool)
    else:
        fits = not isinstance(hint, type) or isinstance(value, hint)
    if not fits:
        return _mismatch(value, hint, path)
    if isinstance(hint, type) and not issubclass(hint, enum.Enum):
        names: Iterable[str] = ()
        if dataclasses.is_dataclass(hint):
            names = (field.name for field in dataclasses.fields(hint) if field.init)
        elif issubclass(hint, tuple):
            names = getattr(hint, "_fields", ())
        hints: Mapping[str, Any] = _hints(hint)  # type: ignore[arg-type] # classes are hashable
        return _first(_problem(getattr(value, name), hints[name], f"{path}.{name}") for name in names if name in hints)
    return None


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _mismatch(value: Any, hint: Any, path: str) -> str:
    return f"{path} must be {_in_words(hint)}, not {type(value).__name__} {_shown(value)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _in_words(hint: Any) -> str:
    if isinstance(hint, TypeVar):
        return " or ".join(map(_in_words, hint.__constraints__)) or "something else"
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (None, type(None)):
        return "None"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, parts))
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        return f"a tuple of ({', '.join(map(_in_words, parts))})"
    if origin is not None and issubclass(origin, collections.abc.Mapping):
        return f"a mapping of {_in_words(parts[0])} to {_in_words(parts[1])}"
    if origin in _COLLECTIONS:
        return f"an iterable of {_in_words(parts[0])}"
    if hint is float:
        return "a number"
    return getattr(hint, "__name__", str(hint))
