"""Producers of one simulated world with scripted brokers, for tests that are decorated with ``simulated``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import triokafka
from tests.support.scripted_broker import ScriptedBroker, ScriptedCluster
from tests.support.simulated import current_simulation
from triokafka.protocol.api.produce import ProduceRequest


class Setup:
    """A scripted cluster, and the configuration that connects producers to it."""

    def __init__(self, cluster: ScriptedCluster, address: str, world: Any) -> None:
        self.cluster = cluster
        self.address = address
        self.world = world

    @property
    def broker(self) -> ScriptedBroker:
        """The first broker."""
        return self.cluster.brokers[1]

    @property
    def produced(self) -> list[Any]:
        """The Produce requests to the first broker."""
        return self.broker.seen(ProduceRequest)

    def producer(self, **options: Any) -> triokafka.Producer:
        """Return a producer for this cluster."""
        return triokafka.Producer(bootstrap_servers=self.address, world=self.world, **options)


@asynccontextmanager
async def scripted(*, nodes: int = 1, **topics: int) -> AsyncIterator[Setup]:
    """Return a scripted cluster with these topics and their partition counts; by default ``orders`` with one."""
    sim = current_simulation()
    cluster = ScriptedCluster(**(topics or {"orders": 1}))
    address = await cluster.start(sim.nursery, sim.host("broker").world, nodes=nodes)
    yield Setup(cluster, address, sim.host("client").world)


def memory_is_whole(producer: triokafka.Producer) -> bool:
    """Whether all buffer memory has been returned."""
    metrics = producer.metrics()
    return metrics["buffer_available_bytes"] == metrics["buffer_total_bytes"]
