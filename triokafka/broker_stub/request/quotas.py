"""Client quotas: how fast a user or client id may produce, fetch, use the broker's time, and create and delete
partitions (KIP-13, KIP-124, KIP-599).

`ClientQuotas` is told what each client did and answers for how long it must be silent. It keeps a rate per client that
has a quota, over a sliding window, and nothing for the others. Times are arguments, in seconds.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping
from typing import Final

from triokafka.broker_stub.metadata.image import CLIENT_ID, USER, QuotaEntity

_MANY: Final = 1000
"""Rates that are kept before those that mean nothing any more are looked for."""
_LONGEST_MS: Final = 2**31 - 1
"""The longest silence that an answer can ask for."""


class QuotaKind(enum.Enum):
    """What is limited, by the name of the quota."""

    PRODUCE = "producer_byte_rate"
    """Bytes of Produce requests a second."""
    FETCH = "consumer_byte_rate"
    """Bytes of records that are fetched a second; other brokers are not limited."""
    REQUEST = "request_percentage"
    """The part of a thread's time, in percent, that requests take: 100 is all of one."""
    MUTATION = "controller_mutation_rate"
    """Partitions that are created and deleted in a second (KIP-599)."""


class Rate:
    """An amount per second over the last ``samples`` windows of ``window`` seconds, the current one included."""

    __slots__ = ("_samples", "_window", "_windows")

    def __init__(self, samples: int, window: float) -> None:
        self._samples = samples
        self._window = window
        self._windows: deque[list[float]] = deque()  # start and sum of each that saw anything

    def record(self, amount: float, now: float) -> None:
        """Something happened; a negative amount takes it back."""
        if not self._windows or now - self._windows[-1][0] >= self._window:
            self._windows.append([now, 0.0])
        self._windows[-1][1] += amount

    def measure(self, now: float) -> tuple[float, float]:
        """The rate, and the seconds that it is taken over: never less than all windows but one."""
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
        """Whether nothing of it counts any more."""
        return not self._windows or now - self._windows[-1][0] >= self._samples * self._window


class TokenBucket:
    """What may be done at once, and comes back at a rate. The last thing that is done may cost more than is there."""

    __slots__ = ("_burst_seconds", "_filled_at", "_spent")

    def __init__(self, burst_seconds: float, now: float) -> None:
        self._burst_seconds = burst_seconds
        self._spent = 0.0
        self._filled_at = now

    def tokens(self, rate: float, now: float) -> float:
        """How many there are; below 0 when more were taken."""
        self._spent = max(self._spent - rate * (now - self._filled_at), 0.0)
        self._filled_at = now
        return rate * self._burst_seconds - self._spent

    def take(self, amount: float) -> None:
        """Take some, whether they are there or not."""
        self._spent += amount

    def is_full(self, rate: float, now: float) -> bool:
        """Whether it is as if it were new."""
        return self.tokens(rate, now) >= rate * self._burst_seconds


class ClientQuotas:
    """The quotas of one broker.

    Args:
        samples: windows that a rate is taken over (``quota.window.num``).
        window_seconds: how long one is (``quota.window.size.seconds``).
        mutation_burst_seconds: for how long a client may save up partitions that it does not create
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
        """The quotas from now on; rates go on."""
        self._quotas = quotas
        self._limited = frozenset(kind for kind in QuotaKind if any(kind.value in values for values in quotas.values()))
        self._found.clear()

    def limits(self, kind: QuotaKind) -> bool:
        """Whether anybody is limited in this."""
        return bool(self._limited) and kind in self._limited

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> float | None:
        """The quota that holds for a client, None for none."""
        found = self._find(kind, user, client_id)
        return None if found is None else found[0]

    def most_at_once(self, user: str, client_id: str) -> float:
        """Bytes that a client may fetch at once without being throttled for that alone."""
        limit = self.limit(QuotaKind.FETCH, user, client_id)
        return float("inf") if limit is None else limit * (self._samples - 1) * self._window

    def record(self, kind: QuotaKind, user: str, client_id: str, amount: float, now: float) -> int:
        """A client did so much; returns for how many milliseconds it must be silent, 0 for not at all.

        With rate O, quota T and window W that is (O - T) / T * W: then the rate has come down to the quota. For the
        broker's time it is one window at most.
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
        """A client wants to create or delete partitions: whether it may, and for how many milliseconds it is silenced.

        Who has used the quota up is refused when ``strict``, which does not count, and is not silenced before; else
        everybody may, and is silenced for it.
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
        """What was recorded did not happen: the client got an empty answer instead."""
        found = self._find(kind, user, client_id)
        if found is not None and found[1] in self._rates:
            self._rates[found[1]].record(-amount, now)

    def _new_rate(self, key: tuple[QuotaKind, str, str], now: float) -> Rate:
        if len(self._rates) >= _MANY:
            self._rates = {known: rate for known, rate in self._rates.items() if not rate.is_over(now)}
        rate = self._rates[key] = Rate(self._samples, self._window)
        return rate

    def _find(self, kind: QuotaKind, user: str, client_id: str) -> tuple[float, tuple[QuotaKind, str, str]] | None:
        """The quota of a client, and with whom it shares it."""
        asked = (kind, user, client_id)
        if asked in self._found:
            return self._found[asked]
        if len(self._found) >= _MANY:
            self._found.clear()
        found = None
        for entity, shared_by in _candidates(user, client_id):
            value = self._quotas.get(entity, {}).get(kind.value)
            if value is not None:
                found = (value, (kind, *shared_by))
                break
        self._found[asked] = found
        return found


def _milliseconds(seconds: float) -> int:
    return round(min(seconds * 1000, _LONGEST_MS))


def _candidates(user: str, client_id: str) -> list[tuple[QuotaEntity, tuple[str, str]]]:
    """Who a client may be for a quota, the most specific first; with the user and client id that share it then."""
    candidates: list[tuple[QuotaEntity, tuple[str, str]]] = []
    for user_name in (user, None):
        if client_id:
            for client_name in (client_id, None):
                candidates.append((((CLIENT_ID, client_name), (USER, user_name)), (user, client_id)))
        candidates.append((((USER, user_name),), (user, "")))
    if client_id:
        candidates.append((((CLIENT_ID, client_id),), ("", client_id)))
        candidates.append((((CLIENT_ID, None),), ("", client_id)))
    return candidates
