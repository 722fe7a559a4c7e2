"""A Trio run that its owner moves on, one pass at a time, and whose sockets it watches through one file descriptor.

Trio's guest mode has the same purpose, but waits for sockets in a thread of its own: two changes of threads for every
response. This module uses parts of Trio that are not public. `is_possible` tells whether this Trio has them.
"""

from __future__ import annotations

import functools
import logging
import os
import select
import sys
import warnings
from collections import deque
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final

import trio

from triokafka.asyncio.loop_sockets import HostClock

logger = logging.getLogger(__name__)

Calls = deque[tuple[Callable[..., object], tuple[Any, ...]]]

NEVER: Final = float("inf")
_FIRST_PASSES: Final = 20


class SteppedRun:
    """A Trio run in the thread that calls `step`, which may be another one each time.

    Between two steps no Trio run is active in that thread: other runs, and other event loops, may come between. The run
    is over when the last task of `start` has ended.

    Raises:
        AttributeError, ImportError, TypeError: this Trio has other parts.
        OSError: no file descriptor is free.
    """

    def __init__(self) -> None:
        parts: Any = import_module("trio._core._run")
        self.is_over = False
        self._process = os.getpid()
        self._crash_listeners: list[Callable[[], object]] = []
        self._context: Any = parts.GLOBAL_RUN_CONTEXT
        self._library: Any = parts.sniffio_library
        self._tasks = 0
        self._idle = trio.Event()
        self._nursery: trio.Nursery | None = None
        self.fileno = -1
        state: Any = None

        def begun(tick: Any) -> None:
            nonlocal state
            state = tick.__self__

        before = self._active()
        try:
            self._enter(None)
            trio.lowlevel.start_guest_run(
                self._main,
                run_sync_soon_threadsafe=begun,
                done_callback=lambda outcome: None,
                clock=HostClock(),
                host_uses_signal_set_wakeup_fd=True,
            )
            self._runner: Any = state.runner
            self._passes: Any = state.unrolled_run_gen
            self._sockets: Any = state.runner.io_manager
            epoll: select.epoll = self._sockets._epoll
            # The asyncio loop must forget the descriptor before it is closed, and Trio closes its own within the run.
            self.fileno = os.dup(epoll.fileno())
            # Interrupts belong to the asyncio loop.
            self._runner.ki_manager.close()
        finally:
            self._leave(before)
        nothing: Calls = deque()
        for _ in range(_FIRST_PASSES):
            if self._nursery is not None:
                return
            self.step(nothing)
        raise TypeError("Trio does not start its main task")

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await self._idle.wait()
                while self._tasks:
                    self._idle = trio.Event()
                    await self._idle.wait()
            finally:
                self._nursery = None

    # ---------------------------------------------------------------- in a call of `step`

    def start(self, work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...], name: str) -> bool:
        """Run ``work`` as a task; its errors are logged. Return False if the run is about to end."""
        if self._nursery is None:
            return False
        self._tasks += 1
        self._nursery.start_soon(self._guarded, work, arguments, name=name)
        return True

    def cancel(self) -> None:
        """Cancel all tasks."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def _guarded(self, work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...]) -> None:
        # One client's failure must not take the run from the others.
        try:
            await work(*arguments)
        except Exception:
            logger.exception("Trio run beside asyncio: a background task failed")
        finally:
            self._tasks -= 1
            if not self._tasks:
                self._idle.set()

    # ---------------------------------------------------------------- the owner

    def step(self, calls: Calls, *, wait: float | None = None) -> float:
        """Make the calls, and let each task that can go on do so. Return the seconds until the next step is due.

        With ``wait``, see first which sockets are ready, and wait for one at most that many seconds. Without, `fileno`
        stays readable if one is ready.

        Raises:
            KeyboardInterrupt, SystemExit: a task was interrupted; the run is over.
        """
        timeout = NEVER
        runner, library = self._runner, self._library
        # As `_active` and `_enter`, without the calls: they would be a good part of what a single send costs.
        active = vars(self._context)
        before = dict(active), library.name
        try:
            active.clear()
            active["runner"] = runner
            library.name = "trio"
            runner.guest_tick_scheduled = True
            if calls:
                self._make(calls)
                if not self._tasks:
                    self._idle.set()
                if wait is None and not runner.runq:
                    # No task can continue; a pass of Trio would only look for that.
                    deadline = runner.deadlines.next_deadline()
                    timeout = float(runner.clock.deadline_to_sleep_time(deadline))
                    if timeout > 0:
                        runner.guest_tick_scheduled = False
                        return timeout
            timeout = self._passes.send([] if wait is None else self._sockets.get_events(wait))
            runner.guest_tick_scheduled = timeout <= 0
        except StopIteration:
            self.is_over = True
            _raise_interruption(getattr(self._runner.main_task_outcome, "error", None))
        except trio.TrioInternalError as error:
            self.is_over = True
            self._report_crash()
            _raise_interruption(error.__cause__)
            logger.exception("Trio run beside asyncio: Trio itself failed; all clients of this asyncio loop end")
        finally:
            self._leave(before)
        return timeout

    def _make(self, calls: Calls) -> None:
        while calls:
            do, arguments = calls.popleft()
            try:
                do(*arguments)
            except Exception:
                logger.exception("Trio run beside asyncio: a scheduled call failed")

    @property
    def is_of_another_process(self) -> bool:
        """Whether the process was forked since; the sockets belong to its parent."""
        return self._process != os.getpid()

    def close(self) -> None:
        """Give back the descriptors. Tasks that have not ended are dropped."""
        if not self.is_over:
            self.is_over = True
            before = self._active()
            try:
                self._enter(self._runner)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # Trio's, about an abandoned run
                    self._passes.close()
            finally:
                self._leave(before)
        if self.fileno >= 0:
            os.close(self.fileno)
            self.fileno = -1

    def on_crash(self, tell: Callable[[], object]) -> None:
        """Call ``tell`` if an interruption hits Trio itself: then no task continues, and none is cancelled."""
        self._crash_listeners.append(tell)

    def _report_crash(self) -> None:
        told, self._crash_listeners = self._crash_listeners, []
        for tell in told:
            tell()

    def _active(self) -> tuple[dict[str, Any], Any]:
        """Return the active run of this thread."""
        return dict(vars(self._context)), self._library.name

    def _enter(self, runner: Any) -> None:
        """Make ``runner`` the active run of this thread."""
        active = vars(self._context)
        active.clear()
        if runner is not None:
            active["runner"] = runner
        self._library.name = "trio"

    def _leave(self, before: tuple[dict[str, Any], Any]) -> None:
        """Restore the library that was active before, also after an error: other code of this thread asks for it."""
        active, library = vars(self._context), self._library
        try:
            active.clear()
            active.update(before[0])
            library.name = before[1]
        except BaseException:  # an interruption
            active.clear()
            active.update(before[0])
            library.name = before[1]
            raise


def _raise_interruption(error: BaseException | None) -> None:
    """Raise the `KeyboardInterrupt` or `SystemExit` that ended a run, which Trio may have put into groups."""
    while isinstance(error, BaseExceptionGroup):
        interruptions, _ = error.split((KeyboardInterrupt, SystemExit))
        error = None if interruptions is None else interruptions.exceptions[0]
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error.with_traceback(None) from None


@functools.cache
def is_possible() -> bool:
    """Return whether this Trio, on this system, has the parts that `SteppedRun` uses."""
    if sys.platform != "linux":
        return False
    try:
        run = SteppedRun()
    except (AttributeError, ImportError, TypeError) as error:
        logger.info("asyncio clients run in the loop thread: %r", error)
        return False
    calls: Calls = deque([(run.cancel, ())])
    for _ in range(_FIRST_PASSES):
        run.step(calls, wait=0)
        if run.is_over:
            break
    ended = run.is_over
    run.close()
    return ended
