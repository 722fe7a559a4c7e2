"""Client quotas: limits of produce, fetch, request time and partition creation per user and client id
(KIP-13, KIP-124, KIP-599).

`ClientQuotas` records the usage of each client and returns its throttle time. It keeps the usage of each client that
has a quota, and nothing for other clients. Times are arguments in seconds.

A rate over a sliding window is Kafka's measure of a client quota (KIP-13), and alone it lets many clients exceed the
quota: each may send one more request when the rate is low enough again, and the window forgets the excess after
ten seconds. With N clients and requests of S bytes, the rate R at a quota of T over W seconds settles where
R (R - T) = N S T / W, which for ten producers of 16 KiB at 100 kB/s is 13 % too much. A token bucket forgets
nothing, so the throttle time is the longer one of both. For a single client they are equal.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from typing import Final

from triokafka.broker_stub.metadata.image import QuotaEntity
from triokafka.broker_stub.quota_rate import QuotaRate
from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.quota import Quota
from triokafka.metrics.stats import Avg
from triokafka.metrics.token_bucket import TokenBucket
from triokafka.named_tuple import NamedTuple
from triokafka.quota_precedence import effective_quota

_MANY: Final = 1000
"""Number of clients above which the usage of those that were quiet for long is removed."""
_LONGEST_MS: Final = 2**31 - 1
"""Maximum throttle time in a response."""
_LONGEST_DEBT: Final = 10
"""Limit of the debt, as a multiple of the burst: clients wait for what others used, but not for hours."""


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


class QuotaReading(NamedTuple):
    """The usage of a quota: the user and the client id that share it (empty for any), the rate, the throttle time."""

    kind: QuotaKind
    user: str
    client_id: str
    rate: float
    throttle_seconds: float


class QuotaUsage:
    """Amounts that clients used of one quota.

    Args:
        config: the windows of the quota. All windows but one are the burst: the amount that an idle client may use at
            once, without a throttle time.
        limit: the quota, per second; it may change.
    """

    __slots__ = ("_bucket", "_burst", "_config", "_rate", "_throttled")

    def __init__(self, config: MetricConfig, limit: float) -> None:
        self._config = config
        self._rate = QuotaRate(config)
        self._throttled = Avg()
        self._bucket = TokenBucket()
        windows = max(config.samples - 1, 1)
        self._burst = MetricConfig(
            quota=Quota.upper_bound(limit), samples=windows, window_seconds=config.window_seconds
        )

    def set_limit(self, limit: float) -> None:
        """Change the quota. Keep the measured rate, and drop the debt under the old quota."""
        if self._limit != limit:
            self._burst = self._burst.with_quota(Quota.upper_bound(limit))
            self._bucket = TokenBucket()

    def record(self, amount: float, now: float) -> float:
        """Count an amount and return the throttle time in seconds; 0 below the quota."""
        limit = self._limit
        self._rate.record(amount, now)
        self._bucket.update(self._burst, 1, amount, amount, amount, now)
        tokens = self._bucket.measure(self._burst, now)
        lowest = -_LONGEST_DEBT * self._burst.samples * self._burst.window_seconds * limit
        if tokens < lowest:
            back = tokens - lowest
            self._bucket.update(self._burst, 1, back, back, back, now)
            tokens = lowest
        seconds = max(self._rate.throttle_seconds(limit, now), -tokens / limit, 0.0)
        if seconds:
            self._throttled.update(self._config, 1, seconds, seconds, seconds, now)
        return seconds

    def take_back(self, amount: float, now: float) -> None:
        """Undo a counted amount."""
        self._rate.record(-amount, now)
        self._bucket.update(self._burst, 1, -amount, -amount, -amount, now)

    def rate(self, now: float) -> float:
        """Return the rate per second."""
        return self._rate.measure(now)

    def throttle_time(self, now: float) -> float:
        """Return the average of the throttle times within the windows, in seconds; 0 without any."""
        average = self._throttled.measure(self._config, now)
        return 0.0 if math.isnan(average) else average

    def is_over(self, now: float) -> bool:
        """Whether the counted usage no longer matters."""
        full = self._burst.samples * self._burst.window_seconds * self._limit
        return self._rate.is_over(now) and self._bucket.measure(self._burst, now) >= full

    @property
    def _limit(self) -> float:
        assert self._burst.quota is not None
        return self._burst.quota.bound


class ClientQuotas:
    """The quotas of one broker.

    Args:
        samples: number of windows of a rate (``quota.window.num``).
        window_seconds: length of a window (``quota.window.size.seconds``).
        mutation_burst_seconds: time for which a client may accumulate unused partition mutations
            (``controller.quota.window.num`` times ``controller.quota.window.size.seconds``).
    """

    def __init__(self, samples: int = 11, window_seconds: float = 1, *, mutation_burst_seconds: float = 11) -> None:
        self._config = MetricConfig(samples=samples, window_seconds=window_seconds)
        self._mutation_config = MetricConfig(samples=1, window_seconds=mutation_burst_seconds)
        self._buckets: dict[tuple[QuotaKind, str, str], tuple[TokenBucket, MetricConfig]] = {}
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self.limited: frozenset[QuotaKind] = frozenset()
        self._found: dict[tuple[QuotaKind, str, str], tuple[float, tuple[QuotaKind, str, str]] | None] = {}
        self._usage: dict[tuple[QuotaKind, str, str], QuotaUsage] = {}
        # The sizes at which clients without recent usage are forgotten: when twice as many are known as after the last
        # time, so that a new client does not cost a search through all others.
        self._most_buckets = self._most_usages = _MANY

    def __len__(self) -> int:
        return len(self._usage)

    def configure(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace the quotas and keep the usage."""
        self._quotas = quotas
        names: set[str] = set()
        for values in quotas.values():
            names.update(values)
        self.limited = frozenset(kind for kind in QuotaKind if kind.value in names)
        self._found.clear()

    def limits(self, kind: QuotaKind) -> bool:
        """Whether any client has a quota of this kind."""
        return bool(self.limited) and kind in self.limited

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> float | None:
        """Return the quota that applies to a client, or None."""
        found = self._find(kind, user, client_id)
        return None if found is None else found[0]

    def most_at_once(self, user: str, client_id: str) -> float:
        """Return the bytes of the largest fetch that alone does not exceed the client's quota."""
        limit = self.limit(QuotaKind.FETCH, user, client_id)
        return float("inf") if limit is None else limit * (self._config.samples - 1) * self._config.window_seconds

    def record(self, kind: QuotaKind, user: str, client_id: str, amount: float, now: float) -> int:
        """Record an amount for a client; return its throttle time in ms, 0 for none.

        After the throttle time the rate equals the quota. For ``request_percentage`` it is at most one window.
        """
        found = self._find(kind, user, client_id)
        if found is None:
            return 0
        limit, key = found
        delay = self._used(key, limit, now).record(amount, now)
        if kind is QuotaKind.REQUEST:
            delay = min(delay, self._config.window_seconds)
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
        bucket, config = self._bucket(key, rate, now)
        missing = -bucket.measure(config, now)
        if strict and missing > 0:
            return False, _milliseconds(missing / rate)
        bucket.update(config, 1, partitions, partitions, partitions, now)
        return True, 0 if strict else _milliseconds(max(missing + partitions, 0.0) / rate)

    def usages(self, now: float) -> Iterator[QuotaReading]:
        """Yield the usage of each quota that clients have used, for metrics."""
        for (kind, user, client_id), used in list(self._usage.items()):
            yield QuotaReading(kind, user, client_id, used.rate(now), used.throttle_time(now))

    def take_back(self, kind: QuotaKind, user: str, client_id: str, amount: float, now: float) -> None:
        """Undo a recorded amount after the client got an empty response instead."""
        found = self._find(kind, user, client_id)
        if found is not None and found[1] in self._usage:
            self._usage[found[1]].take_back(amount, now)

    def _bucket(self, key: tuple[QuotaKind, str, str], rate: float, now: float) -> tuple[TokenBucket, MetricConfig]:
        """Return the token bucket of clients, full if it is new, and its configuration with the present quota."""
        bucket, config = self._buckets.get(key, (None, self._mutation_config))
        if bucket is None and len(self._buckets) >= self._most_buckets:
            self._buckets = {k: kept for k, kept in self._buckets.items() if not _is_full(*kept, now)}
            self._most_buckets = max(_MANY, 2 * len(self._buckets))
        if bucket is None or config.quota is None or config.quota.bound != rate:
            config = config.with_quota(Quota.upper_bound(rate))
            bucket = bucket or TokenBucket()
            self._buckets[key] = bucket, config
        return bucket, config

    def _used(self, key: tuple[QuotaKind, str, str], limit: float, now: float) -> QuotaUsage:
        usage = self._usage.get(key)
        if usage is None:
            if len(self._usage) >= self._most_usages:
                self._usage = {known: used for known, used in self._usage.items() if not used.is_over(now)}
                self._most_usages = max(_MANY, 2 * len(self._usage))
            usage = self._usage[key] = QuotaUsage(self._config, limit)
        else:
            usage.set_limit(limit)
        return usage

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


def _is_full(bucket: TokenBucket, config: MetricConfig, now: float) -> bool:
    return config.quota is None or bucket.measure(config, now) >= config.window_seconds * config.quota.bound


def _milliseconds(seconds: float) -> int:
    return round(min(seconds * 1000, _LONGEST_MS))
