"""Trio beside asyncio, in the thread of the asyncio loop.

A call between the two costs no change of threads here, which is most of the cost of a single `send` through the loop
thread. The asyncio loop watches Trio's sockets through the descriptor of `SteppedRun`, and its next deadline through a
timer; there is no polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, Final

from triokafka.asyncio.keyboard_interrupts import hold_interrupts
from triokafka.asyncio.loop_sockets import LoopSockets, LoopWorld
from triokafka.asyncio.stepped_run import NEVER, Calls, SteppedRun, is_possible
from triokafka.errors import IllegalStateError

_MOST_STEPS: Final = 8
"""Steps of Trio in one callback of the asyncio loop."""
_SECONDS_TO_END: Final = 1.0
_A_DAY: Final = 24 * 3600.0


class GuestLoop:
    """Runs work of Trio in the thread of an asyncio loop, as `LoopThread` does in a thread of its own.

    The Trio run begins with the first task and is over with the last one; then nothing of it is left. If the asyncio
    loop ends before, the tasks are cancelled, and have a second to end: while `asyncio.run` closes the asynchronous
    generators, or else in ``loop.close()``. Tasks that need longer end in a thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: Calls = deque()
        self._posted: Calls = deque()
        self._later: Calls = deque()
        self._run: SteppedRun | None = None
        self._is_due = False
        self._is_working = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._over: asyncio.Event | None = None
        self._has_waited = False
        self._end_of_loop = _EndOfLoop()
        self._sockets = LoopSockets(loop, self._call_and_work)
        self.world = LoopWorld(self._sockets)
        """For clients in this run: their sockets are watched by the asyncio loop."""
        self.on_crash: set[Callable[[], object]] = set()
        """Called if an interruption (`KeyboardInterrupt`) hits Trio itself, after which no task continues."""

    # ---------------------------------------------------------------- calls

    def soon(self, do: Callable[..., object], *arguments: Any) -> bool:
        """Call ``do`` in the Trio run, in order. Return False if the asyncio loop is closed. From any thread."""
        self._calls.append((do, arguments))
        if self._is_due or (self._is_working and self._is_here()):
            return True
        try:
            if self._is_here():
                self._loop.call_soon(self._work_due)
                self._is_due = True
            else:
                self._is_due = True
                self._loop.call_soon_threadsafe(self._work_due)
        except RuntimeError:
            self._is_due = False
            return False
        return True

    def now(self, do: Callable[..., object], *arguments: Any) -> None:
        """As `soon`, but let Trio's tasks go on before this returns.

        In the asyncio loop, with interrupts held back (`hold_interrupts`).
        """
        self._calls.append((do, arguments))
        if not self._is_working:
            self._work_on_steps(None)

    def start(self, work: Callable[..., Awaitable[None]], *arguments: Any, name: str) -> None:
        """Run ``work`` as a task of Trio. Its errors are logged.

        Raises:
            IllegalStateError: the asyncio loop is closed.
            OSError: the process has no file descriptors left.
        """
        if self._run is None and self._is_here():
            self._run = self._begin()
        if self._is_here():
            self._is_due = False  # an interruption may have hit the loop just before it called `_work_due`
        if not self.soon(self._start, work, arguments, name):
            raise IllegalStateError("the asyncio loop is closed")

    def _start(self, work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...], name: str) -> None:
        assert self._run is not None, "calls are made in a run"
        if not self._run.start(work, arguments, name):
            self._later.append((self._start, (work, arguments, name)))  # belongs to the next run

    def post(self, do: Callable[..., object], *arguments: Any) -> bool:
        """Call ``do`` in the asyncio loop. Return False if it is closed. From any thread."""
        if self._loop.is_closed():
            return False
        if self._is_working and self._is_here():
            self._posted.append((do, arguments))
            return True
        try:
            self._loop.call_soon_threadsafe(do, *arguments)
        except RuntimeError:
            return False
        return True

    def _is_here(self) -> bool:
        return asyncio._get_running_loop() is self._loop

    # ---------------------------------------------------------------- the steps of Trio

    def _work_due(self) -> None:
        self._is_due = False
        self._work()

    def _readable(self) -> None:
        self._work(0)

    def _call_and_work(self, do: Callable[[], None]) -> None:
        self._calls.append((do, ()))
        self._work()

    def _time_is_up(self) -> None:
        self._timer = None
        self._work(0)

    def _work(self, wait: float | None = None) -> None:
        """Make steps until Trio waits, at most `_MOST_STEPS`; then run the posted calls."""
        if self._is_working:
            return
        held = hold_interrupts()
        try:
            self._work_on_steps(wait)
        finally:
            if held is not None:
                held.let_go()

    def _work_on_steps(self, wait: float | None) -> None:
        timeout = NEVER
        if self._timer is not None and self._loop.time() >= self._timer_at:
            wait = 0  # the loop was busy for long: sockets first, or else answers that have arrived count as missing
            self._timer.cancel()
            self._timer = None
        if wait is not None:
            self._calls.extend((stream.wake, ()) for stream in self._sockets.ready())
        try:
            self._is_working = True
            for _ in range(_MOST_STEPS):
                timeout = self._step(wait)
                wait = None
                if timeout > 0 and not self._calls:
                    break
        except BaseException:
            self._loop.call_soon(self._work_on)  # the next step handles the deadlines that have passed
            raise
        finally:
            self._is_working = False
            self._make_posted()
        if timeout <= 0 or self._calls:
            if not self._is_due:
                self._loop.call_soon(self._work_on)
                self._is_due = True
        elif timeout != NEVER:
            self._set_timer(timeout)

    def _work_on(self) -> None:
        self._is_due = False
        self._work(0)

    def _step(self, wait: float | None) -> float:
        run = self._run
        if run is None:
            if not self._calls:
                return NEVER
            run = self._run = self._begin()
        try:
            return run.step(self._calls, wait=wait)
        finally:
            if run.is_over:
                self._forget(run)

    def _make_posted(self) -> None:
        try:
            while self._posted:
                do, arguments = self._posted.popleft()
                try:
                    do(*arguments)
                except Exception as error:
                    self._loop.call_exception_handler({"message": f"Exception in {do!r}", "exception": error})
        finally:
            if self._posted:  # an interruption
                self._loop.call_soon(self._make_posted)

    def _set_timer(self, timeout: float) -> None:
        # An earlier timer stays: a needless step costs less than a timer for each.
        at = self._loop.time() + timeout
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._time_is_up), at

    # ---------------------------------------------------------------- the life of a run

    def _begin(self) -> SteppedRun:
        run = SteppedRun()
        self._has_waited = False
        run.on_crash(self._crashed)
        self._loop.add_reader(run.fileno, self._readable)
        self._end_of_loop.watch(self._loop, self)
        return run

    def _crashed(self) -> None:
        for tell in list(self.on_crash):
            tell()

    def _forget(self, run: SteppedRun) -> None:
        self._run = None
        if self._over is not None:
            self._over.set()
            self._over = None
        if not self._loop.is_closed():
            self._loop.remove_reader(run.fileno)
        run.close()
        self._end_of_loop.forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._calls.extendleft(reversed(self._later))
        self._later.clear()

    async def end(self) -> None:
        """Cancel the tasks, and wait for their end at most a second. The asyncio loop is about to end."""
        run = self._run
        if run is None:
            return
        self._has_waited = True
        self._over = over = asyncio.Event()
        self.soon(run.cancel)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SECONDS_TO_END):
                await over.wait()

    def end_without_loop(self) -> None:
        """Cancel the tasks and run them to their end: here at most a second, then in a thread.

        The asyncio loop is closed.
        """
        run = self._run
        if run is None or self._is_working or run.is_of_another_process:
            return
        self._is_working = True
        self._calls.append((run.cancel, ()))
        self._calls.extend((stream.leave_loop, ()) for stream in self._sockets.all())
        if not self._run_to_end(run, 0.0 if self._has_waited else _SECONDS_TO_END):
            thread = threading.Thread(target=self._run_to_end, args=(run, NEVER), name="end of asyncio", daemon=True)
            thread.start()

    def _run_to_end(self, run: SteppedRun, seconds: float) -> bool:
        """Return whether the run is over after that time."""
        until = time.monotonic() + seconds
        timeout = 0.0
        while not run.is_over:
            left = until - time.monotonic()
            if left <= 0:
                return False
            timeout = run.step(self._calls, wait=min(timeout, left))
        self._is_working = False
        self._forget(run)
        return True


class _EndOfLoop:
    """Notices that an asyncio loop ends.

    `asyncio.run` and its like close the asynchronous generators that were begun in the loop. ``loop.close()`` without
    that drops its timers.
    """

    def __init__(self) -> None:
        self._generator: AsyncGenerator[None, None] | None = None
        self._is_ending = False
        self._timer: Callable[[], asyncio.TimerHandle | None] = lambda: None

    def watch(self, loop: asyncio.AbstractEventLoop, guest: GuestLoop) -> None:
        """Call `GuestLoop.end`, or else `GuestLoop.end_without_loop`, when the loop ends."""
        self._is_ending = False
        self._generator = self._closed_with(guest)
        with contextlib.suppress(StopIteration):
            self._generator.asend(None).send(None)
        self._watch_timers(loop, guest)

    def _watch_timers(self, loop: asyncio.AbstractEventLoop, guest: GuestLoop) -> None:
        again = partial(self._watch_timers, loop, guest)
        self._timer = weakref.ref(loop.call_later(_A_DAY, _Dropped(loop, guest, again)))

    async def _closed_with(self, guest: GuestLoop) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._is_ending = True
            await guest.end()

    def forget(self) -> None:
        """Stop watching."""
        timer, self._timer = self._timer(), lambda: None
        if timer is not None:
            timer.cancel()
        generator, self._generator = self._generator, None
        if generator is not None and not self._is_ending:
            with contextlib.suppress(StopIteration):
                generator.aclose().send(None)


class _Dropped:
    """The callback of a timer. Only that refers to it, so that it is deleted when the loop drops the timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, guest: GuestLoop, again: Callable[[], None]) -> None:
        self._loop = loop
        self._guest = guest
        self._again = again

    def __call__(self) -> None:
        self._again()

    def __del__(self) -> None:
        if self._loop.is_closed():
            self._guest.end_without_loop()


_guests: Final[weakref.WeakValueDictionary[int, GuestLoop]] = weakref.WeakValueDictionary()
"""The guest of each asyncio loop, by the loop's ``id``: a guest keeps its loop alive."""
_lock: Final = threading.Lock()


def guest_loop(loop: asyncio.AbstractEventLoop) -> GuestLoop | None:
    """Return the guest of an asyncio loop, which all its clients share. None where that is impossible."""
    if not is_possible():
        return None
    with _lock:
        found = _guests.get(id(loop))
        if found is None:
            found = _guests[id(loop)] = GuestLoop(loop)
        return found
