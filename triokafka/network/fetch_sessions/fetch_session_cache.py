"""Fetch sessions (KIP-227): the broker stores a client's partitions, so that both sides send only differences. Pure.

`FetchSessionCache.context_for` turns the session part of a request into a context, which has the partitions to read
(`partitions`) and makes the response (`respond`). Topics are identified as in the request: by name up to version 12,
by id from 13; a session does not change from one to the other.

A fetch costs as much as the partitions that may have changed since the last one, not as much as the session has. A
partition *rests* in a session while reading it would find what the last response said, and no records. The caller of
`respond` decides whether it does, and makes a `Rest`, which watches the partition and wakes it in the session with its
first change. A request that changes a partition wakes it too, and one whose client reads in another way (``reader``)
wakes all of them. Partitions that rest are neither read nor compared, so the response is the same as if they were.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

from triokafka import errors
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import World

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
NO_SESSION: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
EVICTION_SECONDS: Final = 120.0
_REFUSED_SECONDS: Final = 1.0
_PREPARED_AT_ONCE: Final = 500

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


class _Cached:
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
        self.partitions: dict[PartitionKey, _Cached] = {}
        self.reader: Hashable = None
        self.woken: Callable[[TopicPartition, WantedPartition], None] | None = None
        self.wakes = 0
        """How many times a partition has woken."""
        self._awake: dict[PartitionKey, _Cached] = {}
        self._in_order = True  # whether ``_awake`` is
        self._places = 0

    def advance(self) -> None:
        """Increment the expected epoch after an accepted request; it is never 0 or negative."""
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

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

    def begin_with(self, partitions: dict[PartitionKey, _Cached]) -> None:
        """Take the first partitions of the session, in the order of their places."""
        self.partitions = partitions
        self._awake = dict(partitions)
        self._places = len(partitions)

    def want(self, wanted: WantedPartition) -> _Cached:
        """Add a partition at the end, or change its fetch position."""
        key = wanted.key
        cached = self.partitions.get(key)
        if cached is None:
            cached = self.partitions[key] = self._awake[key] = _Cached(wanted)
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

    def _changed(self, key: PartitionKey, cached: _Cached) -> None:
        rest = cached.rest
        self._wake(key, cached)
        if rest is not None and self.woken is not None:
            self.woken(rest.topic_partition, cached.wanted)

    def _wake(self, key: PartitionKey, cached: _Cached) -> None:
        if cached.rest is not None:
            self._end_rest(cached)
            self._awake[key] = cached
            self._in_order = False
            self.wakes += 1

    def _end_rest(self, cached: _Cached) -> None:
        rest, cached.rest = cached.rest, None
        if rest is not None:
            rest.end(self.last_used_at)

    def _next_place(self) -> int:
        self._places += 1
        return self._places


@dataclass(slots=True)
class Answered(Generic[Outcome]):
    """The session part of a response: session id, an error of the whole request, and the included partitions."""

    session_id: int
    error_code: int
    outcomes: Mapping[PartitionKey, Outcome]


class FetchContext(Generic[Outcome]):
    """One request: ``partitions`` are to be read. Without a session, the response includes all of them."""

    def __init__(self, partitions: Iterable[WantedPartition]) -> None:
        self._partitions: list[WantedPartition] = list(partitions)

    @property
    def partitions(self) -> list[WantedPartition]:
        """The partitions to read, in order. Another list when some have woken: they are to be read too."""
        return self._partitions

    @property
    def resting(self) -> int:
        """The number of partitions of the session that need not be read, because they rest."""
        return 0

    def watch(self, woken: Callable[[TopicPartition, WantedPartition], None] | None) -> None:
        """Call ``woken`` with every partition that wakes, while the fetch waits; None to end that."""

    def wake_all(self) -> None:
        """Wake all partitions of the session: they are to be read with this request."""

    def prepare(self, outcomes: Mapping[PartitionKey, Outcome]) -> Iterator[None]:
        """Do the long part of `respond` ahead, for very many partitions; yields between two steps."""
        return iter(())

    def respond(
        self,
        outcomes: Mapping[PartitionKey, Outcome],
        now: Callable[[], float],
        make_rest: MakeRest[Outcome] | None = None,
    ) -> Answered[Outcome]:
        """Return the response for the results of reading `partitions` (in their order).

        Args:
            now: the monotonic clock in seconds.
            make_rest: decides which of the partitions rest from now on; None for none.
        """
        return Answered(NO_SESSION, 0, outcomes)

    def throttle(self) -> Answered[Outcome]:
        """Return the response, instead of `respond`, for a client over its quota; nothing was read."""
        return Answered(NO_SESSION, 0, {})


class _RefusedContext(FetchContext[Outcome]):
    """A request with an invalid session part: nothing is read."""

    def __init__(self, error: type[errors.BrokerResponseError]) -> None:
        super().__init__(())
        self._error = error

    def respond(
        self,
        outcomes: Mapping[PartitionKey, Outcome],
        now: Callable[[], float],
        make_rest: MakeRest[Outcome] | None = None,
    ) -> Answered[Outcome]:
        return Answered(NO_SESSION, self._error.code, {})

    def throttle(self) -> Answered[Outcome]:
        return Answered(NO_SESSION, self._error.code, {})


class _FullContext(FetchContext[Outcome]):
    """A full request for a new session, which is created with the response."""

    def __init__(
        self,
        cache: FetchSessionCache[Outcome],
        partitions: Iterable[WantedPartition],
        *,
        privileged: bool,
        by_topic_id: bool,
    ) -> None:
        super().__init__(partitions)
        self._cache = cache
        self._privileged = privileged
        self._by_topic_id = by_topic_id
        self._prepared: dict[PartitionKey, _Cached] | None = None

    def prepare(self, outcomes: Mapping[PartitionKey, Outcome]) -> Iterator[None]:
        prepared: dict[PartitionKey, _Cached] = {}
        for number, wanted in enumerate(self.partitions, 1):
            cached = prepared[wanted.key] = _Cached(wanted)
            cached.place = number
            outcome = outcomes.get(wanted.key)
            if outcome is not None:
                cached.told(outcome)
            if number % _PREPARED_AT_ONCE == 0:
                yield
        self._prepared = prepared

    def respond(
        self,
        outcomes: Mapping[PartitionKey, Outcome],
        now: Callable[[], float],
        make_rest: MakeRest[Outcome] | None = None,
    ) -> Answered[Outcome]:
        session = self._cache.try_create(
            size=len(self.partitions), privileged=self._privileged, by_topic_id=self._by_topic_id, now=now()
        )
        if session is None:
            return Answered(NO_SESSION, 0, outcomes)
        if self._prepared is None:
            for _ in self.prepare(outcomes):
                pass
        session.begin_with(self._prepared or {})
        self._cache.cached_partitions += len(session.partitions)
        return Answered(session.id, 0, outcomes)


class _IncrementalContext(FetchContext[Outcome]):
    """An incremental request: the partitions of the session that do not rest are read, and changed ones included."""

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.awake())
        self._session = session
        self._epoch = session.epoch
        self._wakes = session.wakes
        self._woken: Callable[[TopicPartition, WantedPartition], None] | None = None

    @property
    def partitions(self) -> list[WantedPartition]:
        session = self._session
        if self._wakes != session.wakes:
            self._wakes = session.wakes
            self._partitions = session.awake()
        return self._partitions

    @property
    def resting(self) -> int:
        return self._session.resting

    def watch(self, woken: Callable[[TopicPartition, WantedPartition], None] | None) -> None:
        session = self._session
        if woken is not None:
            session.woken = self._woken = woken
        elif session.woken is self._woken:  # a later fetch of the session may wait already
            session.woken = None

    def wake_all(self) -> None:
        self._session.wake_all()

    def respond(
        self,
        outcomes: Mapping[PartitionKey, Outcome],
        now: Callable[[], float],
        make_rest: MakeRest[Outcome] | None = None,
    ) -> Answered[Outcome]:
        session = self._session
        if session.epoch != self._epoch:  # a later request of the session was processed first
            return Answered(NO_SESSION, errors.InvalidFetchSessionEpochError.code, {})
        news: dict[PartitionKey, Outcome] = {}
        for key, outcome in outcomes.items():
            cached = session.partitions.get(key)
            if cached is None:
                continue
            if cached.news(outcome):
                cached.told(outcome)
                news[key] = outcome
                if len(outcome.records):  # under a byte limit, the others come first next time
                    session.move_to_end(key)
            elif make_rest is not None:
                session.rest(key, outcome, make_rest)
        return Answered(session.id, 0, news)

    def throttle(self) -> Answered[Outcome]:
        # The epoch is used, and the stored offsets stay: the next response includes the changes.
        return Answered(self._session.id, 0, {})


class FetchSessionCache(Generic[Outcome]):
    """The sessions of one broker.

    Args:
        slots: maximum number of sessions (``max.incremental.fetch.session.cache.slots``).
        world: source of random session ids.
        max_partitions: maximum number of partitions in all sessions together. Those of followers count, but the limit
            does not hold for them.
    """

    def __init__(self, slots: int, world: World, *, max_partitions: int = 500_000) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._random = world.random
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._refused: dict[bool, tuple[float, tuple[bool, int, int] | None]] = {}
        self.evictions = 0
        self.cached_partitions = 0
        """The number of partitions in all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def context_for(
        self,
        *,
        session_id: int,
        epoch: int,
        wanted: Iterable[WantedPartition],
        forgotten: Iterable[PartitionKey],
        privileged: bool,
        by_topic_id: bool,
        now: float,
        reader: Hashable = None,
    ) -> FetchContext[Outcome]:
        """Return the context of one request.

        Args:
            privileged: the client is a follower.
            now: the monotonic clock in seconds.
            reader: what the result of reading a partition depends on, apart from the partition. Partitions that rest
                wake when it differs from that of the last request. None: all partitions are to be read.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id in self._sessions:
                self._remove(self._sessions[session_id])
            if epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            return _FullContext(self, wanted, privileged=privileged, by_topic_id=by_topic_id)
        session = self._sessions.get(session_id)
        if session is None:
            return _RefusedContext(errors.FetchSessionIdNotFoundError)
        if session.epoch != epoch:
            return _RefusedContext(errors.InvalidFetchSessionEpochError)
        if session.by_topic_id != by_topic_id:
            return _RefusedContext(errors.FetchSessionTopicIdError)
        before = len(session.partitions)
        if reader is None or reader != session.reader:
            session.wake_all()
            session.reader = reader
        for partition in wanted:
            session.want(partition)
        for key in forgotten:
            session.forget(key)
        self.cached_partitions += len(session.partitions) - before
        if not session.partitions:
            self._remove(session)
            return FetchContext(())
        if len(session.partitions) > before and not self._fits(session.privileged):
            self._evict(session)
            return _RefusedContext(errors.FetchSessionIdNotFoundError)
        session.advance()
        session.last_used_at = now
        self._sessions[session_id] = self._sessions.pop(session_id)
        return _IncrementalContext(session)

    def try_create(self, *, size: int, privileged: bool, by_topic_id: bool, now: float) -> FetchSession | None:
        """Create a session for ``size`` partitions if there is room, or an older one can be evicted."""
        if not size or not self._make_room(size, privileged, now):
            return None
        while not self._fits(privileged, size):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used_at <= EVICTION_SECONDS:
                return None
            self._evict(oldest)
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randint(1, _MAX_EPOCH)
        session = FetchSession(session_id, privileged=privileged, by_topic_id=by_topic_id, now=now)
        self._sessions[session_id] = session
        return session

    def _make_room(self, size: int, privileged: bool, now: float) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now - oldest.last_used_at > EVICTION_SECONDS:
            self._evict(oldest)
            return True
        # A client without a session requests one with every fetch: do not repeat the search for each. A new client
        # counts as id 0, so with equal size the existing session stays.
        cost = (privileged, size, 0)
        until, least = self._refused.get(privileged, (now, None))
        if now < until and (least is None or cost <= least):
            return False
        # A follower may evict any consumer; a consumer only evicts one whose session is old enough.
        candidates = [
            session
            for session in self._sessions.values()
            if now - session.created_at > EVICTION_SECONDS or (privileged and not session.privileged)
        ]
        candidates = [session for session in candidates if privileged or not session.privileged]
        cheapest = min(candidates, key=_cost, default=None)
        if cheapest is None or _cost(cheapest) >= cost:
            self._refused[privileged] = (now + _REFUSED_SECONDS, None if cheapest is None else _cost(cheapest))
            return False
        self._evict(cheapest)
        return True

    def _fits(self, privileged: bool, more: int = 0) -> bool:
        return privileged or self.cached_partitions + more <= self._max_partitions

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        session.close()
        self.cached_partitions -= len(session.partitions)

    def _evict(self, session: FetchSession) -> None:
        self._remove(session)
        self._refused.clear()
        self.evictions += 1


def _cost(session: FetchSession) -> tuple[bool, int, int]:
    return (session.privileged, len(session.partitions), session.id)
