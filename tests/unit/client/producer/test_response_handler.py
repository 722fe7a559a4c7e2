"""The results of requests for their batches, without a network; ``test_sender`` covers the rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.client.producer.test_accumulator import Bench
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.batch_log import BatchLog
from triokafka.client.producer.counters import new_counters
from triokafka.client.producer.produce_request import ProduceAnswer
from triokafka.client.producer.response_handler import FATAL, ResponseHandler
from triokafka.errors import ERRORS, KafkaConnectionError
from triokafka.hooks import NO_HOOKS
from triokafka.structs import TopicPartition


class HandlerBench:
    """A response handler over a bench, and a batch in flight."""

    def __init__(self, *, acks: int = -1, retries: int = 5, **settings: Any) -> None:
        self.bench = Bench(**settings)
        self.fatal: list[Exception] = []
        self.identities_lost = 0
        self.counters = new_counters()
        self.refreshes = 0
        self.handler = ResponseHandler(
            self.bench.accumulator.batches,
            SimpleNamespace(
                metadata=SimpleNamespace(update_leader=lambda *args: False),
                request_metadata_update=self._note_refresh,
            ),  # type: ignore[arg-type]
            world=SimpleNamespace(random=SimpleNamespace(random=lambda: 0.5)),  # type: ignore[arg-type]
            acks=acks,
            retries=retries,
            counters=self.counters,
            log=BatchLog(),
            hooks=NO_HOOKS,
            on_identity_lost=self._lose_identity,
            on_fatal=self.fatal.append,
        )

    def _note_refresh(self) -> None:
        self.refreshes += 1

    def _lose_identity(self) -> None:
        self.identities_lost += 1

    def sent(self) -> ProducerBatch:
        """Return a batch in flight."""
        self.bench.batch()
        [[batch]] = self.bench.drain(5.0).values()
        return batch

    @property
    def queued(self) -> list[ProducerBatch]:
        """Return the batches that wait in the queue."""
        return [batch for queue in self.bench.accumulator.active.values() for batch in queue.batches]

    def refuse(self, batch: ProducerBatch, code: int) -> None:
        """Handle a response with this error code."""
        answer = ProduceAnswer(code, -1, -1, None, {}, -1, -1, None)
        self.handler.answered([batch], {TopicPartition("t", 0): answer}, 10.0)


@pytest.mark.parametrize(("acks", "again"), [(0, False), (1, True), (-1, True)])
def test_unanswered_batch_is_retried_unless_duplicates_could_go_undetected(acks: int, again: bool) -> None:
    """With ``acks=0`` a gap is allowed, a duplicate is not."""
    desk = HandlerBench(acks=acks)
    batch = desk.sent()
    desk.handler.unanswered([batch], KafkaConnectionError("cut"), 10.0)
    assert desk.queued == ([batch] if again else [])
    assert batch.done == (not again)
    assert desk.refreshes == 1


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_unsent_batch_is_queued_again_unchanged(acks: int) -> None:
    desk = HandlerBench(acks=acks, retries=0)
    batch = desk.sent()
    desk.handler.unsent([batch], KafkaConnectionError("just ended"), 10.0)
    assert desk.queued == [batch]
    assert batch.attempts == 0
    assert desk.counters["record_retry_total"] == 0


def test_partition_missing_from_the_response_is_retried() -> None:
    desk = HandlerBench()
    batch = desk.sent()
    desk.handler.answered([batch], {}, 10.0)
    assert desk.queued == [batch]


@pytest.mark.parametrize("code", sorted(code for code in ERRORS if code))
def test_every_error_code_settles_or_requeues_its_batch_and_releases_its_memory(code: int) -> None:
    """This includes codes that no broker should ever return."""
    desk = HandlerBench(idempotent=True)
    batch = desk.sent()
    desk.refuse(batch, code)
    pool = desk.bench.accumulator.pool
    error = ERRORS[code]
    if batch.done:
        assert desk.queued == []
        assert pool.in_use == 0
        assert code == 46 or not error.retriable
    else:
        assert desk.queued == [batch]
        assert pool.in_use == 200
        assert error.retriable or code in (45, 59)
    assert bool(desk.fatal) == (error in FATAL)
    assert desk.identities_lost == (code == 47)
    if error.invalid_metadata:
        assert desk.refreshes == 1


@pytest.mark.parametrize(("code", "attempts", "known"), [(18, 1, True), (18, 2, False), (-1, 1, False)])
def test_outcome_of_a_refused_batch_is_known_only_if_no_other_attempt_can_have_written_it(
    code: int, attempts: int, known: bool
) -> None:
    """Otherwise the batches sent after it get no new sequence numbers before its outcome is known."""
    desk = HandlerBench(idempotent=True)
    queue = desk.bench.accumulator.queue(TopicPartition("t", 0))
    batch = desk.sent()
    batch.attempts = attempts
    desk.refuse(batch, code)
    assert batch.failed
    assert queue.sequences.bump_wanted == known
    assert queue.sequences.unresolved == (not known)


def test_duplicate_is_success_without_an_offset() -> None:
    """The broker has the batch, but no longer knows its offset."""
    desk = HandlerBench(idempotent=True)
    batch = desk.sent()
    desk.refuse(batch, 46)
    assert batch.done
    assert not batch.failed
    assert batch.base_offset == -1
    assert desk.counters["duplicate_batch_total"] == 1
