"""Whole nodes of a cluster in a simulated world: each on a host of its own, with its disk, clock and network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.node import Node
from triokafka.testing import Simulation
from triokafka.world import World

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
BOTH = ("broker", "controller")
_BROKER_PORT = 9092
_CONTROLLER_PORT = 19092


class SimulatedNode:
    """One node, which can stop, be killed and start again on the disk that it had."""

    def __init__(self, cluster: SimulatedNodes, config: BrokerConfig) -> None:
        self.config = config
        self.node_id = config.node_id
        self.name = f"node-{config.node_id}"
        self.host = cluster.simulation.host(self.name)
        self._node: Node | None = None
        self._stop = trio.Event()
        self._started = trio.Event()
        self._ended = trio.Event()
        self._ended.set()
        self._cluster = cluster

    @property
    def node(self) -> Node:
        """The running node."""
        assert self._node is not None, f"{self.name} is stopped"
        return self._node

    @property
    def is_running(self) -> bool:
        """Whether the node has started and not stopped."""
        return self._node is not None and self._started.is_set()

    @property
    def image(self) -> MetadataImage:
        """The node's own metadata."""
        return self.node.metadata.image

    def begin(self) -> None:
        """Start the process, without waiting."""
        self._stop, self._started, self._ended = trio.Event(), trio.Event(), trio.Event()
        self.host.start(self._run)

    async def start(self) -> None:
        """Start the process and wait until the node has started."""
        self.begin()
        await self._started.wait()

    async def wait_started(self) -> None:
        """Wait until the node has started."""
        await self._started.wait()

    async def _run(self, world: World) -> None:
        try:
            self._node = Node(self.config, world=world, cluster_id=CLUSTER_ID)
            async with self._node:
                self._started.set()
                await self._stop.wait()
        finally:
            self._node = None
            self._ended.set()

    async def stop(self) -> None:
        """Stop the node cleanly."""
        self._stop.set()
        await self._ended.wait()

    async def kill(self, *, power_cut: bool = False) -> None:
        """End the process as SIGKILL does."""
        await self.host.kill(power_cut=power_cut)

    async def wait_for(self, condition: Callable[[MetadataImage], bool]) -> MetadataImage:
        """Wait until the node has applied metadata for which ``condition`` holds."""
        found = trio.Event()

        def published(delta: MetadataDelta, image: MetadataImage) -> None:
            if condition(image):
                found.set()

        publisher = self.node.metadata.publisher
        publisher.subscribe(published)
        try:
            await found.wait()
        finally:
            publisher.unsubscribe(published)
        return self.image


class SimulatedNodes:
    """The nodes of one cluster. Ids begin at 1; the first ``len(roles)`` ids have these roles."""

    def __init__(self, simulation: Simulation, roles: Sequence[Sequence[str]], **options: Any) -> None:
        self.simulation = simulation
        voters = tuple(
            f"{number}@127.0.0.1:{_CONTROLLER_PORT + number}"
            for number, own in enumerate(roles, start=1)
            if "controller" in own
        )
        self.nodes: list[SimulatedNode] = []
        for number, own in enumerate(roles, start=1):
            listeners = []
            if "broker" in own:
                listeners.append(f"PLAINTEXT://127.0.0.1:{_BROKER_PORT + number}")
            if "controller" in own:
                listeners.append(f"CONTROLLER://127.0.0.1:{_CONTROLLER_PORT + number}")
            config = BrokerConfig.for_tests(
                **{
                    "node_id": number,
                    "process_roles": tuple(own),
                    "listeners": tuple(listeners),
                    "controller_quorum_voters": voters,
                    "log_dirs": ("/data",),
                    **options,
                }
            )
            self.nodes.append(SimulatedNode(self, config))

    def __getitem__(self, node_id: int) -> SimulatedNode:
        return self.nodes[node_id - 1]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all running brokers."""
        return ",".join(one.node.addresses for one in self.nodes if one.is_running and one.config.is_broker)

    @property
    def active(self) -> SimulatedNode | None:
        """The node whose controller is active; None while there is none, or two believe it."""
        found = [one for one in self.nodes if one.is_running and one.node.is_active_controller]
        return found[0] if len(found) == 1 else None

    async def start(self) -> None:
        """Start all nodes at once, and wait until all have started."""
        for one in self.nodes:
            one.begin()
        for one in self.nodes:
            await one.wait_started()

    async def wait_active(self, *, other_than: SimulatedNode | None = None) -> SimulatedNode:
        """Wait until a controller is active, for at most a simulated minute."""
        with trio.fail_after(60):
            while (active := self.active) is None or active is other_than:
                await trio.sleep(0.05)
        return active

    async def stop(self) -> None:
        """Stop all running nodes at once."""
        async with trio.open_nursery() as nursery:
            for one in self.nodes:
                if one.is_running:
                    nursery.start_soon(one.stop)


@asynccontextmanager
async def simulated_nodes(
    simulation: Simulation, roles: Sequence[Sequence[str]] = (BOTH, BOTH, BOTH), **options: Any
) -> AsyncIterator[SimulatedNodes]:
    """Run a cluster for the length of the block."""
    cluster = SimulatedNodes(simulation, roles, **options)
    await cluster.start()
    yield cluster
    await cluster.stop()
