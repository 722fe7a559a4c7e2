"""The time for which a request's handler works, as opposed to the time for which it waits.

Apache Kafka counts the time of handler threads towards the quota ``request_percentage`` (KIP-124). A request that waits
for the controller, for another broker or for the members of a group has no thread meanwhile. Here every request is a
coroutine, so its waits are the times between its steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class CountsWaits(Protocol):
    """Receives the time of the waits: a `RequestContext`."""

    parked_seconds: float


@coroutine
def count_waits(work: Awaitable[T], counter: CountsWaits, now: Callable[[], float]) -> Generator[Any, Any, T]:
    """Run a coroutine, and add the times between its steps to ``parked_seconds``. Whatever it yields goes to the event
    loop.

    Args:
        work: the coroutine to run.
        counter: receives the seconds that the coroutine waits.
        now: the monotonic clock, in seconds.
    """
    steps = work.__await__()
    step: Callable[[Any], Any] = steps.send
    value: Any = None
    while True:
        try:
            trap = step(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            value = None  # an error whose traceback has this frame would be in a cycle with it
        paused_at = now()
        try:
            value = yield trap
            step = steps.send
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            step, value = steps.throw, error
        counter.parked_seconds += now() - paused_at
