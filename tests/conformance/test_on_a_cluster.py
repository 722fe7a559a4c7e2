"""The catalogue on three brokers of one process: what holds on one broker holds there, with leaders spread over all."""

from __future__ import annotations

import pytest

from tests.conformance.aiokafka_driver import AiokafkaDriver
from tests.conformance.catalogue import SETTINGS, run_all, scenarios
from tests.conformance.confluent_driver import ConfluentDriver
from tests.conformance.driver import ClientDriver
from tests.conformance.kafka_python_driver import KafkaPythonDriver
from tests.conformance.on_our_broker import check
from triokafka.broker_stub.config import BrokerConfig
from triokafka.testing.blocking import running_cluster

PATIENCE = 30.0
OF_ONE_BROKER = {
    "topics/created",
    "topics/created_with_assignment",
    "topics/created_with_defaults",
    "topics/grown_with_assignment",
}
"""Scenarios that say that every replica is on the only broker there is."""


@pytest.mark.long
@pytest.mark.parametrize("driver", [ConfluentDriver, KafkaPythonDriver, AiokafkaDriver])
def test_the_catalogue_holds_on_three_brokers(driver: type[ClientDriver]) -> None:
    chosen = [one for one in scenarios() if one.name not in OF_ONE_BROKER]
    parsed = BrokerConfig.from_properties(SETTINGS)
    options = {name.replace(".", "_"): getattr(parsed, name.replace(".", "_")) for name in SETTINGS}
    with running_cluster(nodes=3, **options) as cluster:
        outcomes = run_all(chosen, lambda: driver(cluster.bootstrap_servers, PATIENCE), PATIENCE)
    assert len(outcomes) == len(chosen) > 150
    for outcome in outcomes.values():
        check(outcome)
