"""`running_broker` and `running_cluster` for asyncio: asynchronous context managers, each with its own thread.

Their handles have the methods of `RunningBroker` and `RunningCluster`. Those that are coroutines there are coroutines
here, and leave the loop to other tasks. Under anyio they work with its asyncio backend; a Trio program uses
`triokafka.testing` itself. After the block no thread, connection, port or file is left.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from triokafka.delegation import delegated
from triokafka.testing.blocking import BlockingBroker, BlockingCluster
from triokafka.testing.brokers import running_broker as _running_broker
from triokafka.testing.brokers import running_cluster as _running_cluster
from triokafka.testing.cluster import RunningCluster
from triokafka.testing.portal import Portal
from triokafka.testing.running import RunningBroker

__all__ = ["AsyncioBroker", "AsyncioCluster", "running_broker", "running_cluster"]

P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def running_broker(**options: Any) -> AsyncIterator[AsyncioBroker]:
    """Run a broker in a thread for the length of the block; see `triokafka.testing.running_broker`."""
    portal = Portal(lambda: _running_broker(**options), name="triokafka broker")
    async with _entered(portal) as broker:
        yield AsyncioBroker(portal, broker)


@asynccontextmanager
async def running_cluster(nodes: int = 3, **options: Any) -> AsyncIterator[AsyncioCluster]:
    """Run a cluster in a thread for the length of the block; see `triokafka.testing.running_cluster`."""
    portal = Portal(lambda: _running_cluster(nodes, **options), name="triokafka cluster")
    async with _entered(portal) as cluster:
        yield AsyncioCluster(portal, cluster)


@asynccontextmanager
async def _entered(portal: Portal[T]) -> AsyncIterator[T]:
    try:
        yield await asyncio.shield(asyncio.wrap_future(portal.begin()))
    finally:
        await asyncio.shield(asyncio.to_thread(portal.stop))


def _awaited(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a method of a handle that awaits ``method`` of its target in the target's thread.

    Cancelling the call does not end the work.
    """
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        done = self._portal.submit(getattr(self._target, name), *arguments, **options)
        result: T = await asyncio.shield(asyncio.wrap_future(done))
        return result

    return call


class AsyncioBroker:
    """A `RunningBroker` for tasks of asyncio. Calls that are not coroutines take milliseconds."""

    def __init__(self, portal: Portal[Any], broker: RunningBroker) -> None:
        self._portal = portal
        self._target = broker
        self._steps = BlockingBroker(portal, broker)
        self.faults = broker.faults
        """The broker's faults; each call is one step, so any thread may make it."""

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, HOST:PORT; the same before and after a restart."""
        return self._target.bootstrap_servers

    @property
    def node_id(self) -> int:
        """The broker's id in the cluster."""
        return self._target.node_id

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._target.is_running

    client_options = delegated("_target", RunningBroker.client_options)
    fail_next = delegated("_steps", BlockingBroker.fail_next)
    drop_replies = delegated("_steps", BlockingBroker.drop_replies)
    delay_replies = delegated("_steps", BlockingBroker.delay_replies)
    delay_requests = delegated("_steps", BlockingBroker.delay_requests)
    throttle = delegated("_steps", BlockingBroker.throttle)
    close_on = delegated("_steps", BlockingBroker.close_on)
    cut_connections = delegated("_steps", BlockingBroker.cut_connections)
    fill_disk = delegated("_steps", BlockingBroker.fill_disk)
    free_disk = delegated("_steps", BlockingBroker.free_disk)
    advance_clock = delegated("_steps", BlockingBroker.advance_clock)
    members = delegated("_steps", BlockingBroker.members)
    expire_member = delegated("_steps", BlockingBroker.expire_member)
    reset = delegated("_steps", BlockingBroker.reset)
    freeze = delegated("_steps", BlockingBroker.freeze)
    thaw = delegated("_steps", BlockingBroker.thaw)
    frozen = delegated("_steps", BlockingBroker.frozen)
    half_open = delegated("_steps", BlockingBroker.half_open)
    black_hole = delegated("_steps", BlockingBroker.black_hole)
    heal = delegated("_steps", BlockingBroker.heal)
    drip = delegated("_steps", BlockingBroker.drip)
    start = _awaited(RunningBroker.start)
    kill = _awaited(RunningBroker.kill)
    stop = _awaited(RunningBroker.stop)
    restart = _awaited(RunningBroker.restart)
    move_leader = _awaited(RunningBroker.move_leader)
    move_coordinator = _awaited(RunningBroker.move_coordinator)
    create_topic = _awaited(RunningBroker.create_topic)
    delete_topic = _awaited(RunningBroker.delete_topic)


class AsyncioCluster:
    """A `RunningCluster` for tasks of asyncio. Calls that are not coroutines take milliseconds."""

    def __init__(self, portal: Portal[Any], cluster: RunningCluster) -> None:
        self._portal = portal
        self._target = cluster
        self._steps = BlockingCluster(portal, cluster)
        self.faults = cluster.faults
        self.brokers = [AsyncioBroker(portal, broker) for broker in cluster.brokers]
        """In the order of their ids."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, HOST:PORT, separated by commas; the same before and after restarts."""
        return self._target.bootstrap_servers

    @property
    def active_controller(self) -> int:
        """The id of the node whose controller is active; -1 while there is none."""
        return self._target.active_controller

    def broker(self, node_id: int) -> AsyncioBroker:
        """Return the broker with that id.

        Raises:
            BrokerNotAvailableError: the cluster has no such broker.
        """
        return self.brokers[self._target.brokers.index(self._target.broker(node_id))]

    client_options = delegated("_target", RunningCluster.client_options)
    fail_next = delegated("_steps", BlockingCluster.fail_next)
    drop_replies = delegated("_steps", BlockingCluster.drop_replies)
    delay_replies = delegated("_steps", BlockingCluster.delay_replies)
    delay_requests = delegated("_steps", BlockingCluster.delay_requests)
    throttle = delegated("_steps", BlockingCluster.throttle)
    close_on = delegated("_steps", BlockingCluster.close_on)
    cut_connections = delegated("_steps", BlockingCluster.cut_connections)
    fill_disk = delegated("_steps", BlockingCluster.fill_disk)
    free_disk = delegated("_steps", BlockingCluster.free_disk)
    advance_clock = delegated("_steps", BlockingCluster.advance_clock)
    members = delegated("_steps", BlockingCluster.members)
    expire_member = delegated("_steps", BlockingCluster.expire_member)
    reset = delegated("_steps", BlockingCluster.reset)
    leader = delegated("_steps", BlockingCluster.leader)
    partitions = delegated("_steps", BlockingCluster.partitions)
    leader_epoch = delegated("_steps", BlockingCluster.leader_epoch)
    coordinator = delegated("_steps", BlockingCluster.coordinator)
    pause = delegated("_steps", BlockingCluster.pause)
    resume = delegated("_steps", BlockingCluster.resume)
    partition_network = delegated("_steps", BlockingCluster.partition_network)
    heal = delegated("_steps", BlockingCluster.heal)
    start = _awaited(RunningCluster.start)
    kill = _awaited(RunningCluster.kill)
    start_broker = _awaited(RunningCluster.start_broker)
    stop = _awaited(RunningCluster.stop)
    restart = _awaited(RunningCluster.restart)
    settle = _awaited(RunningCluster.settle)
    move_leader = _awaited(RunningCluster.move_leader)
    move_coordinator = _awaited(RunningCluster.move_coordinator)
    create_topic = _awaited(RunningCluster.create_topic)
    delete_topic = _awaited(RunningCluster.delete_topic)
