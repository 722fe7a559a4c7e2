"""Unhandled failures are raised at the end of the block, however many there are."""

from __future__ import annotations

import pytest

from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.settled_event import SettledEvent
from triokafka.client.producer.unhandled_failures import UnhandledFailures
from triokafka.errors import KafkaTimeoutError
from triokafka.records import BatchBuilder
from triokafka.structs import TopicPartition

REMEMBERED = 1_000


def failed(records: int = 2, *, seen: int = 0) -> ProducerBatch:
    """Return a failed batch; the failures of its first ``seen`` records were handled."""
    batch = ProducerBatch(
        TopicPartition("t", 0), (1,), BatchBuilder(1000), reserved=0, created_at=0.0, new_event=SettledEvent
    )
    for _ in range(records):
        batch.append(0, None, b"value")
    batch.settle(error=KafkaTimeoutError("too late"))
    for index in range(seen):
        batch.note_observed(index)
    return batch


def noted(*batches: ProducerBatch) -> UnhandledFailures:
    failures = UnhandledFailures()
    for batch in batches:
        failures.note(batch)
    return failures


def test_failures_beyond_the_bound_are_counted() -> None:
    failures = noted(*[failed() for _ in range(REMEMBERED + 500)])
    with pytest.raises(ExceptionGroup, match=r"^3000 records were not delivered"):
        failures.report(None)


def test_failures_beyond_the_bound_are_reported_when_all_others_were_observed() -> None:
    batches = [failed() for _ in range(REMEMBERED + 500)]
    failures = noted(*batches)
    for batch in batches[:REMEMBERED]:
        batch.note_observed(0)
        batch.note_observed(1)
    with pytest.raises(ExceptionGroup, match=r"^1000 records were not delivered") as raised:
        failures.report(None)
    assert isinstance(raised.value.exceptions[0], KafkaTimeoutError)


def test_observed_failures_beyond_the_bound_are_not_reported() -> None:
    batches = [failed() for _ in range(REMEMBERED + 500)]
    failures = noted(*batches)
    for batch in batches[1:]:
        for index in (0, 1, 1):
            batch.note_observed(index)
    with pytest.raises(ExceptionGroup, match=r"^2 records were not delivered"):
        failures.report(None)


def test_failures_passed_to_callbacks_do_not_count_towards_the_bound() -> None:
    failures = noted(*[failed() for _ in range(REMEMBERED)], *[failed(seen=2) for _ in range(500)], failed(seen=1))
    with pytest.raises(ExceptionGroup, match=r"^2001 records were not delivered"):
        failures.report(None)


def test_no_report_when_all_failures_were_observed() -> None:
    noted(*[failed(seen=2) for _ in range(REMEMBERED + 500)]).report(None)
