"""The session part of one Fetch request (KIP-227), at the broker: the partitions to read, and the response. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic

from triokafka import errors
from triokafka.network.fetch_sessions.fetch_session import (
    NO_SESSION,
    FetchSession,
    MakeRest,
    Outcome,
    PartitionKey,
    WantedPartition,
)
from triokafka.structs import TopicPartition


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


class RefusedContext(FetchContext[Outcome]):
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


class IncrementalContext(FetchContext[Outcome]):
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
