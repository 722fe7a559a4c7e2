"""Wakes the sender task: after a change, or at an alarm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from triokafka.world import World

_NEVER: Final = float("inf")


class Wakeup:
    """The sleep of one task. Times are seconds on the world's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._task: trio.lowlevel.Task | None = None
        self._woken = False
        self.is_held = False
        """Whether `hold` is in effect."""
        self._alarm = trio.CancelScope()
        self._alarm_at = _NEVER

    @property
    def is_asleep(self) -> bool:
        """Whether the task sleeps."""
        return self._task is not None

    def wake(self) -> None:
        """End the sleep, or prevent the next one. Very cheap if the task is already due."""
        self._woken = True
        if self._task is not None and not self.is_held:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    def hold(self) -> bool:
        """Let the task sleep until `let_go`, also after `wake`. Return False, without any effect, if it is awake."""
        self.is_held = self._task is not None
        return self.is_held

    def let_go(self) -> bool:
        """End what `hold` began. Return whether `wake` was called: the caller does the task's work, which sleeps on."""
        woken, self._woken, self.is_held = self._woken, False, False
        return woken

    def wake_by(self, at: float, now: float) -> None:
        """End the sleep at that time, if nothing ends it before."""
        if at <= now:
            self.wake()
        else:
            self.set_alarm(at)

    def set_alarm(self, at: float) -> None:
        """End the sleep at that time or before."""
        # An earlier alarm stays: a needless wake-up costs less than a cancel scope for every sleep.
        if at < self._alarm_at:
            self._alarm_at = at
            self._alarm.deadline = self._world.deadline(at)

    async def ring(self) -> None:
        """Wake the task at every alarm, until cancelled."""
        while True:
            with self._alarm:
                await trio.sleep_forever()
            self._alarm_at = _NEVER
            self._alarm = trio.CancelScope()
            self.wake()

    def stay_awake(self) -> None:
        """Clear earlier calls of `wake`: the task is about to check everything."""
        self._woken = False

    async def sleep(self, until: float) -> None:
        """Sleep until `wake` or the alarm at ``until``. If `wake` was called since `stay_awake`, only checkpoint."""
        if self._woken:
            await trio.lowlevel.checkpoint()
            return
        self.set_alarm(until)
        self._task = trio.lowlevel.current_task()

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
