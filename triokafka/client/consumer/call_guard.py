"""A consumer serves one task at a time: the guard that refuses a second one."""

from __future__ import annotations

import trio

from triokafka.errors import IllegalStateError
from triokafka.trio_context import require_trio


class CallGuard:
    """The task that uses the consumer now, the depth of its nested calls, and the name of the innermost call."""

    __slots__ = ("depth", "doing", "task")

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.depth = 0
        self.doing = ""


class GuardedCall:
    """One guarded call, as a context manager. Every poll is one, so this is a class: a generator costs more."""

    __slots__ = ("_before", "_doing", "_guard")

    def __init__(self, guard: CallGuard, doing: str) -> None:
        self._guard = guard
        self._doing = doing
        self._before = ""

    def __enter__(self) -> None:
        guard = self._guard
        try:
            task = trio.lowlevel.current_task()
        except (RuntimeError, AttributeError):
            require_trio("Consumer")
            raise
        if guard.task is not None and guard.task is not task:
            raise IllegalStateError(
                f"{self._doing}: task {guard.task.name!r} is in the middle of {guard.doing} on this consumer; a"
                " consumer serves one task at a time, so give each task its own, or pass records on through a channel"
            )
        self._before, guard.doing = guard.doing, self._doing
        guard.task = task
        guard.depth += 1

    def __exit__(self, *_: object) -> None:
        guard = self._guard
        guard.depth -= 1
        guard.doing = self._before
        if not guard.depth:
            guard.task = None
