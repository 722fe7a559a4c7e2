"""Our members with those of other clients in groups of Apache Kafka; `tests.churning.churn` has the invariants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from tests.churning import SETTINGS
from tests.churning.churn import ALL, Churn, Plan, both
from tests.interop import jvm

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PARTITIONS = 60


@pytest.fixture(scope="module")
def java() -> str:
    jvm.require("mvn", "javac", "java")
    return jvm.compiled()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with jvm.apache_kafka(tmp_path_factory.mktemp("kafka"), port=None, **settings) as bootstrap:
        yield bootstrap


@pytest.mark.parametrize(
    ("strategy", "clients"),
    [
        ("range", ALL),
        ("roundrobin", ALL),
        ("sticky", ("java", "kafka_python", "aiokafka", "ours")),
        ("cooperative-sticky", ("java", "confluent", "kafka_python", "ours")),
        ("consumer", ("java", "confluent", "ours")),
    ],
)
async def test_our_members_among_others_in_apache_kafka(
    apache: str, java: str, strategy: str, clients: tuple[str, ...]
) -> None:
    """No record is skipped, and none is read twice within a generation, whichever member leads."""
    protocol: Literal["classic", "consumer"] = "consumer" if strategy == "consumer" else "classic"
    named = "uniform" if strategy == "consumer" else strategy
    plan = Plan(both(*clients), PARTITIONS, named, seed=25, at_least=4, protocol=protocol)
    run = Churn(apache, f"apache-{strategy}", plan, java)
    await run.run(seconds=30)
    print(f"\n{strategy}, seed {plan.seed}: {run.history}")
