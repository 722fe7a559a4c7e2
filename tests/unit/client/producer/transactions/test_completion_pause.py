"""The next transaction begins when the coordinator has probably completed the one before."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.support.scripted_coordinator import ScriptedCoordinator
from tests.support.scripted_producing import Setup
from tests.support.simulated import simulated
from tests.unit.client.producer.transactions.test_transaction import ORDERS, coordinated, transactional
from triokafka.backoff import Backoff
from triokafka.client.producer.transactions.completion_pause import CompletionPause, completion_backoff
from triokafka.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from triokafka.protocol.api.end_txn import EndTxnRequest
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_CONCURRENT_TRANSACTIONS = 51
_HOLD = 0.02  # Apache Kafka's add.partitions.to.txn.retry.backoff.ms


class SlowMarkers:
    """Writes the markers some seconds after EndTxn, and treats earlier requests as Apache Kafka does.

    ``arrivals`` are the times of the requests that would begin a transaction; ``early`` counts those that came before
    the markers were written.
    """

    def __init__(self, setup: Setup, coordinator: ScriptedCoordinator, seconds: float) -> None:
        self.arrivals: list[float] = []
        self.early = 0
        self._broker = setup.broker
        self._coordinator = coordinator
        self._seconds = seconds
        self._complete_at = 0.0
        again = itertools.repeat
        self._broker.script(EndTxnRequest, *itertools.islice(again(self._end), 500))
        self._broker.script(AddPartitionsToTxnRequest, *itertools.islice(again(self._add), 500))
        self._broker.script(TxnOffsetCommitRequest, *itertools.islice(again(self._commit_offsets), 500))
        self._broker.script(ProduceRequest, *itertools.islice(again(self._produce), 500))

    def _end(self, request: EndTxnRequest) -> Any:
        self._complete_at = trio.current_time() + self._seconds
        return self._coordinator.answer(request, 5 if self._coordinator.level >= 2 else 4)

    @property
    def _is_early(self) -> bool:
        now = trio.current_time()
        self.arrivals.append(now)
        self.early += now < self._complete_at
        return now < self._complete_at

    def _add(self, request: AddPartitionsToTxnRequest) -> Any:
        if not self._is_early:
            return self._coordinator.answer(request, 3)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=number, partition_error_code=_CONCURRENT_TRANSACTIONS
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _commit_offsets(self, request: TxnOffsetCommitRequest) -> Any:
        if not self._is_early:
            return self._coordinator.answer(request, 5)
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=partition.partition_index, error_code=_CONCURRENT_TRANSACTIONS
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def _produce(self, request: ProduceRequest) -> Any:
        if self._coordinator.level >= 2 and self._is_early:
            while trio.current_time() < self._complete_at:
                await trio.sleep(_HOLD)
        return self._broker._behave(request, self._broker.headers[-1])

    def start_counting(self) -> None:
        self.arrivals.clear()
        self.early = 0


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize("level", [1, 2])
@simulated
async def test_few_transactions_begin_before_the_markers_of_the_last_one_are_written(level: int) -> None:
    async with coordinated(level) as (s, coordinator), transactional(s, linger_ms=0) as producer:
        markers = SlowMarkers(s, coordinator, 0.008)
        for number in range(80):
            if number == 40:
                markers.start_counting()
                began = trio.current_time()
            async with producer.transaction():
                await producer.send("orders", b"%d" % number)
        assert coordinator.committed[ORDERS] == [b"%d" % number for number in range(80)]
        assert markers.early <= 8, "all 40 would be too early without a pause"
        assert trio.current_time() - began < 40 * _HOLD


@simulated
async def test_refused_offsets_are_sent_again_after_a_millisecond() -> None:
    async with coordinated() as (s, coordinator), transactional(s) as producer:
        markers = SlowMarkers(s, coordinator, 0.01)
        for number in range(2):
            async with producer.transaction() as transaction:
                markers.start_counting()
                await transaction.send_offsets(offsets={ORDERS: number}, group="billing")
        assert markers.early and coordinator.offsets == {"billing": {ORDERS: 1}}
        assert 0 < _gaps(markers.arrivals)[0] < 0.01


@simulated
async def test_waits_grow_while_the_coordinator_cannot_complete_a_transaction() -> None:
    """A partition without a leader gets no marker."""
    async with coordinated(1) as (s, coordinator), transactional(s, linger_ms=0) as producer:
        markers = SlowMarkers(s, coordinator, 30)
        for number in range(2):
            async with producer.transaction():
                markers.start_counting()
                await producer.send("orders", b"%d" % number)
        gaps = _gaps(markers.arrivals)
        assert gaps[0] < 0.01 and len(gaps) < 45, "the longest wait is retry_backoff_max_ms, one second"
        assert all(0.8 <= gap <= 1.5 for gap in gaps[11:-1])


@simulated
async def test_transaction_that_is_aborted_during_the_pause_leaves_no_partition_blocked() -> None:
    async with coordinated() as (s, coordinator), transactional(s, linger_ms=0) as producer:
        SlowMarkers(s, coordinator, 0.008)
        for number in range(40):
            async with producer.transaction():
                await producer.send("orders", b"%d" % number)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send("orders", b"aborted")
                    raise ZeroDivisionError
        assert coordinator.committed[ORDERS] == [b"%d" % number for number in range(40)]


# ---------------------------------------------------------------- the length


def _after(verdicts: str, judge: Callable[[CompletionPause, str, float], None] | None = None) -> CompletionPause:
    """Return the pause after transactions: ``e``, the first request was too early; ``o``, it was on time."""
    pause = CompletionPause()
    for number, verdict in enumerate(verdicts):
        pause.transaction_ended(float(number), 0.001)
        sent_at = number + 0.001
        if judge is not None:
            judge(pause, verdict, sent_at)
        elif verdict == "e":
            pause.refused(sent_at)
        else:
            pause.accepted(sent_at)
    return pause


def test_pause_grows_by_a_millisecond_and_shrinks_by_a_tenth_of_one() -> None:
    assert _after("eee").seconds == pytest.approx(0.003)
    assert _after("eeeooooo").seconds == pytest.approx(0.0025)
    assert _after("e" + 20 * "o").seconds == 0.0
    assert _after("ooo").seconds == 0.0


def test_only_the_first_request_of_a_transaction_counts() -> None:
    pause = _after("e")
    pause.refused(0.002)
    pause.accepted(0.003)
    assert pause.seconds == pytest.approx(0.001)


def test_request_that_was_sent_long_after_the_pause_says_nothing() -> None:
    pause = _after("ee")
    pause.transaction_ended(10.0, 0.001)
    pause.accepted(10.5)
    assert pause.seconds == pytest.approx(0.002)


def test_produce_request_that_was_held_back_was_too_early() -> None:
    for took, expected in ((0.001, 0.0), (0.015, 0.0), (0.022, 0.001), (0.045, 0.001), (0.2, 0.0)):
        pause = CompletionPause()
        pause.transaction_ended(0.0, 0.001)
        pause.produced(0.001, 0.001 + took)
        assert pause.seconds == pytest.approx(expected), took


def test_requests_that_are_always_slow_were_not_held_back() -> None:
    """The network between the producer and the cluster takes 25 ms."""
    pause = CompletionPause()
    for number in range(50):
        pause.transaction_ended(float(number), 0.025)
        pause.produced(number + 0.001, number + 0.03)
    assert pause.seconds == 0.0


def test_longest_pause_that_is_too_short_is_given_up_for_500_transactions() -> None:
    assert _after(15 * "e").seconds == pytest.approx(0.015)
    assert _after(16 * "e").seconds == 0.0
    assert _after(516 * "e").seconds == 0.0
    assert _after(517 * "e").seconds == pytest.approx(0.001)


def test_pause_is_over_at_its_end_and_none_is_too_short_for_the_event_loop() -> None:
    pause = _after("ee")
    pause.transaction_ended(10.0, 0.001)
    assert pause.remaining(10.0) == pytest.approx(0.002)
    assert pause.remaining(10.003) <= 0
    pause = _after("e" + 6 * "o")
    pause.transaction_ended(10.0, 0.001)
    assert pause.remaining(10.0) <= 0


def test_backoff_after_concurrent_transactions_begins_with_a_millisecond() -> None:
    assert completion_backoff(Backoff(0.1, 1.0)) == Backoff(0.001, 1.0)
    assert completion_backoff(Backoff(0.0005, 0.5)) == Backoff(0.0005, 0.5)
