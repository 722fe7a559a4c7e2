"""A fetch session at the broker (KIP-227): the partitions of one client, some of which rest. Pure.

A fetch costs as much as the partitions that may have changed since the last one, not as much as the session has. A
partition *rests* in a session while reading it would find what the last response said, and no records. The caller of
`FetchContext.respond` decides whether it does, and makes a `Rest`, which watches the partition and wakes it in the
session with its first change. A request that changes a partition wakes it too, and one whose client reads in another
way (``reader``) wakes all of them. Partitions that rest are neither read nor compared, so the response is the same as
if they were.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sized
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition

NO_SESSION: Final = 0
MAX_EPOCH: Final = 2**31 - 1

TopicKey: TypeAlias = str | UUID
PartitionKey: TypeAlias = tuple[TopicKey, int]


class WantedPartition(NamedTuple):
    """One partition in a request or its session."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1

    @property
    def key(self) -> PartitionKey:
        """The partition's key in sessions and responses."""
        return (self.topic, self.partition)


class ReadPartition(Protocol):
    """The result of reading one partition: the part that a session compares with the previous result."""

    @property
    def error_code(self) -> int:
        """The error code; 0 for none."""

    @property
    def high_watermark(self) -> int:
        """The high watermark; -1 with an error."""

    @property
    def log_start_offset(self) -> int:
        """The log start offset; -1 with an error."""

    @property
    def records(self) -> Sized:
        """The record batches."""

    @property
    def diverging_epoch(self) -> object | None:
        """The epoch and offset where the fetcher's log diverges from the leader's (KIP-595); None if it does not."""

    @property
    def preferred_read_replica(self) -> int:
        """The broker that the fetcher should read from instead; -1 for none (KIP-392)."""


Outcome = TypeVar("Outcome", bound=ReadPartition)


class Rest(Protocol):
    """The watch of a partition that rests in a session."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, by the name of its topic."""

    def end(self, fetched_at: float) -> None:
        """End the watch. The partition took part in all fetches of the session until the last one, at ``fetched_at``
        (seconds on the monotonic clock).
        """


MakeRest: TypeAlias = Callable[[WantedPartition, Outcome, Callable[[], None]], Rest | None]
"""Begins to watch a partition whose outcome is not in the response if it rests, and returns the watch; None if the
partition has to be read again. The last argument wakes the partition."""


class CachedPartition:
    """One partition of a session: its fetch position, the offsets of the last response, and its place in the order."""

    __slots__ = ("high_watermark", "log_start_offset", "place", "rest", "wanted")

    def __init__(self, wanted: WantedPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1
        self.place = 0
        self.rest: Rest | None = None

    def news(self, outcome: ReadPartition) -> bool:
        """Return whether the response must include the partition."""
        return bool(
            len(outcome.records)
            or outcome.error_code
            or outcome.high_watermark != self.high_watermark
            or outcome.log_start_offset != self.log_start_offset
            or outcome.diverging_epoch is not None
            or outcome.preferred_read_replica >= 0
        )

    def told(self, outcome: ReadPartition) -> None:
        """Note that the client receives ``outcome``. After an error, the next success is always included."""
        self.high_watermark = -1 if outcome.error_code else outcome.high_watermark
        self.log_start_offset = outcome.log_start_offset


class FetchSession:
    """The partitions that one client fetches. The next incremental request must have ``epoch``.

    The partitions have an order, in which they are read; `move_to_end` changes it. ``reader`` describes how the client
    reads: partitions only rest for one way. ``woken`` is called with each partition that wakes while a fetch waits.
    """

    __slots__ = (
        "_awake",
        "_in_order",
        "_places",
        "by_topic_id",
        "created_at",
        "epoch",
        "id",
        "last_used_at",
        "partitions",
        "privileged",
        "reader",
        "wakes",
        "woken",
    )

    def __init__(self, session_id: int, *, privileged: bool, by_topic_id: bool, now: float) -> None:
        self.id = session_id
        self.privileged = privileged
        self.by_topic_id = by_topic_id
        self.created_at = now
        self.last_used_at = now
        self.epoch = 1
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.reader: Hashable = None
        self.woken: Callable[[TopicPartition, WantedPartition], None] | None = None
        self.wakes = 0
        """How many times a partition has woken."""
        self._awake: dict[PartitionKey, CachedPartition] = {}
        self._in_order = True  # whether ``_awake`` is
        self._places = 0

    def advance(self) -> None:
        """Increment the expected epoch after an accepted request; it is never 0 or negative."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    @property
    def resting(self) -> int:
        """The number of partitions that rest."""
        return len(self.partitions) - len(self._awake)

    def awake(self) -> list[WantedPartition]:
        """Return the partitions that do not rest, in order."""
        if not self._in_order:
            self._awake = dict(sorted(self._awake.items(), key=lambda item: item[1].place))
            self._in_order = True
        return [cached.wanted for cached in self._awake.values()]

    def begin_with(self, partitions: dict[PartitionKey, CachedPartition]) -> None:
        """Take the first partitions of the session, in the order of their places."""
        self.partitions = partitions
        self._awake = dict(partitions)
        self._places = len(partitions)

    def want(self, wanted: WantedPartition) -> CachedPartition:
        """Add a partition at the end, or change its fetch position."""
        key = wanted.key
        cached = self.partitions.get(key)
        if cached is None:
            cached = self.partitions[key] = self._awake[key] = CachedPartition(wanted)
            cached.place = self._next_place()
        else:
            self._wake(key, cached)
            cached.wanted = wanted
        return cached

    def forget(self, key: PartitionKey) -> None:
        """Remove a partition if the session has it."""
        cached = self.partitions.pop(key, None)
        if cached is not None:
            self._awake.pop(key, None)
            self._end_rest(cached)

    def move_to_end(self, key: PartitionKey) -> None:
        """Read a partition, which does not rest, after all others from now on."""
        self._awake[key] = cached = self._awake.pop(key)
        cached.place = self._next_place()

    def rest(self, key: PartitionKey, outcome: Outcome, make_rest: MakeRest[Outcome]) -> None:
        """Let a partition, which does not rest, rest if it can. ``outcome``: as the client knows it."""
        cached = self._awake[key]
        cached.rest = make_rest(cached.wanted, outcome, partial(self._changed, key, cached))
        if cached.rest is not None:
            del self._awake[key]

    def wake_all(self) -> None:
        """Wake all partitions."""
        for key, cached in self.partitions.items():
            self._wake(key, cached)

    def close(self) -> None:
        """End all watches: the session is over."""
        for cached in self.partitions.values():
            self._end_rest(cached)

    def _changed(self, key: PartitionKey, cached: CachedPartition) -> None:
        rest = cached.rest
        self._wake(key, cached)
        if rest is not None and self.woken is not None:
            self.woken(rest.topic_partition, cached.wanted)

    def _wake(self, key: PartitionKey, cached: CachedPartition) -> None:
        if cached.rest is not None:
            self._end_rest(cached)
            self._awake[key] = cached
            self._in_order = False
            self.wakes += 1

    def _end_rest(self, cached: CachedPartition) -> None:
        rest, cached.rest = cached.rest, None
        if rest is not None:
            rest.end(self.last_used_at)

    def _next_place(self) -> int:
        self._places += 1
        return self._places
