"""Client quotas: limits of produce, fetch, request time and partition creation per user and client id
(KIP-13, KIP-124, KIP-599).

`ClientQuotas` records the usage of each client and returns its throttle time. It keeps a rate over a sliding window for
each client that has a quota, and nothing for other clients. Times are arguments in seconds.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import Final

from triokafka.broker_stub.metadata.image import QuotaEntity
from triokafka.quota_precedence import effective_quota

_MANY: Final = 1000
"""Number of rates above which expired rates are removed."""
_LONGEST_MS: Final = 2**31 - 1
"""Maximum throttle time in a response."""


class QuotaKind(enum.Enum):
    """The kinds of quotas with their names in Kafka."""

    PRODUCE = "producer_byte_rate"
    """Bytes of Produce requests per second."""
    FETCH = "consumer_byte_rate"
    """Bytes of fetched records per second; followers are exempt."""
    REQUEST = "request_percentage"
    """Processing time of requests in percent of one thread: 100 is one full thread."""
    MUTATION = "controller_mutation_rate"
    """Created and deleted partitions per second (KIP-599)."""


class Rate:
    """An amount per second over the last ``samples`` windows of ``window`` seconds, the current one included."""

    __slots__ = ("_samples", "_window", "_windows")

    def __init__(self, samples: int, window: float) -> None:
        self._samples = samples
        self._window = window
        self._windows: deque[list[float]] = deque()  # start and sum of each window with events

    def record(self, amount: float, now: float) -> None:
        """Add an amount; a negative amount undoes an earlier one."""
        if not self._windows or now - self._windows[-1][0] >= self._window:
            self._windows.append([now, 0.0])
        self._windows[-1][1] += amount

    def measure(self, now: float) -> tuple[float, float]:
        """Return the rate and the seconds that it covers: at least the length of all windows but one."""
        windows = self._windows
        while windows and now - windows[0][0] >= self._samples * self._window:
            windows.popleft()
        if not windows:
            return 0.0, self._window
        elapsed = now - windows[0][0]
        whole = int(elapsed / self._window)
        if whole < self._samples - 1:
            elapsed += (self._samples - 1 - whole) * self._window
        elapsed = max(elapsed, self._window)
        return sum(amount for _, amount in windows) / elapsed, elapsed

    def is_over(self, now: float) -> bool:
        """Whether all recorded amounts have expired."""
        return not self._windows or now - self._windows[-1][0] >= self._samples * self._window


class TokenBucket:
    """A token bucket with a burst and a refill rate. An operation may take more tokens than the bucket contains."""

    __slots__ = ("_burst_seconds", "_filled_at", "_spent")

    def __init__(self, burst_seconds: float, now: float) -> None:
        self._burst_seconds = burst_seconds
        self._spent = 0.0
        self._filled_at = now

    def tokens(self, rate: float, now: float) -> float:
        """Return the number of tokens; below 0 after an operation took more than the bucket contained."""
        self._spent = max(self._spent - rate * (now - self._filled_at), 0.0)
        self._filled_at = now
        return rate * self._burst_seconds - self._spent

    def take(self, amount: float) -> None:
        """Take tokens, even more than the bucket contains."""
        self._spent += amount

    def is_full(self, rate: float, now: float) -> bool:
        """Whether the bucket is full, like a new one."""
        return self.tokens(rate, now) >= rate * self._burst_seconds


class ClientQuotas:
    """The quotas of one broker.

    Args:
        samples: number of windows of a rate (``quota.window.num``).
        window_seconds: length of a window (``quota.window.size.seconds``).
        mutation_burst_seconds: time for which a client may accumulate unused partition mutations
            (``controller.quota.window.num`` times ``controller.quota.window.size.seconds``).
    """

    def __init__(self, samples: int = 11, window_seconds: float = 1, *, mutation_burst_seconds: float = 11) -> None:
        self._samples = samples
        self._window = window_seconds
        self._mutation_burst = mutation_burst_seconds
        self._buckets: dict[tuple[QuotaKind, str, str], TokenBucket] = {}
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._limited: frozenset[QuotaKind] = frozenset()
        self._found: dict[tuple[QuotaKind, str, str], tuple[float, tuple[QuotaKind, str, str]] | None] = {}
        self._rates: dict[tuple[QuotaKind, str, str], Rate] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def configure(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace the quotas and keep the rates."""
        self._quotas = quotas
        self._limited = frozenset(kind for kind in QuotaKind if any(kind.value in values for values in quotas.values()))
        self._found.clear()

    def limits(self, kind: QuotaKind) -> bool:
        """Whether any client has a quota of this kind."""
        return bool(self._limited) and kind in self._limited

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> float | None:
        """Return the quota that applies to a client, or None."""
        found = self._find(kind, user, client_id)
        return None if found is None else found[0]

    def most_at_once(self, user: str, client_id: str) -> float:
        """Return the bytes of the largest fetch that alone does not exceed the client's quota."""
        limit = self.limit(QuotaKind.FETCH, user, client_id)
        return float("inf") if limit is None else limit * (self._samples - 1) * self._window

    def record(self, kind: QuotaKind, user: str, client_id: str, amount: float, now: float) -> int:
        """Record an amount for a client; return its throttle time in ms, 0 for none.

        With rate O, quota T and window W, the throttle time is (O - T) / T * W, after which the rate equals the quota.
        For ``request_percentage`` it is at most one window.
        """
        found = self._find(kind, user, client_id)
        if found is None:
            return 0
        limit, key = found
        rate = self._rates.get(key)
        if rate is None:
            rate = self._new_rate(key, now)
        rate.record(amount, now)
        observed, seconds = rate.measure(now)
        if observed <= limit:
            return 0
        delay = (observed - limit) / limit * seconds
        if kind is QuotaKind.REQUEST:
            delay = min(delay, self._window)
        return _milliseconds(delay)

    def record_mutations(
        self, user: str, client_id: str, partitions: int, now: float, *, strict: bool
    ) -> tuple[bool, int]:
        """Record partitions that a client creates or deletes; return whether it may, and its throttle time in ms.

        With ``strict``, a client whose quota is exhausted is refused, the refused request does not count, and an
        accepted request is not throttled. Otherwise every request is accepted and throttled.
        """
        found = self._find(QuotaKind.MUTATION, user, client_id)
        if found is None:
            return True, 0
        rate, key = found
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _MANY:
                self._buckets = {k: kept for k, kept in self._buckets.items() if not kept.is_full(rate, now)}
            bucket = self._buckets[key] = TokenBucket(self._mutation_burst, now)
        missing = -bucket.tokens(rate, now)
        if strict and missing > 0:
            return False, _milliseconds(missing / rate)
        bucket.take(partitions)
        return True, 0 if strict else _milliseconds(max(missing + partitions, 0.0) / rate)

    def take_back(self, kind: QuotaKind, user: str, client_id: str, amount: float, now: float) -> None:
        """Undo a recorded amount after the client got an empty response instead."""
        found = self._find(kind, user, client_id)
        if found is not None and found[1] in self._rates:
            self._rates[found[1]].record(-amount, now)

    def _new_rate(self, key: tuple[QuotaKind, str, str], now: float) -> Rate:
        if len(self._rates) >= _MANY:
            self._rates = {known: rate for known, rate in self._rates.items() if not rate.is_over(now)}
        rate = self._rates[key] = Rate(self._samples, self._window)
        return rate

    def _find(self, kind: QuotaKind, user: str, client_id: str) -> tuple[float, tuple[QuotaKind, str, str]] | None:
        """Return the quota of a client and the key of the clients that share it."""
        asked = (kind, user, client_id)
        if asked in self._found:
            return self._found[asked]
        if len(self._found) >= _MANY:
            self._found.clear()
        found = None
        effective = effective_quota(self._quotas, kind.value, user, client_id)
        if effective is not None:
            value, level = effective
            found = (value, (kind, *level.shared_by))
        self._found[asked] = found
        return found


def _milliseconds(seconds: float) -> int:
    return round(min(seconds * 1000, _LONGEST_MS))
