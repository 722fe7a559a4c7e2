"""`running_broker` and `running_cluster` for code without Trio: plain context managers, each with its own thread.

Their handles have the methods of `RunningBroker` and `RunningCluster`. Any thread may call them, also one with an event
loop: a call takes milliseconds, except a clean stop of a broker with work in progress. After the block no thread,
connection, port or file is left.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from triokafka.testing.broker import RunningBroker
from triokafka.testing.cluster import RunningCluster
from triokafka.testing.handles import BrokerHandle, ClusterHandle
from triokafka.testing.portal import Portal
from triokafka.testing.running import running_broker as _running_broker
from triokafka.testing.running import running_cluster as _running_cluster

__all__ = ["BlockingBroker", "BlockingCluster", "running_broker", "running_cluster"]

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def running_broker(**options: Any) -> Iterator[BlockingBroker]:
    """Run a broker in a thread for the length of the block; see `triokafka.testing.running_broker`."""
    portal = Portal(lambda: _running_broker(**options), name="triokafka broker")
    broker = portal.start()
    try:
        yield BlockingBroker(portal, broker)
    finally:
        portal.stop()


@contextmanager
def running_cluster(nodes: int = 3, **options: Any) -> Iterator[BlockingCluster]:
    """Run a cluster in a thread for the length of the block; see `triokafka.testing.running_cluster`."""
    portal = Portal(lambda: _running_cluster(nodes, **options), name="triokafka cluster")
    cluster = portal.start()
    try:
        yield BlockingCluster(portal, cluster)
    finally:
        portal.stop()


def _awaited(method: Callable[Concatenate[Any, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of a handle that waits for ``method`` of its target in the target's thread."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._portal.wait(getattr(self._target, name), *arguments, **options)
        return result

    return call


class BlockingBroker(BrokerHandle):
    """A `RunningBroker` for any thread: the same calls, which wait instead of being awaited."""

    start = _awaited(RunningBroker.start)
    kill = _awaited(RunningBroker.kill)
    stop = _awaited(RunningBroker.stop)
    restart = _awaited(RunningBroker.restart)
    move_leader = _awaited(RunningBroker.move_leader)
    move_coordinator = _awaited(RunningBroker.move_coordinator)
    create_topic = _awaited(RunningBroker.create_topic)
    delete_topic = _awaited(RunningBroker.delete_topic)


class BlockingCluster(ClusterHandle[BlockingBroker]):
    """A `RunningCluster` for any thread: the same calls, which wait instead of being awaited."""

    def __init__(self, portal: Portal[Any], cluster: RunningCluster) -> None:
        super().__init__(portal, cluster, BlockingBroker)

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
