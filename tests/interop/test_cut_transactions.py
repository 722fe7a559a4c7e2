"""Transactions in a cluster of both programs whose network is cut in one direction: A hears B, and B does not hear A.

Every connection between nodes goes through a proxy. The Java producer, librdkafka's and ours commit and abort
transactions over all partitions, while the coordinator or the leader of the quorum is silent or deaf. After the network
has healed, every producer commits within 30 seconds. No committed transaction is lost, and none is torn, repeated or
visible too early.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.conformance.java_driver import java_process
from tests.interop import jvm
from tests.interop.client_thread import ClientThread
from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, mixed_cluster
from tests.interop.node_network import NodeNetwork, node_network
from tests.interop.transactional_java import JavaTransactions
from tests.support.transaction_history import TransactionHistory
from tests.support.transactional_drivers import (
    BlockingDriver,
    ConfluentDriver,
    Refused,
    TransactionalDriver,
    wait_until_stable,
)
from triokafka.structs import TopicPartition as Partition

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

TOPIC: Final = "cut"
PARTITIONS: Final = 3
NODES: Final = (1, 2, 3)
FAULT_SECONDS: Final = 6.0
HEALED_WITHIN: Final = 30.0
FAULTS: Final = ("silent coordinator", "deaf coordinator", "silent controller", "one way between two")


class SharedHistory:
    """The history of several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.history = TransactionHistory()


class Transactor:
    """A client with one transactional id. It replaces a producer that fails."""

    def __init__(self, name: str, make: Callable[[str], TransactionalDriver], shared: SharedHistory) -> None:
        self.commits = 0
        self.failures: list[str] = []
        self._name = name
        self._make = make
        self._shared = shared
        self._values = 0
        self.thread = ClientThread(name, self._run, ends_within=2 * TIMEOUT)

    def _run(self) -> None:
        while not self.thread.stopping.is_set():
            driver = self._make(self._name)
            try:
                driver.init()
                while not self.thread.stopping.is_set():
                    self._transact(driver)
            except Exception as error:  # of any client; the next producer fences this one
                self.failures.append(repr(error)[:200])
                self.thread.stopping.wait(0.2)
            finally:
                with suppress(Exception):
                    driver.close()

    def _transact(self, driver: TransactionalDriver) -> None:
        shared = self._shared
        with shared.lock:
            attempt = shared.history.begin(self._name)
        driver.begin()
        try:
            for number in range(PARTITIONS):
                self._values += 1
                value = b"%s-%d" % (self._name.encode(), self._values)
                with shared.lock:
                    shared.history.sent(attempt, value, Partition(TOPIC, number))
                driver.send(TOPIC, value, number)
            driver.flush()
            if attempt.number % 4 == 3:
                driver.abort()
                attempt.committed = False
                return
            attempt.commit_began = time.monotonic()
            driver.commit()
        except Refused as refused:
            if refused.fatal or attempt.commit_began is not None:
                raise
            self.failures.append(repr(refused)[:200])
            driver.abort()
            attempt.committed = False
        else:
            attempt.committed = True
            self.commits += 1


def reader(bootstrap: str, shared: SharedHistory) -> ClientThread:
    """Return a reader that records when it receives committed records."""

    def read() -> None:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0}
        )
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while not thread.stopping.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    with shared.lock:
                        shared.history.saw(message.value() or b"", time.monotonic())
        consumer.close()

    thread = ClientThread("reader", read, ends_within=TIMEOUT)
    return thread


def final_records(bootstrap: str) -> dict[Partition, list[bytes]]:
    """Return the committed records of every partition."""
    wait_until_stable(bootstrap, TOPIC, PARTITIONS)
    found: dict[Partition, list[bytes]] = {}
    for number in range(PARTITIONS):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, number, 0)])
        values = found[Partition(TOPIC, number)] = list[bytes]()
        deadline = time.monotonic() + TIMEOUT
        while True:
            assert time.monotonic() < deadline, f"partition {number} did not reach its end"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
            elif message is not None:
                break  # the end of the partition
        consumer.close()
    return found


def cut_one_way(cluster: MixedCluster, network: NodeNetwork, fault: str, chance: random.Random) -> str:
    """Cut the network in one direction; return a description."""
    (coordinator,) = cluster.leaders("__transaction_state")
    controller = cluster.active_controller()
    pairs: list[tuple[int, int]]
    match fault:
        case "silent coordinator":
            pairs = [(coordinator, other) for other in NODES if other != coordinator]
        case "deaf coordinator":
            pairs = [(other, coordinator) for other in NODES if other != coordinator]
        case "silent controller":
            pairs = [(controller, other) for other in NODES if other != controller]
        case "one way between two":
            one, other = chance.sample(NODES, 2)
            pairs = [(one, other)]
        case _:
            raise ValueError(fault)
    for source, destination in pairs:
        network.silence(source, destination)
    return f"{fault}: {pairs}, coordinator {coordinator}, controller {controller}"


def run(directory: Path, kafka: tuple[int, ...], faults: list[str], seed: int) -> list[float]:
    """Run a cluster through the faults; return how long each took to heal."""
    chance = random.Random(seed)
    members = [Member(number, kafka=number in kafka) for number in NODES]
    took: list[float] = []
    with ExitStack() as stack:
        network = stack.enter_context(node_network())
        cluster = stack.enter_context(mixed_cluster(directory, members, network))
        process = stack.enter_context(java_process(jvm.compiled()))
        cluster.create_topic(TOPIC, PARTITIONS)
        shared = SharedHistory()
        kinds: dict[str, Callable[[str], TransactionalDriver]] = {
            "ours": lambda name: BlockingDriver(cluster.bootstrap, name, 20_000),
            "librdkafka": lambda name: ConfluentDriver(cluster.bootstrap, name, 20_000),
            "java": lambda name: JavaTransactions(process, cluster.bootstrap, name, 20_000),
        }
        transactors = [Transactor(name, make, shared) for name, make in kinds.items()]
        with ExitStack() as work:
            for thread in (reader(cluster.bootstrap, shared), *(transactor.thread for transactor in transactors)):
                work.enter_context(thread.running())
            wait_for_commits(transactors, 3, TIMEOUT, "at the start")
            for fault in faults:
                description = cut_one_way(cluster, network, fault, chance)
                time.sleep(FAULT_SECONDS)  # the fault itself
                network.heal()
                took.append(wait_for_commits(transactors, 2, HEALED_WITHIN, description))
        shared.history.check(final_records(cluster.bootstrap))
        cluster.assert_replicas_equal(TOPIC, PARTITIONS)
        assert all(transactor.commits > 2 * len(faults) for transactor in transactors)
    return took


def wait_for_commits(transactors: list[Transactor], count: int, within: float, when: str) -> float:
    """Wait until every client has committed so many more transactions; return how long that took."""
    begun = time.monotonic()
    targets = [transactor.commits + count for transactor in transactors]
    while any(one.commits < target for one, target in zip(transactors, targets, strict=True)):
        state = {one._name: (one.commits, one.failures[-2:]) for one in transactors}
        assert time.monotonic() - begun < within, f"{when}: no progress for {within:.0f} s: {state}, before {targets}"
        time.sleep(0.05)
    return time.monotonic() - begun


@pytest.mark.parametrize("kafka", [(1, 2), (1,)], ids=["two_of_Apache_Kafka", "two_of_ours"])
def test_transactions_survive_cuts_in_one_direction(tmp_path: Path, kafka: tuple[int, ...]) -> None:
    jvm.require("mvn", "java")
    run(tmp_path, kafka, list(FAULTS), seed=1)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kafka", [(1, 2), (1,), ()], ids=["two_of_Apache_Kafka", "two_of_ours", "only_ours"])
def test_transactions_survive_many_cuts_in_one_direction(tmp_path: Path, kafka: tuple[int, ...]) -> None:
    jvm.require("mvn", "java")
    seed = random.randrange(10_000)
    print(f"seed {seed}")
    run(tmp_path, kafka, random.Random(seed).choices(FAULTS, k=40), seed)
