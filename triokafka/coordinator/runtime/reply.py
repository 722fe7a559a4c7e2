"""The answer to one request, which often a later operation sets than the one that parked the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from triokafka.errors import KafkaError

T = TypeVar("T")


class Reply(Generic[T]):
    """The answer to one request. It is set once, to a value or an error."""

    __slots__ = ("_error", "_notify", "_value", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        """Whether the reply has a value or an error."""
        self._value: T | None = None
        self._error: KafkaError | None = None
        self._notify: Callable[[], None] | None = None

    @property
    def value(self) -> T:
        """The value. Raises the error if the reply was set to one, and RuntimeError while it is not set."""
        if self._error is not None:
            raise self._error.fresh_copy()
        if not self.is_set:
            raise RuntimeError("this request has no answer yet")
        return self._value  # type: ignore[return-value]  # set before `is_set`

    def set(self, value: T) -> None:
        """Set the value. Only the first call of `set` or `fail` counts."""
        if not self.is_set:
            self._value = value
            self._arrived()

    def fail(self, error: KafkaError) -> None:
        """Set an error. Only the first call of `set` or `fail` counts."""
        if not self.is_set:
            self._error = error.fresh_copy()
            self._arrived()

    def notify(self, waiter: Callable[[], None]) -> None:
        """Call ``waiter`` once the reply is set; for the one task that waits for it."""
        self._notify = waiter

    def _arrived(self) -> None:
        self.is_set = True
        if self._notify is not None:
            self._notify()
