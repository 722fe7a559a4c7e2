"""The answer to one request, which often a later operation sets than the one that parked the request."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from triokafka.errors import KafkaError

T = TypeVar("T")


class Reply(Generic[T]):
    """The answer to one request. It is set once, to a value or an error."""

    __slots__ = ("_arrived", "_error", "_value")

    def __init__(self) -> None:
        self._arrived = trio.Event()
        self._value: T | None = None
        self._error: KafkaError | None = None

    @property
    def is_set(self) -> bool:
        """Whether the reply has a value or an error."""
        return self._arrived.is_set()

    @property
    def value(self) -> T:
        """The value. Raises the error if the reply was set to one, and RuntimeError while it is not set."""
        if self._error is not None:
            raise self._error.fresh_copy()
        if not self._arrived.is_set():
            raise RuntimeError("this request has no answer yet")
        return self._value  # type: ignore[return-value]  # set together with the event

    def set(self, value: T) -> None:
        """Set the value. Only the first call of `set` or `fail` counts."""
        if not self._arrived.is_set():
            self._value = value
            self._arrived.set()

    def fail(self, error: KafkaError) -> None:
        """Set an error. Only the first call of `set` or `fail` counts."""
        if not self._arrived.is_set():
            self._error = error.fresh_copy()
            self._arrived.set()

    async def wait(self) -> T:
        """Wait for the answer, without a timeout: the operation that parks a request also sets a timer that answers it.

        Cancelling the wait changes nothing in the group; the answer is discarded.
        """
        if not self._arrived.is_set():
            await self._arrived.wait()
        return self.value
