"""The broker's responses to requests that no well-behaved client sends."""

from __future__ import annotations

import pytest

from tests.support.logged import lines
from tests.support.odd_requests import answered_frames, answers, expected, frames, table
from triokafka.testing import running_broker


async def test_every_odd_request_gets_the_expected_response(caplog: pytest.LogCaptureFixture) -> None:
    """No request fails with an unexpected error; ``make interop`` sends the same requests to Apache Kafka."""
    async with running_broker() as broker:
        assert await answers(broker.bootstrap_servers, table()) == expected(table())
    assert not lines(caplog, "triokafka.broker_stub.request.dispatcher")
    assert not lines(caplog, "triokafka.broker_stub.request.handler_call")


async def test_every_odd_frame_gets_a_response_or_closes_its_connection() -> None:
    """Unknown tags, too many or too few bytes, impossible lengths."""
    async with running_broker() as broker:
        assert await answered_frames(broker.bootstrap_servers, frames()) == expected(frames())


def test_every_difference_from_kafkas_responses_has_a_reason() -> None:
    """Case names are unique, and a stated difference is a real one."""
    rows = [*table(), *frames()]
    assert len({row["case"] for row in rows}) == len(rows)
    for row in rows:
        assert ("kafka" in row) is bool(row.get("why"))
        assert row["answer"] != row.get("kafka")
