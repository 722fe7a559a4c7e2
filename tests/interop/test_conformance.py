"""The catalogue with all clients on all three brokers; the results are stored for ``docs/conformance.md``.

Our broker and Apache Kafka must pass all scenarios. The outcomes of noida-db are only recorded. The page must show the
results of this run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance import results
from tests.conformance.aiokafka_driver import AiokafkaDriver
from tests.conformance.catalogue import SETTINGS, Outcome, run_all, scenarios
from tests.conformance.confluent_driver import ConfluentDriver
from tests.conformance.driver import ClientDriver
from tests.conformance.java_driver import JavaDriver, JavaProcess, java_process
from tests.conformance.kafka_python_driver import KafkaPythonDriver
from tests.interop import jvm
from tests.support.broker_process import broker_process
from tests.support.foreign_brokers import noida_db

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

PATIENCE = 60.0
"""Nothing takes that long on a machine of its own; on a busy one a JVM may."""
NOIDA_PATIENCE = float(os.environ.get("NOIDA_PATIENCE", "10"))
"""So long is waited for everything that it does not do; a run that the page is to show gives it thirty seconds."""
Connect = Callable[[str, float], ClientDriver]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProcess]:
    jvm.require("mvn", "javac", "java")
    with java_process(jvm.compiled()) as process:
        yield process


@pytest.fixture(params=results.CLIENTS, scope="module")
def client(request: pytest.FixtureRequest) -> tuple[str, Connect]:
    """A client by name, and the function that connects it to a broker."""
    connects: dict[str, Connect] = {
        "confluent-kafka": ConfluentDriver,
        "kafka-python": KafkaPythonDriver,
        "aiokafka": AiokafkaDriver,
    }
    if request.param == "Java":
        process = request.getfixturevalue("java")
        return request.param, lambda bootstrap, patience: JavaDriver(process, bootstrap, patience)
    return request.param, connects[request.param]


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jvm.require("mvn", "java")
    settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with jvm.apache_kafka(tmp_path_factory.mktemp("apache"), **settings) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module")
def our_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker_process(tmp_path_factory.mktemp("ours") / "data", settings=SETTINGS) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module")
def noida(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with noida_db(tmp_path_factory.mktemp("noida") / "data") as bootstrap:
        yield bootstrap


def run_catalogue(broker: str, bootstrap: str, client: tuple[str, Connect], patience: float) -> dict[str, Outcome]:
    name, connect = client
    outcomes = run_all(scenarios(), lambda: connect(bootstrap, patience), patience)
    results.write_run(broker, name, scenarios(), outcomes)
    return outcomes


def assert_no_failures(outcomes: dict[str, Outcome]) -> None:
    failed = {name: outcome for name, outcome in outcomes.items() if outcome.state == "failed"}
    assert not failed, "\n".join(f"{name}: {outcome.text}\n{outcome.trace}" for name, outcome in failed.items())


def test_apache_kafka_passes_all_scenarios(apache_kafka: str, client: tuple[str, Connect]) -> None:
    """Otherwise a scenario would require a behaviour that no broker has."""
    assert_no_failures(run_catalogue("Apache Kafka", apache_kafka, client, PATIENCE))


def test_our_broker_passes_all_scenarios(our_broker: str, client: tuple[str, Connect]) -> None:
    assert_no_failures(run_catalogue("triokafka", our_broker, client, PATIENCE))


@pytest.mark.may_hang  # a third-party client that waits for a third-party broker is an outcome, too
def test_outcomes_of_noida_db_are_recorded(noida: str, client: tuple[str, Connect]) -> None:
    outcomes = run_catalogue("noida-db", noida, client, NOIDA_PATIENCE)
    assert len(outcomes) == len(scenarios())
    assert any(outcome.state == "passed" for outcome in outcomes.values())


def test_page_shows_the_outcomes_of_this_run() -> None:
    """`python -m tests.conformance.results` stores a run. For noida-db the page shows the stored run."""
    found, stored = results.collect(scenarios()), results.stored()
    assert stored["scenarios"].keys() == found["scenarios"].keys()
    for name, one in found["scenarios"].items():
        for broker in ("triokafka", "Apache Kafka"):
            states = {client: outcome[0] for client, outcome in one["outcomes"][broker].items()}
            shown = {client: outcome[0] for client, outcome in stored["scenarios"][name]["outcomes"][broker].items()}
            assert shown == states, f"{name} on {broker}"
