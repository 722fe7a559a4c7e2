"""Futures as kafka-python has them: a value or an error that comes later, with callbacks.

No lock of its own per future: there may be millions of them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, ClassVar, Final, Self

from triokafka.errors import RetriableError

log = logging.getLogger(__name__)

Callback = Callable[[Any], object]
Outcome = tuple[Any, BaseException | None]
"""A value and None, or None and an error."""
Listeners = Callback | list[tuple[Callback | None, Callback | None]] | None
"""Pairs of callback and errback; a single callback as it is: the garbage collector looks at every list and tuple."""


class _Lock:
    """One lock for the callbacks of all futures, made anew in a forked child. It is held for moments only."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.Lock()


_shared: Final = _Lock()


def tell(listeners: Listeners, outcome: Outcome) -> None:
    """Call them with what a future came to. What they raise is logged, also when it is to end the thread."""
    for callback, errback in _pairs(listeners):
        try:
            _call(callback, errback, outcome)
        except BaseException:
            log_failed(outcome[1])


def _pairs(listeners: Listeners) -> list[tuple[Callback | None, Callback | None]]:
    return listeners if isinstance(listeners, list) else [] if listeners is None else [(listeners, None)]


def _call(callback: Callback | None, errback: Callback | None, outcome: Outcome) -> None:
    value, error = outcome
    if error is None:
        if callback is not None:
            callback(value)
    elif errback is not None:
        errback(error)


def log_failed(error: BaseException | None) -> None:
    """A callback, or with an error an errback, has just raised something."""
    log.exception("Error processing %s", "callback" if error is None else "errback")


def with_another(listeners: Listeners, callback: Callback | None, errback: Callback | None) -> Listeners:
    """The same and these."""
    if listeners is None:
        return callback if errback is None else [(callback, errback)]
    if isinstance(listeners, list):
        listeners.append((callback, errback))
        return listeners
    return [(listeners, None), (callback, errback)]


class Future:
    """A value that is not known yet. Thread-safe.

    Callbacks get the value, errbacks the exception. They run in the thread that settles the future, or at once when it
    is settled already. What one raises is logged, and raised as well when ``error_on_callbacks`` is set.
    """

    __slots__ = ("_listeners", "_outcome")

    error_on_callbacks: ClassVar[bool] = False

    _outcome: Outcome | None
    _listeners: Listeners

    def __init__(self) -> None:
        self._outcome = None
        self._listeners = None

    def _look(self) -> Outcome | None:
        """What it came to, None as long as that is not known."""
        return self._outcome

    @property
    def is_done(self) -> bool:
        """Whether it is settled."""
        return self._look() is not None

    @property
    def value(self) -> Any:
        """The value; None before it is known, and after a failure."""
        outcome = self._look()
        return None if outcome is None else outcome[0]

    @property
    def exception(self) -> BaseException | None:
        """The error; None before it is known, and after a success."""
        outcome = self._look()
        return None if outcome is None else outcome[1]

    def succeeded(self) -> bool:
        """Whether it is settled with a value."""
        outcome = self._look()
        return outcome is not None and outcome[1] is None

    def failed(self) -> bool:
        """Whether it is settled with an error."""
        outcome = self._look()
        return outcome is not None and outcome[1] is not None

    def retriable(self) -> bool:
        """Whether it failed with an error that another try may not meet."""
        return isinstance(self.exception, RetriableError)

    def success(self, value: Any) -> Self:
        """Settle it with a value, and run the callbacks."""
        self._settle((value, None))
        return self

    def failure(self, e: BaseException | type[BaseException]) -> Self:
        """Settle it with an error, or with one of that class, and run the errbacks.

        Raises:
            TypeError: that is no exception.
        """
        error = e() if isinstance(e, type) else e
        if not isinstance(error, BaseException):
            raise TypeError("future failed without an exception")
        self._settle((None, error))
        return self

    def _settle(self, outcome: Outcome) -> None:
        with _shared.lock:
            self._outcome = outcome
            listeners, self._listeners = self._listeners, None
        for callback, errback in _pairs(listeners):
            self._tell(callback, errback, outcome)

    def _tell(self, callback: Callback | None, errback: Callback | None, outcome: Outcome) -> None:
        try:
            _call(callback, errback, outcome)
        except Exception:
            log_failed(outcome[1])
            if self.error_on_callbacks:
                raise

    def _listen(self, callback: Callback | None, errback: Callback | None) -> Self:
        with _shared.lock:
            outcome = self._outcome
            if outcome is None:
                self._listeners = with_another(self._listeners, callback, errback)
        if outcome is not None:
            self._tell(callback, errback, outcome)
        return self

    def add_callback(self, f: Callback, *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` with the arguments, then the value, if there will be one."""
        return self._listen(partial(f, *args, **kwargs) if args or kwargs else f, None)

    def add_errback(self, f: Callback, *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` with the arguments, then the exception, if it fails."""
        return self._listen(None, partial(f, *args, **kwargs) if args or kwargs else f)

    def add_both(self, f: Callback, *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` with the arguments, then with whatever it comes to."""
        both = partial(f, *args, **kwargs) if args or kwargs else f
        return self._listen(both, both)

    def chain(self, future: Future) -> Self:
        """Settle another future as this one."""
        return self._listen(future.success, future.failure)

    def __await__(self) -> Generator[Self, Any, Any]:
        if not self.is_done:
            yield self
        value, error = self._look() or (None, None)
        if error is not None:
            raise error
        return value
