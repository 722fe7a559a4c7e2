"""Client telemetry of one broker (KIP-714): which metrics each client pushes, whether a push may come now, and the
pushed values.

Pure. Instances are soft state of this broker. Their number, the series of each and the memory of all are bounded; the
least recently used instance is removed for a new one. A subscription is a resource of type client metrics in the
metadata, with ``metrics``, ``interval.ms`` and ``match``.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.metadata.client_metrics_match import matches
from triokafka.broker_stub.metadata.image import ConfigResource
from triokafka.metrics.otlp import Point
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.configuration import ConfigResourceType

ALL_METRICS: Final = "*"
DEFAULT_INTERVAL_MS: Final = 300_000
MAX_SUBSCRIPTIONS: Final = 1_000
"""The most subscriptions that apply; the others, by name, have no effect."""
_MAX_KEY_CHARACTERS: Final = 2_048
"""A series with a longer name and attributes is not kept."""
_SERIES_BYTES: Final = 400
_MAX_SOFTWARE_CHARACTERS: Final = 255
"""Longer names and versions of software are cut."""
_NIL: Final = UUID(int=0)
_SOFTWARE_UNKNOWN: Final = ("unknown", "unknown")


class TelemetryLimits(NamedTuple):
    """The number of clients, the series of one client, and the estimated memory of all series."""

    clients: int = 16_384
    series: int = 2_000
    bytes: int = 32 << 20


_DEFAULT_LIMITS: Final = TelemetryLimits()


class ClientFacts(NamedTuple):
    """The facts about a client that the ``match`` of a subscription may name."""

    client_instance_id: UUID
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str

    def matches(self, patterns: Mapping[str, str]) -> bool:
        """Whether every pattern matches the whole fact of its name."""
        facts = {**self._asdict(), "client_instance_id": str(self.client_instance_id)}
        return all(matches(pattern, facts.get(key, "")) for key, pattern in patterns.items())


class Subscription(NamedTuple):
    """The sum of the subscriptions that match a client."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def parse_match(text: str) -> dict[str, str]:
    """Return the patterns of ``match`` by name."""
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in text.split(",")) if value}


def subscription_for(facts: ClientFacts, configs: Iterable[Mapping[str, str]]) -> Subscription:
    """Return the subscription of a client: the metrics of all matching resources, at the shortest of their
    intervals."""
    metrics: set[str] = set()
    intervals: list[int] = []
    for config in configs:
        if not facts.matches(parse_match(config.get("match", ""))):
            continue
        wanted = {name.strip() for name in config.get("metrics", "").split(",") if name.strip()}
        if wanted:
            metrics |= wanted
            intervals.append(int(config.get("interval.ms", DEFAULT_INTERVAL_MS)))
    named = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    interval = min(intervals, default=DEFAULT_INTERVAL_MS)
    number = zlib.crc32(f"{named}{interval}".encode())
    return Subscription(number - 2**32 if number >= 2**31 else number, named, interval)


class ClientInstance:
    """One client. Times are seconds; -infinity stands for never. ``bytes`` estimates the memory of its ``series``."""

    def __init__(self, facts: ClientFacts, subscription: Subscription) -> None:
        self.facts = facts
        self.subscription = subscription
        self.got_at = self.pushed_at = float("-inf")
        self.may_ask_again = False
        """Whether the last push was refused with an error after which the client asks for a new subscription."""
        self.terminating = False
        self.series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self.bytes = 0

    def take(self, points: Iterable[Point], *, max_series: int) -> None:
        """Keep the values of a push, of at most so many series; deltas are added up."""
        for point in points:
            key = (point.name, tuple(sorted(point.attributes.items())))
            before = self.series.get(key)
            if before is None:
                length = len(point.name) + sum(len(name) + len(text) for name, text in key[1])
                if len(self.series) >= max_series or length > _MAX_KEY_CHARACTERS:
                    continue
                self.bytes += _SERIES_BYTES + length
            self.series[key] = (before or 0.0) + point.value if point.delta and point.monotonic else point.value


class ClientTelemetry:
    """The clients of one broker that push metrics."""

    def __init__(self, limits: TelemetryLimits = _DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self.unknown_subscriptions = 0
        self.bytes = 0
        self._software: OrderedDict[tuple[str, int], tuple[str, str]] = OrderedDict()
        self._read_from: Mapping[ConfigResource, Mapping[str, str]] | None = None
        self._subscriptions: Sequence[Mapping[str, str]] = ()

    def subscriptions_in(self, configs: Mapping[ConfigResource, Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
        """Return the configurations of the first `MAX_SUBSCRIPTIONS` subscriptions, in the order of their names.

        Each request of a client compares the client with all of them.
        """
        if self._read_from is not configs:
            names = sorted(name for kind, name in configs if kind == ConfigResourceType.CLIENT_METRICS)
            kind = int(ConfigResourceType.CLIENT_METRICS)
            self._subscriptions = [configs[kind, name] for name in names[:MAX_SUBSCRIPTIONS]]
            self._read_from = configs
        return self._subscriptions

    def note_software(self, peer: tuple[str, int], name: str, version: str) -> None:
        """Keep the software that a connection named in ApiVersions."""
        self._software[peer] = (name[:_MAX_SOFTWARE_CHARACTERS], version[:_MAX_SOFTWARE_CHARACTERS])
        if len(self._software) > self._limits.clients:
            self._software.popitem(last=False)

    def software_of(self, peer: tuple[str, int]) -> tuple[str, str]:
        """Return name and version of a connection's software."""
        return self._software.get(peer, _SOFTWARE_UNKNOWN)

    def subscribe(self, facts: ClientFacts, configs: Iterable[Mapping[str, str]], now: float) -> Subscription:
        """Return the subscription of a client.

        Raises:
            ThrottlingQuotaExceededError: the client asks before its next push is due.
        """
        instance = self._instance(facts, configs)
        elapsed = (now - max(instance.got_at, instance.pushed_at)) * 1000
        if elapsed < instance.subscription.interval_ms and not instance.may_ask_again:
            raise errors.ThrottlingQuotaExceededError(
                "the client asks for its subscription before the next push is due"
            )
        instance.may_ask_again = False
        instance.got_at = now
        return instance.subscription

    def admit(
        self,
        facts: ClientFacts,
        configs: Iterable[Mapping[str, str]],
        now: float,
        *,
        subscription_id: int,
        terminating: bool,
        codec: int,
        accepted_codecs: Iterable[int],
        size: int,
        max_bytes: int,
    ) -> ClientInstance:
        """Return the instance whose push may be read now.

        Raises:
            InvalidRequestError: the client has no id, or has sent its last push.
            ThrottlingQuotaExceededError: it is too early.
            UnknownSubscriptionIdError: the subscription has changed.
            UnsupportedCompressionTypeError, TelemetryTooLargeError: the codec or the size is refused.
        """
        if facts.client_instance_id == _NIL:
            raise errors.InvalidRequestError("a push needs a client instance id")
        instance = self._instance(facts, configs)
        if instance.terminating:
            raise errors.InvalidRequestError("the client has sent its last push")
        due = instance.got_at > instance.pushed_at or (
            (now - instance.pushed_at) * 1000 >= instance.subscription.interval_ms
        )
        if not due and not terminating:
            raise errors.ThrottlingQuotaExceededError(
                "the client pushes before the interval of its subscription is over"
            )
        instance.pushed_at = now
        instance.terminating = terminating
        if subscription_id != instance.subscription.subscription_id:
            self.unknown_subscriptions += 1
            instance.may_ask_again = True
            raise errors.UnknownSubscriptionIdError("the subscription has changed")
        if codec and codec not in accepted_codecs:
            instance.may_ask_again = True
            raise errors.UnsupportedCompressionTypeError(f"codec {codec} is not accepted")
        if size > max_bytes:
            raise errors.TelemetryTooLargeError(f"{size} bytes of metrics; telemetry.max.bytes is {max_bytes}")
        return instance

    def take(self, instance: ClientInstance, points: Iterable[Point]) -> None:
        """Keep the values of an admitted push. Values of the clients that pushed longest ago may have to go."""
        if self.instances.get(instance.facts.client_instance_id) is not instance:
            return  # it has made room for others
        before = instance.bytes
        instance.take(points, max_series=self._limits.series)
        self.bytes += instance.bytes - before
        while self.bytes > self._limits.bytes and len(self.instances) > 1:
            self._evict()

    def _evict(self) -> None:
        _, evicted = self.instances.popitem(last=False)
        self.bytes -= evicted.bytes

    def _instance(self, facts: ClientFacts, configs: Iterable[Mapping[str, str]]) -> ClientInstance:
        subscription = subscription_for(facts, configs)
        instance = self.instances.get(facts.client_instance_id)
        if instance is None:
            instance = self.instances[facts.client_instance_id] = ClientInstance(facts, subscription)
            if len(self.instances) > self._limits.clients:
                self._evict()
        elif instance.subscription != subscription:
            instance.subscription = subscription
        self.instances.move_to_end(facts.client_instance_id)
        return instance


def malformed(error: Exception) -> errors.InvalidRecordError:
    """Return the error for metrics that cannot be read."""
    return errors.InvalidRecordError(f"the pushed metrics cannot be read: {error}")
