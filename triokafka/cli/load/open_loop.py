"""A schedule that does not wait for the one who is measured.

Record ``i`` is meant to be sent at ``start + i / rate``, whatever became of the records before it, and its latency
counts from then: a client that stalls is late for all that was due meanwhile, and cannot leave those out of its
statistics (coordinated omission).

The kernel's timer wakes the sender, because waiting with a timeout is coarser than the latencies in question: an event
loop rounds it up to a millisecond.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import time
from collections.abc import Callable
from typing import Final

import trio

_CLOCK_MONOTONIC: Final = 1
_SHORTEST_SLEEP: Final = 0.000_05


class Schedule:
    """Says which of ``records`` records are due, at ``rate`` a second from ``start`` on (seconds of ``clock``)."""

    def __init__(
        self, rate: float, records: int, *, start: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if rate <= 0:
            raise ValueError(f"a rate is records a second, more than 0, not {rate}")
        self.rate = rate
        self.records = records
        self.start = start
        self.given = 0
        """How many `due` has said so far."""
        self._clock = clock

    def intended(self, number: int) -> float:
        """When record ``number``, counted from 0, is meant to be sent."""
        return self.start + number / self.rate

    @property
    def ended(self) -> bool:
        """Whether all records were due."""
        return self.given >= self.records

    def due(self) -> range:
        """The numbers of the records whose time has come since the last call."""
        now = self._clock()
        first = self.given
        # The clock's and the division's rounding must not make a record due early.
        until = 0 if now < self.start else min(self.records, int((now - self.start) * self.rate) + 1)
        while until > first and self.intended(until - 1) > now:
            until -= 1
        self.given = max(first, until)
        return range(first, self.given)

    def seconds_left(self) -> float:
        """Until the next record is due; 0 when it is."""
        return max(0.0, self.intended(self.given) - self._clock())


class Ticker:
    """Wakes its owner when the next record of a schedule is due. Use it as ``with Ticker(schedule)``.

    On Linux a timer of the kernel; elsewhere a sleep, which on an event loop may be a millisecond late.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.fd = _timer(schedule) if schedule.rate <= 1e6 else None
        """Readable when a record has become due since the last `drain`; None where there is no such timer."""

    def __enter__(self) -> Ticker:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.fd is not None:
            os.close(self.fd)

    def drain(self) -> None:
        """Forget the ticks so far."""
        if self.fd is not None:
            try:
                os.read(self.fd, 8)
            except BlockingIOError:
                pass

    def wait_blocking(self) -> None:
        """Block this thread until the next record is due."""
        if self.fd is None:
            time.sleep(max(_SHORTEST_SLEEP, self._schedule.seconds_left()))
            return
        if self._schedule.seconds_left() > 0:
            select.select([self.fd], [], [])
        self.drain()

    async def wait(self) -> None:
        """Let other tasks of Trio run until the next record is due; always a checkpoint."""
        if self.fd is None:
            await trio.sleep(self._schedule.seconds_left())
            return
        if self._schedule.seconds_left() > 0:
            await trio.lowlevel.wait_readable(self.fd)
        else:
            await trio.lowlevel.checkpoint()
        self.drain()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def _timer(schedule: Schedule) -> int | None:
    """A timerfd that ticks with the schedule. ``os.timerfd_create`` came with Python 3.13."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "timerfd_create"):
        return None
    fd: int = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        return None
    interval = 1 / schedule.rate
    setting = _Timer(_timespec(interval), _timespec(max(1e-9, schedule.seconds_left())))
    if libc.timerfd_settime(fd, 0, ctypes.byref(setting), None) != 0:
        number = ctypes.get_errno()
        os.close(fd)
        raise OSError(number, f"timerfd_settime: {errno.errorcode.get(number, number)}")
    return fd


def _timespec(seconds: float) -> _Timespec:
    nanoseconds = round(seconds * 1e9)
    return _Timespec(nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
