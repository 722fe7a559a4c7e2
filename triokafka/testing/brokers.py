"""Brokers in this process, for tests: one, or several that are a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from triokafka.testing.cluster import RunningCluster
from triokafka.testing.faulty_world import FaultyWorld
from triokafka.testing.running import RunningBroker
from triokafka.world import RealWorld, World
from triokafka.world_memory import MemoryStorage

_DATA = "/data"


@asynccontextmanager
async def running_broker(*, world: World | None = None, **options: Any) -> AsyncIterator[RunningBroker]:
    """Run a broker in this process for the length of the block; ``broker.bootstrap_servers`` is its address.

    It listens on a free loopback port and keeps everything in memory. ``options`` are broker options under Kafka's
    names in snake_case (``num_partitions=3``), ``world`` the world to run in (the real one when left out; pass a
    simulated host's to run it there). Leaving the block stops it cleanly, also when the body raised or was cancelled;
    the body's exception leaves as itself.

    Raises:
        ConfigurationError: an option is unknown or its value cannot be used.
    """
    from triokafka.broker_stub.config import BrokerConfig

    config = BrokerConfig.for_tests(**{"log_dirs": (_DATA,), **options})
    async with _running() as nursery:
        broker = RunningBroker(config, _world(world), nursery)
        try:
            await broker.start()
            yield broker
        finally:
            with trio.CancelScope(shield=True):
                await broker.stop()
            broker.let_go()


@asynccontextmanager
async def running_cluster(
    nodes: int = 3, *, world: World | None = None, **options: Any
) -> AsyncIterator[RunningCluster]:
    """Run ``nodes`` brokers in this process for the length of the block, with the ids 1, 2, …: one cluster.

    Every broker listens on a port of its own. New topics have a replica on up to three brokers, and each partition has
    one leader, which the test can move; when a broker stops, others lead what they have replicas of. All replicas of a
    partition are one log, so that every replica is in sync, always. Arguments and errors are those of `running_broker`.
    """
    from triokafka.broker_stub.config import BrokerConfig

    if nodes < 1:
        raise ValueError(f"a cluster has at least one node, not {nodes}")
    replicas = min(nodes, 3)
    config = BrokerConfig.for_tests(
        **{
            "log_dirs": (_DATA,),
            "default_replication_factor": replicas,
            "offsets_topic_replication_factor": replicas,
            # Leaders are where the test has put them.
            "auto_leader_rebalance_enable": False,
            **options,
        }
    )
    async with _running() as nursery:
        cluster = RunningCluster(config, nodes, _world(world), nursery)
        try:
            await cluster.start()
            yield cluster
        finally:
            await cluster.end()


def _world(world: World | None) -> FaultyWorld:
    if world is None:
        world = RealWorld()
        world.storage = MemoryStorage(crashable=False)
    return FaultyWorld(world)


@asynccontextmanager
async def _running() -> AsyncIterator[trio.Nursery]:
    """A nursery that is cancelled at the end, and does not wrap the only exception."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
