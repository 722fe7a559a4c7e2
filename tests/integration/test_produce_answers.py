"""What the broker answers to Produce requests of every kind."""

from __future__ import annotations

from tests.support.produce_cases import answers, expected
from triokafka.testing import running_broker


async def test_every_kind_of_produce_request_is_answered_as_it_should_be() -> None:
    """``make interop`` asks Apache Kafka the same."""
    async with running_broker() as broker:
        assert await answers(broker.bootstrap_servers) == expected()
