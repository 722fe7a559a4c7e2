"""The producer's scenarios with our own broker, librdkafka's mock cluster and noida-db.

The same scenarios run with Apache Kafka in ``tests/interop``. Each stand-in's row names its missing features, and the
scenarios that need them are left out; `test_scenarios_left_out_for_each_broker_are_listed` pins the list.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from tests.support import foreign_brokers, producer_scenarios
from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.producer_scenarios import DROPS_REPEATS, EVERYTHING, KNOWS_NO_TOPIC, Peer

FEATURES = {
    "ours": EVERYTHING,
    # No CreateTopics, so no topic configuration; no check of sequence numbers; and kafka-python cannot use it.
    "librdkafka_mock": frozenset({KNOWS_NO_TOPIC}),
    # A duplicate is dropped, but the response has a wrong offset.
    "noida_db": EVERYTHING - {DROPS_REPEATS},
}
CASES = [(kind, name) for kind, features in FEATURES.items() for name in producer_scenarios.scenarios_for(features)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with broker_process(tmp_path_factory.mktemp("ours") / "data") as bootstrap:
        yield Peer(bootstrap)


@pytest.fixture(scope="module")
def librdkafka_mock() -> Iterator[Peer]:
    with foreign_brokers.librdkafka_mock() as bootstrap:
        yield Peer(bootstrap, FEATURES["librdkafka_mock"])


@pytest.fixture(scope="module")
def noida_db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with foreign_brokers.noida_db(tmp_path_factory.mktemp("noida")) as bootstrap:
        yield Peer(bootstrap, FEATURES["noida_db"])


@pytest.mark.parametrize(("kind", "name"), CASES)
async def test_producer(request: pytest.FixtureRequest, kind: str, name: str) -> None:
    await producer_scenarios.run(name, request.getfixturevalue(kind), f"topic-{uuid.uuid4().hex[:12]}")


async def test_order_survives_kills_and_restarts_of_our_broker(tmp_path: Path) -> None:
    """Its process is repeatedly killed or stopped cleanly, and started again on the same directory."""
    broker = BrokerProcess(tmp_path / "data")

    def disrupt(wait_for_answers: Callable[[int], None]) -> None:
        for signal_number in (signal.SIGKILL, signal.SIGTERM) * 2:
            wait_for_answers(100)
            broker.end(signal_number)
            broker.start()

    try:
        peer = Peer(broker.start())
        # Ten seconds of an idle machine; a machine with twenty times the load gets its share of the processor.
        with trio.fail_after(240):
            await producer_scenarios.through_trouble(peer, disrupt)
    finally:
        broker.close()


def test_scenarios_left_out_for_each_broker_are_listed() -> None:
    left_out = {kind: set(producer_scenarios.lacking(features)) for kind, features in FEATURES.items()}
    idempotence = {
        "broken_connections_repeat_nothing_with_idempotence",
        "broken_connections_repeat_nothing_with_one_request_in_flight",
    }
    configuration = {
        "broker_stamps_records_of_a_log_append_time_topic",
        "batch_that_is_too_large_is_split_and_a_record_that_is_fails",
    }
    assert left_out == {"ours": set(), "librdkafka_mock": idempotence | configuration, "noida_db": idempotence}
