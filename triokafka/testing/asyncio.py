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

from triokafka.testing.broker import RunningBroker
from triokafka.testing.cluster import RunningCluster
from triokafka.testing.handles import BrokerHandle, ClusterHandle
from triokafka.testing.portal import Portal
from triokafka.testing.running import running_broker as _running_broker
from triokafka.testing.running import running_cluster as _running_cluster

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


class AsyncioBroker(BrokerHandle):
    """A `RunningBroker` for tasks of asyncio. Calls that are not coroutines take milliseconds."""

    start = _awaited(RunningBroker.start)
    kill = _awaited(RunningBroker.kill)
    stop = _awaited(RunningBroker.stop)
    restart = _awaited(RunningBroker.restart)
    move_leader = _awaited(RunningBroker.move_leader)
    move_coordinator = _awaited(RunningBroker.move_coordinator)
    create_topic = _awaited(RunningBroker.create_topic)
    delete_topic = _awaited(RunningBroker.delete_topic)


class AsyncioCluster(ClusterHandle[AsyncioBroker]):
    """A `RunningCluster` for tasks of asyncio. Calls that are not coroutines take milliseconds."""

    def __init__(self, portal: Portal[Any], cluster: RunningCluster) -> None:
        super().__init__(portal, cluster, AsyncioBroker)

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
