"""The catalogue on three nodes of one process: topics have three replicas, and leaders are spread over all brokers.

Every scenario that passes on one broker must pass there, even while leaders and coordinators move, except those in
`NOT_WHILE_LEADERS_MOVE`. Producers are idempotent while leaders move: others may then repeat and reorder records.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tests.conformance.aiokafka_driver import AiokafkaDriver
from tests.conformance.catalogue import SETTINGS, Outcome, run_all, scenarios
from tests.conformance.confluent_driver import ConfluentDriver
from tests.conformance.driver import ClientDriver
from tests.conformance.kafka_python_driver import KafkaPythonDriver
from triokafka.broker_stub.config import BrokerConfig
from triokafka.errors import KafkaError
from triokafka.testing.blocking import BlockingCluster, running_cluster

PATIENCE = 60.0
DRIVERS = [ConfluentDriver, KafkaPythonDriver, AiokafkaDriver]
OF_ONE_BROKER = {
    "topics/created",
    "topics/created_with_assignment",
    "topics/created_with_defaults",
    "topics/grown_with_assignment",
}
"""Scenarios that say that every replica is on the only broker there is."""
NOT_WHILE_LEADERS_MOVE = {
    "produce/acks_0": "a broker that no longer leads closes the connection, and nobody sends the record again",
    "produce/acks_1": "a former leader acknowledges alone what its successor does not have",
    "limits/min_insync_replicas_above_the_replicas": "it sends with acks=1",
    "members/new_protocol_static_member_comes_back": "a coordinator that has moved refuses the farewell, which "
    "librdkafka sends once; the instance is in use until its session ends",
}
"""Scenarios whose claims do not hold on Apache Kafka either while leaders and coordinators move, and why."""
MOVED = frozenset({5, 6, 14, 15, 16, 74})
"""Codes that say that a leader or a coordinator moves. Some clients hand them out instead of asking again: librdkafka's
DeleteRecords and look-up by time (FENCED_LEADER_EPOCH), kafka-python's DescribeGroups. librdkafka's consumer hands one
out and then never asks again for its committed offsets (its issue 5586). Then the scenario begins again."""
ATTEMPTS = 5
CHANGES = frozenset(
    {
        "create_topic",
        "create_topics",
        "create_partitions",
        "delete_topic",
        "delete_topics",
        "delete_topic_by_id",
        "alter_configs",
        "incremental_alter",
    }
)
"""Calls of a driver that change the metadata of the cluster."""
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


class Settling:
    """A driver whose changes of the cluster are known to all nodes when the call returns.

    Otherwise, as with Apache Kafka, the next call may reach a node that does not know them yet.
    """

    def __init__(self, driver: ClientDriver, running: BlockingCluster) -> None:
        self._driver = driver
        self._running = running

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._driver, name)
        if name not in CHANGES:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return found(*arguments, **options)
            finally:
                self._running.settle()

        return call


def verify(driver: type[ClientDriver], running: BlockingCluster, *, every: int = 1, moving: bool = False) -> None:
    """Run the scenarios, or every n-th of them, and fail with all failures."""
    known = {one.name for one in scenarios()}
    assert known >= OF_ONE_BROKER and known >= NOT_WHILE_LEADERS_MOVE.keys()
    left_out = OF_ONE_BROKER | (NOT_WHILE_LEADERS_MOVE.keys() if moving else set())
    chosen = [one for one in scenarios() if one.name not in left_out][::every]
    found: dict[str, Outcome] = {}
    for _ in range(ATTEMPTS if moving else 1):
        again = [one for one in chosen if one.name not in found or found[one.name].code in MOVED]
        found |= run_all(
            again,
            lambda: cast(ClientDriver, Settling(driver(running.bootstrap_servers, PATIENCE), running)),
            PATIENCE,
            replication=3,
            idempotent=moving,
        )
    assert len(found) == len(chosen)
    failed = {name: outcome for name, outcome in found.items() if outcome.state == "failed"}
    assert not failed, "\n".join(f"{name}: {outcome.text}\n{outcome.trace}" for name, outcome in failed.items())


def test_a_part_of_the_catalogue_holds_on_three_nodes_while_leaders_move() -> None:
    with cluster() as running, moving(running, pause=0.3) as moved:
        verify(ConfluentDriver, running, every=EVERY, moving=True)
    assert moved


@pytest.mark.long
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_catalogue_holds_on_three_nodes(driver: type[ClientDriver]) -> None:
    with cluster() as running:
        verify(driver, running)


@pytest.mark.long
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_catalogue_holds_on_three_nodes_while_leaders_move(driver: type[ClientDriver]) -> None:
    with cluster() as running, moving(running, pause=0.3) as moved:
        verify(driver, running, moving=True)
    assert moved
