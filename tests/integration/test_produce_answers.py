"""The broker's responses to Produce requests of every kind."""

from __future__ import annotations

from tests.support.produce_cases import answers, expected
from triokafka.testing import running_broker


async def test_every_kind_of_produce_request_gets_the_expected_response() -> None:
    """``make interop`` sends the same requests to Apache Kafka."""
    async with running_broker() as broker:
        assert await answers(broker.bootstrap_servers) == expected()
