"""Groups of several clients whose members join, leave, crash, freeze and return; see `tests.churning.churn`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.churning import SETTINGS
from tests.churning.churn import Churn, Plan
from tests.support.broker_process import broker_process

CLASSIC = (
    ("confluent", False),
    ("confluent", True),
    ("kafka_python", False),
    ("aiokafka", True),
    ("ours", False),
    ("ours", True),
)
CONSUMER = (("confluent", False), ("confluent", True), ("ours", False), ("ours", True))


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    soon = {"group.consumer.min.session.timeout.ms": "3000", "group.consumer.session.timeout.ms": "3000"}
    with broker_process(settings={**SETTINGS, **soon}) as bootstrap:
        yield bootstrap


async def test_a_mixed_group_settles_after_every_kind_of_change(broker: str, group: str) -> None:
    """It does so within the rebalance timeout; no committed offset decreases, and every record is handled."""
    plan = Plan(CLASSIC, partitions=12, strategy="roundrobin", seed=11, at_least=4, session_timeout_ms=3_000)
    kinds = ["close and restart", "usurp", "kill and restart", "kill", "join while one is frozen", "leave", "join"]
    await Churn(broker, group, plan).run([*kinds, "expel and come back"])


async def test_a_mixed_group_of_the_consumer_protocol_settles_after_every_kind_of_change(
    broker: str, group: str
) -> None:
    """The same under KIP-848."""
    plan = Plan(
        CONSUMER, partitions=12, strategy="uniform", seed=12, at_least=2, protocol="consumer", session_timeout_ms=3_000
    )
    kinds = ["close and restart", "leave", "join while one is frozen", "kill", "join"]
    await Churn(broker, group, plan).run(kinds)
