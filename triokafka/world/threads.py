"""Worker threads of the operating system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import trio

T = TypeVar("T")


_MOST_THREADS: Final = 40
_own_threads: Final[trio.lowlevel.RunVar[trio.CapacityLimiter]] = trio.lowlevel.RunVar("threads of triokafka")
"""Separate from Trio's default limit: the application's threads may exhaust that one for long, and so delay syncs and
partition assignments."""


def own_thread_limiter() -> trio.CapacityLimiter:
    """Return this event loop's limit of worker threads for this package."""
    try:
        return _own_threads.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_MOST_THREADS)
        _own_threads.set(limiter)
        return limiter


async def in_thread(
    limiter: trio.CapacityLimiter | None,
    function: Callable[..., T],
    *args: Any,
    abandon_on_cancel: bool = False,
) -> T:
    """Run a function in a worker thread and return its result, or raise its exception.

    Unlike `trio.to_thread.run_sync`, it leaves no reference cycle behind an exception. There, frames of Trio keep the
    outcome, and the exception's traceback keeps these frames with all arguments until the cycle collector runs.
    """
    failures: list[BaseException] = []
    result = await trio.to_thread.run_sync(
        _catching, failures, function, args, limiter=limiter, abandon_on_cancel=abandon_on_cancel
    )
    if not failures:
        return cast("T", result)
    failure = failures.pop()
    try:
        raise failure
    finally:
        del failure


def _catching(failures: list[BaseException], function: Callable[..., T], args: tuple[Any, ...]) -> T | None:
    """Call a function and append its exception to ``failures``, so that Trio does not hold the exception."""
    try:
        return function(*args)
    except BaseException as error:
        failures.append(error)
        return None
