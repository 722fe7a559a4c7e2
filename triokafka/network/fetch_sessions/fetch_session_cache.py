"""Fetch sessions (KIP-227): the broker stores a client's partitions, so that both sides send only differences. Pure.

`FetchSessionCache.context_for` turns the session part of a request into a context, which has the partitions to read
(`FetchContext.partitions`) and makes the response (`FetchContext.respond`). Topics are identified as in the request: by
name up to version 12, by id from 13; a session does not change from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic

from triokafka import errors
from triokafka.network.fetch_sessions.fetch_context import (
    Answered,
    FetchContext,
    IncrementalContext,
    RefusedContext,
)
from triokafka.network.fetch_sessions.fetch_session import (
    MAX_EPOCH,
    NO_SESSION,
    CachedPartition,
    FetchSession,
    MakeRest,
    Outcome,
    PartitionKey,
    WantedPartition,
)
from triokafka.world import World

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EVICTION_SECONDS: Final = 120.0
_REFUSED_SECONDS: Final = 1.0
_PREPARED_AT_ONCE: Final = 500


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
        self._prepared: dict[PartitionKey, CachedPartition] | None = None

    def prepare(self, outcomes: Mapping[PartitionKey, Outcome]) -> Iterator[None]:
        prepared: dict[PartitionKey, CachedPartition] = {}
        for number, wanted in enumerate(self.partitions, 1):
            cached = prepared[wanted.key] = CachedPartition(wanted)
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
            return RefusedContext(errors.FetchSessionIdNotFoundError)
        if session.epoch != epoch:
            return RefusedContext(errors.InvalidFetchSessionEpochError)
        if session.by_topic_id != by_topic_id:
            return RefusedContext(errors.FetchSessionTopicIdError)
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
            return RefusedContext(errors.FetchSessionIdNotFoundError)
        session.advance()
        session.last_used_at = now
        self._sessions[session_id] = self._sessions.pop(session_id)
        return IncrementalContext(session)

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
            session_id = self._random.randint(1, MAX_EPOCH)
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
