"""Futures as in kafka-python: a value or an error that arrives later, with callbacks.

All futures share one lock: a program may hold millions of them.
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
"""Pairs of callback and errback. A single callback is stored without a list or tuple, which the garbage collector
would traverse."""


class _Lock:
    """One lock for the callbacks of all futures; a forked child gets a new one. It is held only for moments."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.Lock()


_shared: Final = _Lock()


def tell(listeners: Listeners, outcome: Outcome) -> None:
    """Call them with a future's outcome. Log exceptions that they raise, including `SystemExit`."""
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
    """Log the exception that a callback, or with ``error`` an errback, has just raised."""
    log.exception("Error processing %s", "callback" if error is None else "errback")


def with_another(listeners: Listeners, callback: Callback | None, errback: Callback | None) -> Listeners:
    """Return listeners with a further callback and errback."""
    if listeners is None:
        return callback if errback is None else [(callback, errback)]
    if isinstance(listeners, list):
        listeners.append((callback, errback))
        return listeners
    return [(listeners, None), (callback, errback)]


class Future:
    """A value that arrives later. Thread-safe.

    Callbacks get the value, errbacks the exception. They run in the thread that settles the future, or at once if it is
    settled already. Their exceptions are logged, and with ``error_on_callbacks`` raised as well.
    """

    __slots__ = ("_listeners", "_outcome")

    error_on_callbacks: ClassVar[bool] = False

    _outcome: Outcome | None
    _listeners: Listeners

    def __init__(self) -> None:
        self._outcome = None
        self._listeners = None

    def _look(self) -> Outcome | None:
        """The outcome; None until the future is settled."""
        return self._outcome

    @property
    def is_done(self) -> bool:
        """Whether it is settled."""
        return self._look() is not None

    @property
    def value(self) -> Any:
        """The value; None until it arrives, and after a failure."""
        outcome = self._look()
        return None if outcome is None else outcome[0]

    @property
    def exception(self) -> BaseException | None:
        """The error; None until the future fails, and after a success."""
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
        """Whether it failed with a retriable error."""
        return isinstance(self.exception, RetriableError)

    def success(self, value: Any) -> Self:
        """Settle it with a value and run the callbacks."""
        self._settle((value, None))
        return self

    def failure(self, e: BaseException | type[BaseException]) -> Self:
        """Settle it with an error, or an instance of an error class, and run the errbacks.

        Raises:
            TypeError: the argument is not an exception.
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
        """Call ``f`` with the arguments and then the value, if the future succeeds."""
        return self._listen(partial(f, *args, **kwargs) if args or kwargs else f, None)

    def add_errback(self, f: Callback, *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` with the arguments and then the exception, if the future fails."""
        return self._listen(None, partial(f, *args, **kwargs) if args or kwargs else f)

    def add_both(self, f: Callback, *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` with the arguments and then the value or the exception."""
        both = partial(f, *args, **kwargs) if args or kwargs else f
        return self._listen(both, both)

    def chain(self, future: Future) -> Self:
        """Settle another future with this one's outcome."""
        return self._listen(future.success, future.failure)

    def __await__(self) -> Generator[Self, Any, Any]:
        if not self.is_done:
            yield self
        value, error = self._look() or (None, None)
        if error is not None:
            raise error
        return value
