"""The next transaction begins when the coordinator has completed the one before."""

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
from triokafka.client.producer.transactions.completion_check import CompletionCheck, completion_backoff
from triokafka.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from triokafka.protocol.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
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
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_HOLD = 0.02  # Apache Kafka's add.partitions.to.txn.retry.backoff.ms


class SlowMarkers:
    """Writes the markers some seconds after EndTxn, and treats earlier requests as Apache Kafka does.

    ``arrivals`` are the times of the requests that would begin a transaction; ``early`` counts those that came before
    the markers were written, ``checks`` the requests that describe the transaction. Those get ``code``, if it is set.
    """

    def __init__(self, setup: Setup, coordinator: ScriptedCoordinator, seconds: float) -> None:
        self.arrivals: list[float] = []
        self.early = 0
        self.checks = 0
        self.code = 0
        self._broker = setup.broker
        self._coordinator = coordinator
        self.seconds = seconds
        self._complete_at = 0.0
        again = itertools.repeat
        self._broker.script(EndTxnRequest, *itertools.islice(again(self._end), 500))
        self._broker.script(AddPartitionsToTxnRequest, *itertools.islice(again(self._add), 500))
        self._broker.script(TxnOffsetCommitRequest, *itertools.islice(again(self._commit_offsets), 500))
        self._broker.script(ProduceRequest, *itertools.islice(again(self._produce), 500))
        self._broker.script(DescribeTransactionsRequest, *itertools.islice(again(self._describe), 2000))
        self._broker.api_versions[DescribeTransactionsRequest.api_key] = (0, 0)

    def _end(self, request: EndTxnRequest) -> Any:
        self._complete_at = trio.current_time() + self.seconds
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

    def _describe(self, request: DescribeTransactionsRequest) -> Any:
        self.checks += 1
        state = "PrepareCommit" if trio.current_time() < self._complete_at else "CompleteCommit"
        (name,) = request.transactional_ids
        return DescribeTransactionsResponse(
            transaction_states=[
                TransactionState(
                    error_code=self.code,
                    transactional_id=name,
                    transaction_state="" if self.code else state,
                    transaction_timeout_ms=60_000,
                    transaction_start_time_ms=-1,
                    producer_id=0,
                    producer_epoch=0,
                    topics=[],
                )
            ]
        )

    async def _produce(self, request: ProduceRequest) -> Any:
        if self._coordinator.level >= 2 and self._is_early:
            while trio.current_time() < self._complete_at:
                await trio.sleep(_HOLD)
        return self._broker._behave(request, self._broker.headers[-1])

    def start_counting(self) -> None:
        self.arrivals.clear()
        self.early = self.checks = 0


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(times)]


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize("level", [1, 2])
@simulated
async def test_no_transaction_begins_before_the_markers_of_the_last_one_are_written(level: int) -> None:
    async with coordinated(level) as (s, coordinator), transactional(s, linger_ms=0) as producer:
        markers = SlowMarkers(s, coordinator, 0.008)
        for number in range(43):
            if number == 3:
                markers.start_counting()
                began = trio.current_time()
            async with producer.transaction():
                await producer.send("orders", b"%d" % number)
        assert coordinator.committed[ORDERS] == [b"%d" % number for number in range(43)]
        assert markers.early == 0, "the first one taught the producer to ask"
        assert 40 * 0.008 <= trio.current_time() - began < 40 * 0.016
        assert markers.checks <= 40 * 10, "checks follow each other with growing waits"


@simulated
async def test_producer_asks_only_after_a_request_that_came_too_early_and_ends_when_that_is_in_vain() -> None:
    async with coordinated() as (s, coordinator), transactional(s, linger_ms=0) as producer:

        async def transact(count: int) -> None:
            for _ in range(count):
                async with producer.transaction():
                    await producer.send("orders", b"x")

        markers = SlowMarkers(s, coordinator, 0.0)
        await transact(5)
        assert markers.checks == 0
        markers.seconds = 0.005
        await transact(3)
        assert markers.early == 1 and markers.checks > 2
        markers.seconds = 0.0
        markers.start_counting()
        await transact(150)
        assert 95 <= markers.checks <= 105


@simulated
async def test_transaction_begins_after_50_milliseconds_although_the_one_before_is_not_complete() -> None:
    """A partition without a leader gets no marker, so the transaction may stay incomplete for long."""
    async with coordinated() as (s, coordinator), transactional(s, linger_ms=0) as producer:
        markers = SlowMarkers(s, coordinator, 0.0)
        for seconds in (*[0.015] * 5, 1.0, 0.0):
            markers.seconds = seconds
            ended = trio.current_time()
            markers.start_counting()
            async with producer.transaction():
                await producer.send("orders", b"x")
        assert markers.early == 1 and 0.05 <= markers.arrivals[0] - ended < 0.07
        assert 5 < markers.checks < 15


@simulated
async def test_coordinator_that_describes_no_transaction_delays_none() -> None:
    """For example, the principal may not describe its transactional id."""
    async with coordinated() as (s, coordinator), transactional(s, linger_ms=0) as producer:
        markers = SlowMarkers(s, coordinator, 0.008)
        markers.code = _TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        for number in range(130):
            async with producer.transaction():
                await producer.send("orders", b"%d" % number)
        assert coordinator.committed[ORDERS] == [b"%d" % number for number in range(130)]
        assert markers.checks <= 129, "one for a transaction"


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
async def test_transaction_that_is_aborted_during_a_check_leaves_no_partition_blocked() -> None:
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


# ---------------------------------------------------------------- the decision


def _ended_after(judge: Callable[[CompletionCheck], None]) -> CompletionCheck:
    """Return the check after two transactions; ``judge`` saw the requests between them."""
    check = CompletionCheck()
    check.transaction_ended(0.0, 0.001)
    assert not check.pending
    judge(check)
    check.transaction_ended(1.0, 0.001)
    return check


def test_check_follows_a_refused_request() -> None:
    assert _ended_after(lambda check: check.refused(0.001)).pending
    assert not _ended_after(lambda check: check.accepted()).pending


def test_only_the_first_request_of_a_transaction_counts() -> None:
    def judge(check: CompletionCheck) -> None:
        check.accepted()
        check.refused(0.002)

    assert not _ended_after(judge).pending


def test_request_that_was_sent_long_after_the_end_of_the_transaction_says_nothing() -> None:
    assert not _ended_after(lambda check: check.refused(0.5)).pending


def test_produce_request_that_was_held_back_was_too_early() -> None:
    for took, early in ((0.001, False), (0.015, False), (0.022, True), (0.045, True), (0.2, False)):
        assert _ended_after(lambda check, took=took: check.produced(0.001, 0.001 + took)).pending is early, took  # type: ignore[misc]


def test_requests_that_are_always_slow_were_not_held_back() -> None:
    """The network between the producer and the cluster takes 25 ms."""
    check = CompletionCheck()
    for number in range(50):
        check.transaction_ended(float(number), 0.025)
        assert not check.pending
        check.produced(number + 0.001, number + 0.03)


def test_checks_end_after_100_in_vain_one_after_the_other() -> None:
    check = _ended_after(lambda check: check.refused(0.001))
    outcomes = [True] * 99 + [False] + [True] * 100
    for number, in_vain in enumerate(outcomes):
        assert check.pending, number
        check.finished(in_vain=in_vain)
        assert not check.pending
        check.transaction_ended(number + 2.0, 0.001)
    assert not check.pending


def test_slow_request_after_a_check_was_not_too_early() -> None:
    """The transaction before was complete; the broker is slow for another reason."""
    check = _ended_after(lambda check: check.refused(0.001))
    for number in range(100):
        check.finished(in_vain=True)
        check.produced(number + 1.001, number + 1.024)
        check.transaction_ended(number + 2.0, 0.001)
    assert not check.pending


def test_backoff_after_concurrent_transactions_begins_with_a_millisecond() -> None:
    assert completion_backoff(Backoff(0.1, 1.0)) == Backoff(0.001, 1.0)
    assert completion_backoff(Backoff(0.0005, 0.5)) == Backoff(0.0005, 0.5)
