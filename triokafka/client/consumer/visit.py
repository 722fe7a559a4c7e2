"""One task at a time: who is inside a consumer now, and what for."""

from __future__ import annotations

import trio

from triokafka.errors import IllegalStateError
from triokafka.trio_context import require_trio


class Visitors:
    """The task that is inside, how often it came in, and what it does."""

    __slots__ = ("depth", "doing", "task")

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.depth = 0
        self.doing = ""


class Visit:
    """One call of the user: a context manager. A class, because every poll is one, and generators cost more."""

    __slots__ = ("_before", "_doing", "_visitors")

    def __init__(self, visitors: Visitors, doing: str) -> None:
        self._visitors = visitors
        self._doing = doing
        self._before = ""

    def __enter__(self) -> None:
        visitors = self._visitors
        try:
            task = trio.lowlevel.current_task()
        except (RuntimeError, AttributeError):
            require_trio("Consumer")
            raise
        if visitors.task is not None and visitors.task is not task:
            raise IllegalStateError(
                f"{self._doing}: task {visitors.task.name!r} is in the middle of {visitors.doing} on this consumer; a"
                " consumer serves one task at a time, so give each task its own, or pass records on through a channel"
            )
        self._before, visitors.doing = visitors.doing, self._doing
        visitors.task = task
        visitors.depth += 1

    def __exit__(self, *_: object) -> None:
        visitors = self._visitors
        visitors.depth -= 1
        visitors.doing = self._before
        if not visitors.depth:
            visitors.task = None
