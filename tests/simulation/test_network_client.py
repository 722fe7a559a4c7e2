"""The network client under random faults: every call ends in time, and after the faults everything works."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from tests.support.scripted_broker import CLOSE, SILENCE, Raw, ScriptedCluster
from tests.unit.network.test_network_client import ASK, addresses
from triokafka.errors import KafkaError
from triokafka.network.config import NetworkConfig
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.testing import Simulation, run_simulation

REQUEST_TIMEOUT = 2.0
LONGEST_CALL = 2 * REQUEST_TIMEOUT + 1.0  # one timeout for a connection, and one for a response
SECONDS = 30.0


class Trial:
    """One client, three brokers, and callers that call, cancel and call again."""

    def __init__(self, simulation: Simulation, client: NetworkClient, cluster: ScriptedCluster) -> None:
        self.simulation = simulation
        self.client = client
        self.cluster = cluster
        self.random: random.Random = simulation.random
        self.answered = 0
        self.failed = 0
        self.submitted = 0
        self.completed = 0

    async def call(self, until: float) -> None:
        """Make random calls repeatedly; some are cancelled at a random moment."""
        while trio.current_time() < until:
            limit = self.random.choice([0.01, 0.1, 1.0, LONGEST_CALL, LONGEST_CALL])
            started = trio.current_time()
            with trio.move_on_after(limit if limit < LONGEST_CALL else 100.0):
                try:
                    await self.one_call()
                    self.answered += 1
                except KafkaError:
                    self.failed += 1
            took = trio.current_time() - started
            assert took <= LONGEST_CALL, f"a call took {took:.3f} s"
            await trio.sleep(self.random.random() * 0.2)

    async def one_call(self) -> None:
        client = self.client
        node = self.random.choice(client.node_ids())
        match self.random.randrange(6):
            case 0:
                await client.send(node, ASK)
            case 1:
                await client.send(node, ASK, purpose="coordinator")
            case 2:
                await client.send_to_least_loaded(ASK)
            case 3:
                await client.metadata_for(["orders"], timeout_ms=REQUEST_TIMEOUT * 1000)
            case 4:
                await client.refresh_metadata(timeout_ms=REQUEST_TIMEOUT * 1000)
            case _:
                client.forget_coordinator("g")
                await client.find_coordinator("g")

    async def submit(self, until: float) -> None:
        """Act like the producer's sender: submit when ready, otherwise sleep until notified."""
        woken = trio.Event()

        def wake() -> None:
            woken.set()

        def done(response: Any, error: Exception | None) -> None:
            self.completed += 1

        self.client.add_listener(wake)
        while trio.current_time() < until:
            woken = trio.Event()
            wait = 0.5
            for node in self.client.node_ids():
                if self.client.ready(node):
                    self.submitted += 1
                    self.client.submit(node, ASK, self.client.version_for(node, MetadataRequest, max_version=9), done)
                wait = min(wait, self.client.ready_delay(node) + 0.001)
            with trio.move_on_after(wait):
                await woken.wait()
            await trio.sleep(self.random.random() * 0.2)

    async def break_things(self, until: float) -> None:
        """Brokers stop and come back, close connections, fall silent, throttle, and send malformed data."""
        network = self.simulation.network
        while trio.current_time() < until:
            await trio.sleep(self.random.random())
            broker = self.cluster.brokers[self.random.randint(1, 3)]
            match self.random.randrange(7):
                case 0:
                    port = broker.stop()
                    await trio.sleep(self.random.random() * 3)
                    await broker.start(self.simulation.nursery, port)
                case 1:
                    broker.cut()
                case 2:
                    kind = self.random.choice([MetadataRequest, ApiVersionsRequest])
                    broker.script(kind, self.random.choice([CLOSE, SILENCE, Raw(b"\x00\x00\x00\x09nonsense!")]))
                case 3:
                    broker.script(MetadataRequest, MetadataResponse(throttle_time_ms=self.random.randint(1, 500)))
                case 4:
                    network.partition("client", "broker")
                    await trio.sleep(self.random.random() * 3)
                    network.heal()
                case 5:
                    network.conditions.cut = self.random.choice([0.0, 0.02, 0.1])
                case _:
                    network.conditions.loss = self.random.choice([0.0, 0.1])


async def run(simulation: Simulation) -> None:
    cluster = ScriptedCluster(orders=3)
    await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=3)
    config = NetworkConfig(
        bootstrap_servers=addresses(cluster),
        request_timeout_ms=REQUEST_TIMEOUT * 1000,
        socket_connection_setup_timeout_ms=1000,
        socket_connection_setup_timeout_max_ms=2000,
        max_in_flight_requests_per_connection=2,
        connections_max_idle_ms=5000,
        metadata_max_age_ms=3000,
    )
    async with NetworkClient(config, world=simulation.host("client").world) as client:
        trial = Trial(simulation, client, cluster)
        until = trio.current_time() + SECONDS
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(trial.call, until)
            nursery.start_soon(trial.submit, until)
            nursery.start_soon(trial.break_things, until)
        simulation.network.heal()
        simulation.network.conditions.cut = simulation.network.conditions.loss = 0.0
        for broker in cluster.brokers.values():
            broker._scripts.clear()
        await trio.sleep(LONGEST_CALL)
        assert trial.completed == trial.submitted
        assert trial.answered > 30
        with trio.fail_after(10):
            assert sorted((await client.refresh_metadata(timeout_ms=10_000)).nodes) == [1, 2, 3]
            for node in (1, 2, 3):
                assert isinstance(await client.send(node, ASK), MetadataResponse)
            assert isinstance(await client.send_to_least_loaded(ASK), MetadataResponse)
        await trio.sleep(1)
        for channel in client._brokers.channels():
            assert channel.in_flight == 0


@pytest.mark.parametrize("seed", range(20))
def test_every_call_ends_in_time_and_all_work_after_the_faults(seed: int) -> None:
    run_simulation(run, seed)


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_every_call_ends_in_time_with_many_seeds(block: int) -> None:
    for seed in range(1000 + block * 50, 1050 + block * 50):
        run_simulation(run, seed)
