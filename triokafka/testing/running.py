"""Brokers in this process, for tests: one, or several that are a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import trio

from triokafka.testing.block_nursery import block_nursery
from triokafka.testing.broker import RunningBroker
from triokafka.testing.cluster import RunningCluster
from triokafka.testing.cluster_layout import check_size
from triokafka.testing.nodes import new_broker, new_cluster
from triokafka.trio_context import require_trio
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.testing.security import BrokerSecurity
    from triokafka.testing.simulation_run import Simulation

_DATA = "/data"


@asynccontextmanager
async def running_broker(
    *,
    world: World | None = None,
    tls: bool = False,
    users: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> AsyncIterator[RunningBroker]:
    """Run a broker in this process for the length of the block; ``broker.bootstrap_servers`` is its address.

    It listens on a free loopback port and keeps everything in memory. ``options`` are broker options under Kafka's
    names in snake_case (``num_partitions=3``), ``world`` the world to run in (the real one when left out; pass a
    simulated host's to run it there).

    With ``tls`` the broker has a certificate of an authority made for it (package trustme). With ``users``, names and
    their passwords, clients must log in, by PLAIN, SCRAM or OAUTHBEARER with unsecured tokens. `client_options` of the
    broker returns what a client needs.

    Leaving the block stops it cleanly, also when the body raised or was cancelled;
    the body's exception leaves as itself.

    Raises:
        ConfigurationError: an option is unknown or its value cannot be used.
    """
    require_trio("running_broker()", asyncio="triokafka.testing.asyncio", blocking="triokafka.testing.blocking")
    from triokafka.broker_stub.config import BrokerConfig

    security = _security(tls, users)
    if security is not None:
        options = {**security.broker_options(), **options}
    config = BrokerConfig.for_tests(**{"log_dirs": (_DATA,), **_known(options)})
    async with running(config, world, None, security=security) as broker:
        assert isinstance(broker, RunningBroker)
        yield broker


@asynccontextmanager
async def running_cluster(
    nodes: int = 3,
    *,
    controllers: int | None = None,
    world: World | None = None,
    simulation: Simulation | None = None,
    tls: bool = False,
    users: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> AsyncIterator[RunningCluster]:
    """Run ``nodes`` brokers in this process for the length of the block, with the ids 1, 2, …: one cluster.

    Every node has its own ports, metadata log and logs, and replicates from the leaders. The first ``controllers``
    nodes are controllers, too, and form the quorum: by default three, or one of one or two nodes. New topics have
    replicas on up to three brokers, and each partition has one leader, which the test can move; when a broker stops,
    others lead the partitions of which they have replicas.

    With ``simulation`` every node has a host of its own in the simulated world, ``node-1`` and so on, with its own
    clock, and listens on port 9092 there. Other arguments and errors are those of `running_broker`; with ``world`` all
    nodes share that world's disk.

    With ``tls`` and ``users`` clients and brokers connect as with `running_broker`; brokers log in to each other as the
    first user. Connections to the controllers stay in plain text.
    """
    require_trio("running_cluster()", asyncio="triokafka.testing.asyncio", blocking="triokafka.testing.blocking")
    from triokafka.broker_stub.config import BrokerConfig

    check_size(nodes, controllers)
    if world is not None and simulation is not None:
        raise ValueError("a cluster runs in one world, or on the hosts of a simulation, not both")
    security = _security(tls, users, hosts=[] if simulation is None else [f"node-{one + 1}" for one in range(nodes)])
    if security is not None:
        options = {**security.broker_options(), **options}
    replicas = min(nodes, 3)
    config = BrokerConfig.for_tests(
        **{
            "log_dirs": (_DATA,),
            "default_replication_factor": replicas,
            "offsets_topic_replication_factor": replicas,
            "transaction_state_log_replication_factor": replicas,
            # Leaders stay where the test has moved them.
            "auto_leader_rebalance_enable": False,
            # Followers see new partitions and brokers leave quickly.
            "replica_fetch_backoff_ms": 100,
            "broker_heartbeat_interval_ms": 250,
            "controller_quorum_append_linger_ms": 0,
            **_known(options),
        }
    )
    async with running(
        config, world, nodes, controllers=controllers, simulation=simulation, security=security
    ) as cluster:
        assert isinstance(cluster, RunningCluster)
        yield cluster


@asynccontextmanager
async def running(
    config: BrokerConfig,
    world: World | None,
    nodes: int | None,
    *,
    controllers: int | None = None,
    simulation: Simulation | None = None,
    security: BrokerSecurity | None = None,
) -> AsyncIterator[RunningBroker | RunningCluster]:
    """Run one broker, or a cluster of ``nodes``, with a configuration as it is; see `running_broker`."""
    async with block_nursery() as nursery:
        target: RunningBroker | RunningCluster
        if nodes is None:
            target = new_broker(config, world, nursery, security)
        else:
            target = await new_cluster(config, nodes, controllers, world, simulation, nursery, security)
        try:
            await target.start()
            yield target
        finally:
            with trio.CancelScope(shield=True):
                await target.end()


def _security(tls: bool, users: Mapping[str, str], hosts: Iterable[str] = ()) -> BrokerSecurity | None:
    if not tls and not users:
        return None
    from triokafka.testing.security import BrokerSecurity  # not needed for PLAINTEXT

    return BrokerSecurity(tls=tls, users=users, hosts=hosts)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.config.definition import unknown_option

    known = [field.name for field in fields(BrokerConfig)]
    for name in options:
        if name not in known:
            raise unknown_option(name, known)
    return options
