"""What the broker answers to requests that no well-behaved client sends."""

from __future__ import annotations

import pytest

from tests.support.logged import lines
from tests.support.odd_requests import answered_frames, answers, expected, frames, table
from triokafka.testing import running_broker


async def test_every_odd_request_is_answered_as_it_should_be(caplog: pytest.LogCaptureFixture) -> None:
    """And none fails in an unforeseen way; ``make interop`` asks Apache Kafka the same."""
    async with running_broker() as broker:
        assert await answers(broker.bootstrap_servers, table()) == expected(table())
    assert not lines(caplog, "triokafka.broker_stub.request.dispatcher")
    assert not lines(caplog, "triokafka.broker_stub.request.handler_call")


async def test_every_odd_frame_is_answered_or_closes_its_connection() -> None:
    """Unknown tags, bytes too many or too few, lengths that cannot be."""
    async with running_broker() as broker:
        assert await answered_frames(broker.bootstrap_servers, frames()) == expected(frames())


def test_every_answer_that_is_not_kafkas_has_a_reason() -> None:
    """Names are there once, and a difference is one."""
    rows = [*table(), *frames()]
    assert len({row["case"] for row in rows}) == len(rows)
    for row in rows:
        assert ("kafka" in row) is bool(row.get("why"))
        assert row["answer"] != row.get("kafka")
