"""Groups whose members join, leave, crash, freeze and return for minutes, Java's consumer among them.

`tests.churning.churn` has the invariants. Each test prints its seed and the events.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.churning import SETTINGS
from tests.churning.churn import ALL, Churn, Plan, both
from tests.interop import jvm
from tests.support.broker_process import broker_process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PARTITIONS = 60


@pytest.fixture(scope="module")
def java() -> str:
    jvm.require("mvn", "javac", "java")
    return jvm.compiled()


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with broker_process(settings=SETTINGS) as bootstrap:
        yield bootstrap


async def churn(broker: str, java: str, name: str, plan: Plan, seconds: float) -> None:
    run = Churn(broker, name, plan, java)
    await run.run(seconds=seconds)
    print(f"\n{name}, seed {plan.seed}: {run.history}")


async def test_ten_members_of_all_clients_for_two_minutes(broker: str, java: str) -> None:
    plan = Plan(both(*ALL), PARTITIONS, "range,roundrobin", seed=21, at_least=7)
    await churn(broker, java, "eager", plan, 120)


async def test_ten_members_of_the_consumer_protocol_for_two_minutes(broker: str, java: str) -> None:
    """KIP-848. Java's consumer reports no error except its removal from the group."""
    slots = [*both("java", "confluent", "ours"), *both("confluent", "ours")]
    plan = Plan(slots, PARTITIONS, "uniform", seed=22, at_least=7, protocol="consumer")
    await churn(broker, java, "consumer", plan, 120)


async def test_cooperative_sticky_members_keep_their_partitions(broker: str, java: str) -> None:
    """KIP-429."""
    plan = Plan(
        both("java", "confluent", "kafka_python", "ours"), PARTITIONS, "cooperative-sticky", seed=23, at_least=5
    )
    await churn(broker, java, "cooperative", plan, 30)


async def test_sticky_members_report_their_previous_partitions(broker: str, java: str) -> None:
    """KIP-54."""
    plan = Plan(both("java", "kafka_python", "aiokafka", "ours"), PARTITIONS, "sticky", seed=24, at_least=5)
    await churn(broker, java, "sticky", plan, 30)
