"""One task's wait for the response to one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import outcome
import trio


class ResponseWaiter:
    """One task's wait for one response. After cancelling, a late response is dropped."""

    __slots__ = ("_outcome", "_task")

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self._outcome: outcome.Outcome[Any] | None = None

    def done(self, response: object, error: Exception | None) -> None:
        """The `Completion` to pass with the request."""
        result: outcome.Outcome[Any] = outcome.Value(response) if error is None else outcome.Error(error)
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task, result)
        else:
            self._outcome = result

    async def wait(self) -> Any:
        """Return the response, or raise the error."""
        if self._outcome is not None:
            await trio.lowlevel.checkpoint()
            return self._outcome.unwrap()
        self._task = trio.lowlevel.current_task()

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)
