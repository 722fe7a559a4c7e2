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

from triokafka.delegation import delegated
from triokafka.testing.brokers import running_broker as _running_broker
from triokafka.testing.brokers import running_cluster as _running_cluster
from triokafka.testing.cluster import RunningCluster
from triokafka.testing.fault_calls import FaultCalls
from triokafka.testing.portal import Portal
from triokafka.testing.running import RunningBroker

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


def _called(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of a handle that calls ``method`` of its target in the target's thread."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._portal.call(getattr(self._target, name), *arguments, **options)
        return result

    return call


def _awaited(method: Callable[Concatenate[Any, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of a handle that waits for ``method`` of its target in the target's thread."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._portal.wait(getattr(self._target, name), *arguments, **options)
        return result

    return call


class BlockingBroker:
    """A `RunningBroker` for any thread: the same calls, which wait instead of being awaited."""

    def __init__(self, portal: Portal[Any], broker: RunningBroker) -> None:
        self.faults = broker.faults  # each call is one step, so any thread may make it
        self._fault_calls = FaultCalls(broker.faults)
        self._portal = portal
        self._target = broker

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, HOST:PORT; the same before and after a restart."""
        return self._target.bootstrap_servers

    def client_options(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        """See `RunningBroker.client_options`."""
        return self._target.client_options(user, mechanism=mechanism)

    @property
    def node_id(self) -> int:
        """The broker's id in the cluster."""
        return self._target.node_id

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._target.is_running

    fail_next = delegated("_fault_calls", FaultCalls.fail_next)
    drop_replies = delegated("_fault_calls", FaultCalls.drop_replies)
    delay_replies = delegated("_fault_calls", FaultCalls.delay_replies)
    delay_requests = delegated("_fault_calls", FaultCalls.delay_requests)
    throttle = delegated("_fault_calls", FaultCalls.throttle)
    close_on = delegated("_fault_calls", FaultCalls.close_on)

    cut_connections = _called(RunningBroker.cut_connections)
    fill_disk = _called(RunningBroker.fill_disk)
    free_disk = _called(RunningBroker.free_disk)
    advance_clock = _called(RunningBroker.advance_clock)
    members = _called(RunningBroker.members)
    expire_member = _called(RunningBroker.expire_member)
    reset = _called(RunningBroker.reset)
    freeze = _called(RunningBroker.freeze)
    thaw = _called(RunningBroker.thaw)
    half_open = _called(RunningBroker.half_open)
    black_hole = _called(RunningBroker.black_hole)
    heal = _called(RunningBroker.heal)
    drip = _called(RunningBroker.drip)
    start = _awaited(RunningBroker.start)
    kill = _awaited(RunningBroker.kill)
    stop = _awaited(RunningBroker.stop)
    restart = _awaited(RunningBroker.restart)
    move_leader = _awaited(RunningBroker.move_leader)
    move_coordinator = _awaited(RunningBroker.move_coordinator)
    create_topic = _awaited(RunningBroker.create_topic)
    delete_topic = _awaited(RunningBroker.delete_topic)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """`freeze` for the length of a block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


class BlockingCluster:
    """A `RunningCluster` for any thread: the same calls, which wait instead of being awaited."""

    def __init__(self, portal: Portal[Any], cluster: RunningCluster) -> None:
        self.faults = cluster.faults
        self._fault_calls = FaultCalls(cluster.faults)
        self._portal = portal
        self._target = cluster
        self.brokers = [BlockingBroker(portal, broker) for broker in cluster.brokers]
        """In the order of their ids."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, HOST:PORT, separated by commas; the same before and after restarts."""
        return self._target.bootstrap_servers

    def client_options(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        """See `RunningCluster.client_options`."""
        return self._target.client_options(user, mechanism=mechanism)

    def broker(self, node_id: int) -> BlockingBroker:
        """Return the broker with that id.

        Raises:
            BrokerNotAvailableError: the cluster has no such broker.
        """
        return self.brokers[self._target.brokers.index(self._target.broker(node_id))]

    @property
    def active_controller(self) -> int:
        """The id of the node whose controller is active; -1 while there is none."""
        return self._target.active_controller

    fail_next = delegated("_fault_calls", FaultCalls.fail_next)
    drop_replies = delegated("_fault_calls", FaultCalls.drop_replies)
    delay_replies = delegated("_fault_calls", FaultCalls.delay_replies)
    delay_requests = delegated("_fault_calls", FaultCalls.delay_requests)
    throttle = delegated("_fault_calls", FaultCalls.throttle)
    close_on = delegated("_fault_calls", FaultCalls.close_on)

    cut_connections = _called(RunningCluster.cut_connections)
    fill_disk = _called(RunningCluster.fill_disk)
    free_disk = _called(RunningCluster.free_disk)
    advance_clock = _called(RunningCluster.advance_clock)
    members = _called(RunningCluster.members)
    expire_member = _called(RunningCluster.expire_member)
    reset = _called(RunningCluster.reset)
    leader = _called(RunningCluster.leader)
    partitions = _called(RunningCluster.partitions)
    leader_epoch = _called(RunningCluster.leader_epoch)
    coordinator = _called(RunningCluster.coordinator)
    pause = _called(RunningCluster.pause)
    resume = _called(RunningCluster.resume)
    partition_network = _called(RunningCluster.partition_network)
    heal = _called(RunningCluster.heal)
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
