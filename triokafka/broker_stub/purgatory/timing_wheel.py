"""A hierarchical timing wheel: timers that are added and cancelled in constant time. Pure: time is an argument.

A wheel has ``wheel_size`` buckets of ``tick_ms`` each. Timers beyond its interval go to the next wheel, whose tick is
this wheel's whole interval. A heap orders the non-empty buckets by expiry, so a jump of any number of ticks costs only
the buckets that expire. Times are whole milliseconds on any monotonic clock.

The wheel never sleeps and runs no callbacks: `TimingWheel.advance` returns the expired items.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TICK_MS: Final = 1
WHEEL_SIZE: Final = 20


class TimerEntry(Generic[T]):
    """One timer: its item and expiry. It is a link in the ring of its bucket, so cancelling takes constant time."""

    __slots__ = ("_bucket", "_next", "_previous", "expires_ms", "item")

    def __init__(self, item: T | None, expires_ms: int) -> None:
        self.item = item
        self.expires_ms = expires_ms
        self._bucket: _Bucket[T] | None = None
        self._next: TimerEntry[T] = self
        self._previous: TimerEntry[T] = self


class _Bucket(Generic[T]):
    """A ring of entries due within one tick; ``expires_ms`` is the start of that tick, -1 while not queued."""

    __slots__ = ("expires_ms", "root")

    def __init__(self) -> None:
        self.root: TimerEntry[T] = TimerEntry(None, -1)
        self.expires_ms = -1

    def insert(self, entry: TimerEntry[T]) -> None:
        root = self.root
        last = root._previous
        entry._bucket, entry._previous, entry._next = self, last, root
        last._next = root._previous = entry

    @staticmethod
    def unlink(entry: TimerEntry[T]) -> None:
        entry._previous._next, entry._next._previous = entry._next, entry._previous
        entry._previous = entry._next = entry
        entry._bucket = None


class _Wheel(Generic[T]):
    """One level. ``current_ms`` is a multiple of ``tick_ms``."""

    __slots__ = ("buckets", "current_ms", "interval_ms", "overflow", "tick_ms")

    def __init__(self, tick_ms: int, size: int, start_ms: int) -> None:
        self.tick_ms = tick_ms
        self.interval_ms = tick_ms * size
        self.current_ms = start_ms - start_ms % tick_ms
        self.buckets: list[_Bucket[T]] = [_Bucket() for _ in range(size)]
        self.overflow: _Wheel[T] | None = None


class TimingWheel(Generic[T]):
    """All levels together.

    Args:
        start_ms: the current time.
        tick_ms: length of a bucket of the lowest level; a timer may fire up to ``tick_ms - 1`` early.
        wheel_size: buckets per level.
    """

    def __init__(self, start_ms: int, *, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE) -> None:
        self._size = wheel_size
        self._lowest: _Wheel[T] = _Wheel(tick_ms, wheel_size, start_ms)
        self._queue: list[tuple[int, int, _Bucket[T]]] = []
        self._sequence = 0
        self._count = 0

    def __len__(self) -> int:
        """Return the number of active timers."""
        return self._count

    def add(self, item: T, expires_ms: int) -> TimerEntry[T] | None:
        """Start a timer; return None when it is already due, and the caller must act immediately."""
        entry = TimerEntry(item, expires_ms)
        if not self._place(entry):
            return None
        self._count += 1
        return entry

    def cancel(self, entry: TimerEntry[T]) -> bool:
        """Cancel a timer; return False when it has expired or was cancelled before."""
        if entry._bucket is None:
            return False
        _Bucket.unlink(entry)
        self._count -= 1
        return True

    def next_expiry_ms(self) -> int | None:
        """Return the time for the next `advance`: the start of the earliest non-empty bucket. None without timers.

        Cancelled timers may leave an empty bucket behind, so it can be earlier than the earliest timer, never later.
        """
        if not self._count:
            self._forget_empty_buckets()
            return None
        return self._queue[0][0]

    def advance(self, now_ms: int) -> list[T]:
        """Advance the time; return the expired items, earliest bucket first."""
        expired: list[T] = []
        queue = self._queue
        while queue and queue[0][0] <= now_ms:
            expires_ms, _, bucket = heapq.heappop(queue)
            self._move_clock(expires_ms)
            bucket.expires_ms = -1
            root = bucket.root
            while (entry := root._next) is not root:
                _Bucket.unlink(entry)
                if not self._place(entry):
                    self._count -= 1
                    expired.append(entry.item)  # type: ignore[arg-type]  # only a ring's root has no item
        self._move_clock(now_ms)
        return expired

    def _place(self, entry: TimerEntry[T]) -> bool:
        wheel = self._lowest
        expires_ms = entry.expires_ms
        if expires_ms < wheel.current_ms + wheel.tick_ms:
            return False
        while expires_ms >= wheel.current_ms + wheel.interval_ms:
            if wheel.overflow is None:
                wheel.overflow = _Wheel(wheel.interval_ms, self._size, wheel.current_ms)
            wheel = wheel.overflow
        slot = expires_ms // wheel.tick_ms
        bucket = wheel.buckets[slot % self._size]
        bucket.insert(entry)
        if bucket.expires_ms != slot * wheel.tick_ms:  # queued once per revolution, however many entries it gets
            bucket.expires_ms = slot * wheel.tick_ms
            self._sequence += 1
            heapq.heappush(self._queue, (bucket.expires_ms, self._sequence, bucket))
        return True

    def _move_clock(self, now_ms: int) -> None:
        wheel: _Wheel[T] | None = self._lowest
        while wheel is not None and now_ms >= wheel.current_ms + wheel.tick_ms:
            wheel.current_ms = now_ms - now_ms % wheel.tick_ms
            wheel = wheel.overflow

    def _forget_empty_buckets(self) -> None:
        for _, _, bucket in self._queue:
            bucket.expires_ms = -1
        self._queue.clear()
