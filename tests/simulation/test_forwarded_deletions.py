"""DeleteTopics of old clients reaches the active controller from every broker."""

from __future__ import annotations

import pytest

from tests.support.simulated_cluster import SimulatedCluster
from triokafka.network.config import NetworkConfig
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from triokafka.testing import Simulation, run_simulation


@pytest.mark.parametrize("version", [1, 5, 6])
def test_every_broker_deletes_topics_for_clients_of_each_version(version: int) -> None:
    async def play(simulation: Simulation) -> None:
        cluster = SimulatedCluster(simulation)
        cluster.start()
        names = ["a", "b", "c"]
        await cluster.create_topics(dict.fromkeys(names, 1))
        config = NetworkConfig(bootstrap_servers=[(node.name, 9092) for node in cluster.nodes])
        async with NetworkClient(config, world=cluster.client_world()) as client:
            await client.refresh_metadata()
            for node, name in zip(cluster.nodes, names, strict=True):
                by_name = DeleteTopicsRequest(topic_names=[name], timeout_ms=5_000)
                by_either = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5_000)
                response = await client.send(
                    node.number, by_name if version < 6 else by_either, min_version=version, max_version=version
                )
                assert [one.error_code for one in response.responses] == [0], (node.name, response)
        await cluster.stop()

    run_simulation(play, 1)
