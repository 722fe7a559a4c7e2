"""Fetch sessions: creation, incremental responses, eviction."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from uuid import UUID

import pytest

from triokafka import errors
from triokafka.broker_stub.replica.read_result import EpochEnd, ReadOutcome
from triokafka.network.fetch_sessions import fetch_session_cache
from triokafka.network.fetch_sessions.fetch_context import Answered, FetchContext
from triokafka.network.fetch_sessions.fetch_session import FetchSession, PartitionKey, WantedPartition
from triokafka.network.fetch_sessions.fetch_session_cache import (
    EVICTION_SECONDS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSessionCache,
)
from triokafka.structs import TopicPartition
from triokafka.world.system import RealWorld

A, B, C = (("a", number) for number in range(3))


def cache(slots: int = 10, max_partitions: int = 500_000) -> FetchSessionCache:
    """Return a cache with room for so many sessions, of so many partitions together."""
    return FetchSessionCache(slots, RealWorld(), max_partitions=max_partitions)


def want(key: PartitionKey, offset: int = 0) -> WantedPartition:
    """Return a request for one partition."""
    return WantedPartition(key[0], key[1], offset, 1000)


def context(
    sessions: FetchSessionCache,
    session_id: int,
    epoch: int,
    *wanted: PartitionKey,
    forgotten: tuple[PartitionKey, ...] = (),
    privileged: bool = False,
    by_topic_id: bool = False,
    now: float = 0.0,
    reader: Hashable = None,
) -> FetchContext:
    """Return the context of a request."""
    return sessions.context_for(
        session_id=session_id,
        epoch=epoch,
        wanted=[want(key) for key in wanted],
        forgotten=forgotten,
        privileged=privileged,
        by_topic_id=by_topic_id,
        now=now,
        reader=reader,
    )


def read(high_watermark: int = 5, records: bytes = b"", error_code: int = 0, log_start_offset: int = 0) -> ReadOutcome:
    """Return the result of reading a partition."""
    return ReadOutcome(error_code, high_watermark, high_watermark, log_start_offset, records)


def answer(fetch: FetchContext, outcome: ReadOutcome | None = None, now: float = 0.0) -> Answered:
    """Return the response when every partition was read with the same result."""
    return fetch.respond({wanted.key: outcome or read() for wanted in fetch.partitions}, lambda: now)


def open_session(sessions: FetchSessionCache, *keys: PartitionKey, now: float = 0.0, privileged: bool = False) -> int:
    """Open a session, and return its id; 0 if there is no room for it."""
    return answer(context(sessions, 0, INITIAL_EPOCH, *keys, now=now, privileged=privileged), now=now).session_id


def test_request_without_a_session_gets_all_partitions_and_creates_no_session() -> None:
    sessions = cache()
    answered = answer(context(sessions, 0, FINAL_EPOCH, A, B))
    assert (answered.session_id, list(answered.outcomes), len(sessions)) == (0, [A, B], 0)


def test_full_request_opens_a_session_with_its_response() -> None:
    """The response has all partitions, also empty ones."""
    sessions = cache()
    fetch = context(sessions, 0, INITIAL_EPOCH, A, B)
    assert len(sessions) == 0
    answered = answer(fetch)
    assert answered.session_id > 0
    assert list(answered.outcomes) == [A, B]
    assert sessions.cached_partitions == 2


def test_incremental_request_reads_the_whole_session_and_returns_only_changes() -> None:
    sessions = cache()
    session_id = open_session(sessions, A, B, C)
    fetch = context(sessions, session_id, 1)
    assert [wanted.key for wanted in fetch.partitions] == [A, B, C]
    answered = fetch.respond({A: read(), B: read(high_watermark=6), C: read(log_start_offset=2)}, lambda: 0)
    assert list(answered.outcomes) == [B, C]
    second = context(sessions, session_id, 2).respond({A: read(), B: read(6), C: read(log_start_offset=2)}, lambda: 0)
    assert not second.outcomes
    assert second.session_id == session_id


def test_partitions_with_records_or_divergence_are_always_returned() -> None:
    sessions = cache()
    session_id = open_session(sessions, A, B)
    diverging = ReadOutcome(0, 5, 5, 0, b"", EpochEnd(1, 3))
    answered = context(sessions, session_id, 1).respond({A: read(records=b"x"), B: diverging}, lambda: 0)
    assert list(answered.outcomes) == [A, B]


def test_partition_is_returned_again_once_its_error_is_gone() -> None:
    sessions = cache()
    session_id = open_session(sessions, A)
    failing = ReadOutcome(errors.NotLeaderForPartitionError.code)
    for epoch, outcome, returned in ((1, failing, [A]), (2, failing, [A]), (3, read(), [A]), (4, read(), [])):
        assert list(context(sessions, session_id, epoch).respond({A: outcome}, lambda: 0).outcomes) == returned, epoch


def test_partition_with_data_moves_to_the_end_of_the_session() -> None:
    """When bytes are limited, the other partitions are read first next time."""
    sessions = cache()
    session_id = open_session(sessions, A, B, C)
    context(sessions, session_id, 1).respond({A: read(records=b"x"), B: read(), C: read()}, lambda: 0)
    assert [wanted.key for wanted in context(sessions, session_id, 2).partitions] == [B, C, A]


def test_request_changes_adds_and_forgets_partitions() -> None:
    sessions = cache()
    session_id = open_session(sessions, A, B)
    fetch = sessions.context_for(
        session_id=session_id,
        epoch=1,
        wanted=[want(A, 7), want(C)],
        forgotten=[B],
        privileged=False,
        by_topic_id=False,
        now=0,
    )
    assert [(wanted.key, wanted.fetch_offset) for wanted in fetch.partitions] == [(A, 7), (C, 0)]


def test_unknown_session_and_wrong_epoch_are_errors_of_the_whole_request() -> None:
    sessions = cache()
    session_id = open_session(sessions, A)
    unknown = context(sessions, session_id + 1 if session_id < 2**31 - 1 else 1, 1, A)
    assert not unknown.partitions
    assert answer(unknown).error_code == errors.FetchSessionIdNotFoundError.code
    assert answer(context(sessions, session_id, 2)).error_code == errors.InvalidFetchSessionEpochError.code
    assert answer(context(sessions, session_id, 1)).error_code == 0


def test_session_does_not_change_from_names_to_ids() -> None:
    sessions = cache()
    session_id = open_session(sessions, A)
    mixed = context(sessions, session_id, 1, (UUID(int=7), 0), by_topic_id=True)
    assert answer(mixed).error_code == errors.FetchSessionTopicIdError.code


def test_duplicate_of_a_parked_request_invalidates_the_parked_one() -> None:
    """The session checks the epoch again when it builds the response."""
    sessions = cache()
    session_id = open_session(sessions, A)
    parked = context(sessions, session_id, 1)
    overtaking = context(sessions, session_id, 2)
    assert answer(parked).error_code == errors.InvalidFetchSessionEpochError.code
    assert answer(overtaking).error_code == 0


class Resting:
    """A partition that rests until ``wake`` is called."""

    topic_partition = TopicPartition(*A)

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def end(self, fetched_at: float) -> None:
        """Do nothing: no partition is watched."""


def test_end_of_a_parked_request_leaves_the_watch_of_the_next_one() -> None:
    sessions = cache()
    rests: list[Resting] = []

    def rest(wanted: WantedPartition, outcome: ReadOutcome, wake: Callable[[], None]) -> Resting:
        rests.append(Resting(wake))
        return rests[-1]

    session_id = open_session(sessions, A)
    context(sessions, session_id, 1, reader="consumer").respond({A: read()}, lambda: 0.0, rest)
    woken: list[str] = []
    parked, overtaking = (context(sessions, session_id, epoch, reader="consumer") for epoch in (2, 3))
    parked.watch(lambda *of: woken.append("parked"))
    overtaking.watch(lambda *of: woken.append("overtaking"))
    parked.watch(None)
    rests[0].wake()
    assert woken == ["overtaking"]


def test_session_without_partitions_is_closed() -> None:
    sessions = cache()
    session_id = open_session(sessions, A)
    answered = answer(context(sessions, session_id, 1, forgotten=(A,)))
    assert (answered.session_id, len(sessions)) == (0, 0)


def test_final_epoch_closes_the_named_session() -> None:
    sessions = cache()
    session_id = open_session(sessions, A)
    assert answer(context(sessions, session_id, FINAL_EPOCH, A)).session_id == 0
    assert len(sessions) == 0


def test_full_request_replaces_the_named_session() -> None:
    sessions = cache()
    session_id = open_session(sessions, A)
    answered = answer(context(sessions, session_id, INITIAL_EPOCH, A, B))
    assert len(sessions) == 1
    assert answered.session_id not in (0, session_id)


def test_epoch_wraps_to_one() -> None:
    sessions = cache()
    session_id = open_session(sessions, A)
    sessions._sessions[session_id].epoch = 2**31 - 1
    assert answer(context(sessions, session_id, 2**31 - 1)).error_code == 0
    assert answer(context(sessions, session_id, 1)).error_code == 0


def test_full_cache_leaves_a_newcomer_of_equal_size_without_a_session() -> None:
    sessions = cache(1)
    assert open_session(sessions, A, now=0)
    late = EVICTION_SECONDS - 1
    assert open_session(sessions, A, B, now=late) == 0


def test_least_recently_used_session_is_evicted() -> None:
    sessions = cache(1)
    open_session(sessions, A, B, now=0)
    assert open_session(sessions, A, now=EVICTION_SECONDS + 1)
    assert (len(sessions), sessions.evictions) == (1, 1)


def test_long_wait_of_a_request_does_not_hide_that_another_session_is_stale() -> None:
    """A session's age counts from its last request, not from its last response."""
    sessions = cache(2)
    waiting = open_session(sessions, A, now=0)
    open_session(sessions, B, now=1)
    parked = context(sessions, waiting, 1, now=1)
    answer(parked, now=100)
    assert open_session(sessions, C, now=EVICTION_SECONDS + 2)
    assert answer(context(sessions, waiting, 2, now=EVICTION_SECONDS + 2)).error_code == 0


def test_old_session_in_use_yields_to_a_larger_newcomer_only() -> None:
    """Use refreshes a session, so it is not stale, but it may still be the smallest."""
    sessions = cache(1)
    session_id = open_session(sessions, A, now=0)
    late = EVICTION_SECONDS + 1
    answer(context(sessions, session_id, 1, now=late), now=late)
    assert open_session(sessions, B, now=late) == 0
    assert open_session(sessions, B, C, now=late)


def test_follower_evicts_a_consumers_session_at_once_and_is_not_evicted_by_one() -> None:
    sessions = cache(1)
    open_session(sessions, A, B, now=0)
    assert open_session(sessions, A, now=1, privileged=True)
    assert open_session(sessions, A, B, C, now=2) == 0
    assert open_session(sessions, A, B, C, now=2, privileged=True) == 0


def test_old_session_of_a_follower_yields_to_a_larger_one_of_another_follower() -> None:
    """This holds even while the session is in use; a follower never loses its session to a consumer."""
    sessions = cache(1)
    session_id = open_session(sessions, A, now=0, privileged=True)
    late = EVICTION_SECONDS + 1
    answer(context(sessions, session_id, 1, now=late), now=late)
    assert open_session(sessions, B, now=late, privileged=True) == 0
    assert open_session(sessions, A, B, C, now=late) == 0
    assert open_session(sessions, B, C, now=late, privileged=True)
    assert sessions.evictions == 1


def test_clients_without_a_session_do_not_search_the_full_cache_with_every_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a refusal, requests of the same size or smaller are refused for a second without a search."""
    sessions = cache(1)
    session_id = open_session(sessions, A, B, now=0)
    late = EVICTION_SECONDS + 1
    answer(context(sessions, session_id, 1, now=late), now=late)
    searches = 0
    cost = fetch_session_cache._cost

    def counting(session: FetchSession) -> tuple[bool, int, int]:
        nonlocal searches
        searches += 1
        return cost(session)

    monkeypatch.setattr(fetch_session_cache, "_cost", counting)
    assert open_session(sessions, A, now=late) == 0
    once = searches
    for number in range(9):
        assert open_session(sessions, A, now=late + number / 10) == 0
    assert searches == once
    assert open_session(sessions, A, now=late + 2) == 0
    assert searches == 2 * once
    assert open_session(sessions, A, B, C, now=late + 2)


def test_session_ids_are_positive_and_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RealWorld()
    drawn = iter([5, 5, 5, 9])
    monkeypatch.setattr(world.random, "randint", lambda low, high: next(drawn))
    sessions = FetchSessionCache(10, world)  # type: ignore[var-annotated]
    assert [open_session(sessions, A), open_session(sessions, B)] == [5, 9]


def test_session_with_more_partitions_than_there_is_room_for_is_not_created() -> None:
    sessions = cache(max_partitions=3)
    assert open_session(sessions, A, B)
    refused = answer(context(sessions, 0, INITIAL_EPOCH, A, B))
    assert (refused.session_id, list(refused.outcomes)) == (0, [A, B])  # a full response, as without sessions
    assert open_session(sessions, A)
    assert sessions.cached_partitions == 3
    assert open_session(sessions, A, B, C, privileged=True)  # a follower always gets its session


def test_session_that_outgrows_the_room_ends_and_its_client_starts_over() -> None:
    sessions = cache(max_partitions=3)
    session_id = open_session(sessions, A, B)
    other = open_session(sessions, A)
    grown = answer(context(sessions, session_id, 1, C))
    assert (grown.session_id, grown.error_code) == (0, errors.FetchSessionIdNotFoundError.code)
    assert (len(sessions), sessions.cached_partitions) == (1, 1)
    assert answer(context(sessions, other, 1, B)).session_id == other


def test_idle_session_is_evicted() -> None:
    sessions = cache(max_partitions=3)
    open_session(sessions, A, B, C)
    assert not open_session(sessions, A, now=EVICTION_SECONDS)
    assert open_session(sessions, A, now=EVICTION_SECONDS + 1)
    assert sessions.cached_partitions == 1


def test_partitions_are_counted_until_they_are_forgotten() -> None:
    sessions = cache()
    session_id = open_session(sessions, A)
    answer(context(sessions, session_id, 1, B, C, forgotten=(A,)))
    assert sessions.cached_partitions == 2
    context(sessions, session_id, 2, forgotten=(B, C))
    assert (len(sessions), sessions.cached_partitions) == (0, 0)
    session_id = open_session(sessions, A, B)
    context(sessions, session_id, FINAL_EPOCH)
    assert (len(sessions), sessions.cached_partitions) == (0, 0)
