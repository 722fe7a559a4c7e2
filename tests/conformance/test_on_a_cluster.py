"""The catalogue on three nodes of one process: topics have three replicas, and leaders are spread over all brokers.

What holds on one broker holds there, also while leaders and coordinators move.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conformance.aiokafka_driver import AiokafkaDriver
from tests.conformance.catalogue import SETTINGS, Outcome, run_all, scenarios
from tests.conformance.confluent_driver import ConfluentDriver
from tests.conformance.driver import ClientDriver
from tests.conformance.kafka_python_driver import KafkaPythonDriver
from tests.conformance.on_our_broker import check
from triokafka.broker_stub.config import BrokerConfig
from triokafka.errors import KafkaError
from triokafka.testing.blocking import BlockingCluster, running_cluster

PATIENCE = 60.0
OF_ONE_BROKER = {
    "topics/created",
    "topics/created_with_assignment",
    "topics/created_with_defaults",
    "topics/grown_with_assignment",
}
"""Scenarios that say that every replica is on the only broker there is."""
EVERY = 9
"""`make test` runs every ninth scenario here."""


@contextmanager
def cluster() -> Iterator[BlockingCluster]:
    """Three nodes, configured for the scenarios."""
    parsed = BrokerConfig.from_properties(SETTINGS)
    options = {name.replace(".", "_"): getattr(parsed, name.replace(".", "_")) for name in SETTINGS}
    options["offsets_topic_replication_factor"] = 3
    with running_cluster(nodes=3, **options) as running:
        yield running


@contextmanager
def moving(running: BlockingCluster, *, pause: float) -> Iterator[list[int]]:
    """Move the leader of some partition every ``pause`` seconds; yields the new leaders."""
    chance, done, moved = random.Random(1), threading.Event(), list[int]()

    def move() -> None:
        while not done.wait(pause):
            partitions = running.partitions()
            if not partitions:
                continue
            try:
                moved.append(running.move_leader(*chance.choice(partitions)))
            except KafkaError:
                continue  # the scenario has deleted the topic

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield moved
    finally:
        done.set()
        thread.join()


def outcomes(driver: type[ClientDriver], running: BlockingCluster, *, every: int = 1) -> dict[str, Outcome]:
    """Run the scenarios, or every so many."""
    chosen = [one for one in scenarios() if one.name not in OF_ONE_BROKER][::every]
    found = run_all(chosen, lambda: driver(running.bootstrap_servers, PATIENCE), PATIENCE, replication=3)
    assert len(found) == len(chosen)
    return found


def test_a_part_of_the_catalogue_holds_on_three_nodes_while_leaders_move() -> None:
    with cluster() as running, moving(running, pause=0.3) as moved:
        found = outcomes(ConfluentDriver, running, every=EVERY)
    assert moved
    for outcome in found.values():
        check(outcome)


@pytest.mark.long
@pytest.mark.parametrize("driver", [ConfluentDriver, KafkaPythonDriver, AiokafkaDriver])
def test_the_catalogue_holds_on_three_nodes(driver: type[ClientDriver]) -> None:
    with cluster() as running:
        found = outcomes(driver, running)
    assert len(found) > 150
    for outcome in found.values():
        check(outcome)


@pytest.mark.long
@pytest.mark.parametrize("driver", [ConfluentDriver, KafkaPythonDriver, AiokafkaDriver])
def test_the_catalogue_holds_on_three_nodes_while_leaders_move(driver: type[ClientDriver]) -> None:
    with cluster() as running, moving(running, pause=0.3) as moved:
        found = outcomes(driver, running)
    assert moved
    for outcome in found.values():
        check(outcome)
