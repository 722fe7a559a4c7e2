"""The time for which a request's handler works, as opposed to the time for which it waits.

Apache Kafka counts the time of handler threads towards the quota ``request_percentage`` (KIP-124). A request that waits
for the controller, for another broker or for the members of a group has no thread meanwhile. Here every request is a
coroutine, so its waits are the times between its steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class CountsWaits(Protocol):
    """Receives the time of the waits: a `RequestContext`."""

    parked_seconds: float


class CountedWaits(Generic[T]):
    """An awaitable that does the work of another one, and adds the times between its steps to ``parked_seconds``.

    Args:
        work: the coroutine to run.
        counter: receives the seconds that the coroutine waits.
        now: the monotonic clock, in seconds.
    """

    __slots__ = ("_counter", "_now", "_work")

    def __init__(self, work: Awaitable[T], counter: CountsWaits, now: Callable[[], float]) -> None:
        self._work = work
        self._counter = counter
        self._now = now

    def __await__(self) -> Generator[Any, Any, T]:
        """Run the work step by step; whatever it yields goes to the event loop."""
        steps = self._work.__await__()
        value: Any = None
        failure: BaseException | None = None
        while True:
            try:
                trap = steps.send(value) if failure is None else steps.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                value = failure = None  # an error whose traceback has this frame would be in a cycle with it
            paused_at = self._now()
            try:
                value = yield trap
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                failure = error
            self._counter.parked_seconds += self._now() - paused_at
