"""The nodes of a demo's cluster: find a node by its job, kill it, measure the outage, and start it again."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

import triokafka
from triokafka.cli.cluster.layout import ClusterLayout
from triokafka.cli.cluster.processes import ChildProcess, start_all
from triokafka.errors import KafkaError, KafkaTimeoutError

_SETTINGS = {
    # A dead node is found after three seconds instead of Kafka's nine: the demo is short.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
_TIMEOUT = 60
_ASK_EVERY = 0.1


class DemoCluster:
    """Three or more nodes, each a process, of which the demo kills some. Made by `demo_cluster`."""

    def __init__(self, nodes: list[ChildProcess], nursery: trio.Nursery) -> None:
        self.bootstrap = ",".join(node.layout.address for node in nodes)
        self._nodes = {node.node_id: node for node in nodes}
        self._nursery = nursery

    async def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition."""

        async def ask(admin: triokafka.AdminClient) -> int | None:
            description = (await admin.describe_topics([topic]))[topic].partitions[partition]
            return description.leader.node_id if description.leader is not None else None

        return await self._ask(ask, f"{topic}-{partition} has no leader")

    async def coordinator(self, group_id: str) -> int:
        """Return the id of the broker that coordinates a group."""

        async def ask(admin: triokafka.AdminClient) -> int | None:
            return (await admin.describe_groups([group_id]))[group_id].coordinator.node_id

        return await self._ask(ask, f"the group {group_id} has no coordinator")

    async def controller(self) -> int:
        """Return the id of the active controller."""

        async def ask(admin: triokafka.AdminClient) -> int | None:
            leader = (await admin.describe_metadata_quorum()).leader_id
            return leader if leader >= 0 else None

        return await self._ask(ask, "there is no active controller")

    async def wait_in_sync(self, topic: str) -> None:
        """Wait until every replica of the topic is in sync."""

        async def ask(admin: triokafka.AdminClient) -> int | None:
            partitions = (await admin.describe_topics([topic]))[topic].partitions
            return 1 if all(set(one.isr) == set(one.replicas) and one.leader for one in partitions) else None

        await self._ask(ask, f"the replicas of {topic} are not in sync")

    async def _ask(self, question: Callable[[triokafka.AdminClient], Awaitable[int | None]], why: str) -> int:
        with trio.move_on_after(_TIMEOUT):
            async with triokafka.AdminClient(bootstrap_servers=self.bootstrap) as admin:
                while True:
                    try:
                        answer = await question(admin)
                    except KafkaError:
                        answer = None  # a failover is in progress
                    if answer is not None:
                        return answer
                    await trio.sleep(_ASK_EVERY)
        raise KafkaTimeoutError(f"{why} after {_TIMEOUT} seconds")

    def kill(self, node_id: int) -> None:
        """End a node with SIGKILL."""
        self._nodes[node_id].kill()

    async def restart(self, node_id: int) -> None:
        """Start a killed node again, and wait until it accepts connections."""
        node = self._nodes[node_id]
        ready = node.ready
        self._nursery.start_soon(node.run)
        with trio.move_on_after(_TIMEOUT):
            await ready.wait()
            return
        raise KafkaTimeoutError(f"node {node_id} did not start again within {_TIMEOUT} seconds: {node.last_words()}")


@asynccontextmanager
async def demo_cluster(directory: str, count: int) -> AsyncIterator[DemoCluster]:
    """Run ``count`` nodes on free loopback ports for the length of the block."""
    layout = ClusterLayout.of(directory, count, "127.0.0.1", 0, _SETTINGS)
    os.makedirs(directory, exist_ok=True)
    nodes = [ChildProcess(node) for node in layout.nodes]
    async with trio.open_nursery() as nursery:
        await start_all(nodes, layout.cluster_id, nursery, lambda _node, _status: None)
        yield DemoCluster(nodes, nursery)
        nursery.cancel_scope.cancel()
