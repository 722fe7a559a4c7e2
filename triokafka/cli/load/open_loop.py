"""An open-loop schedule, which does not wait for the measured client.

Record ``i`` is scheduled at ``start + i / rate``, independent of earlier records, and its latency counts from that
time. A client that stalls is late for every record due meanwhile, so the stall appears in its statistics (no
coordinated omission).

A kernel timer wakes the sender, because an event loop rounds timeouts up to a millisecond, which is more than the
measured latencies.
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
    """Computes which of ``records`` records are due, at ``rate`` a second from ``start`` (seconds of ``clock``)."""

    def __init__(
        self, rate: float, records: int, *, start: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if rate <= 0:
            raise ValueError(f"the rate must be more than 0 records a second, not {rate}")
        self.rate = rate
        self.records = records
        self.start = start
        self.given = 0
        """How many records `due` has returned so far."""
        self._clock = clock

    def intended(self, number: int) -> float:
        """Return the scheduled time of record ``number``, counted from 0."""
        return self.start + number / self.rate

    @property
    def ended(self) -> bool:
        """Whether all records were due."""
        return self.given >= self.records

    def due(self) -> range:
        """Return the numbers of the records that became due since the last call."""
        now = self._clock()
        first = self.given
        # Rounding of the clock or of the division must not make a record due early.
        until = 0 if now < self.start else min(self.records, int((now - self.start) * self.rate) + 1)
        while until > first and self.intended(until - 1) > now:
            until -= 1
        self.given = max(first, until)
        return range(first, self.given)

    def seconds_left(self) -> float:
        """Return the seconds until the next record is due; 0 if it already is."""
        return max(0.0, self.intended(self.given) - self._clock())


class Ticker:
    """Wakes its owner when the next record of a schedule is due. Use it as ``with Ticker(schedule)``.

    On Linux it uses a kernel timer; elsewhere a sleep, which an event loop may end a millisecond late.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.fd = _timer(schedule) if schedule.rate <= 1e6 else None
        """File descriptor that is readable if a record became due since `drain`; None without a kernel timer."""

    def __enter__(self) -> Ticker:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.fd is not None:
            os.close(self.fd)

    def drain(self) -> None:
        """Discard the ticks so far."""
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
        """Wait until the next record is due; always a Trio checkpoint."""
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
    """Create a timerfd that ticks with the schedule. ``os.timerfd_create`` exists since Python 3.13."""
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
