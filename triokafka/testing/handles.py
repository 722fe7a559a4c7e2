"""The common calls of the handles of a broker or a cluster, for code without Trio: plain threads, and asyncio.

The broker or cluster is the ``target``; it runs in the thread of the ``portal``. Any thread may make these calls, which
take milliseconds. The subclasses add the calls that wait, each in its own way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from triokafka.component_methods import delegated
from triokafka.testing.broker import RunningBroker
from triokafka.testing.cluster import RunningCluster
from triokafka.testing.fault_calls import FaultCalls
from triokafka.testing.portal import Portal

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")


def _called(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of a handle that calls ``method`` of its target in the target's thread."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._portal.call(getattr(self._target, name), *arguments, **options)
        return result

    return call


class BrokerHandle:
    """A `RunningBroker`, without the calls that wait."""

    def __init__(self, portal: Portal[Any], broker: RunningBroker) -> None:
        self._portal = portal
        self._target = broker
        self._fault_calls = FaultCalls(broker.faults)
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

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """`freeze` for the length of a block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


class ClusterHandle(Generic[B]):
    """A `RunningCluster`, without the calls that wait. ``handle`` makes the handle of each broker."""

    def __init__(
        self, portal: Portal[Any], cluster: RunningCluster, handle: Callable[[Portal[Any], RunningBroker], B]
    ) -> None:
        self._portal = portal
        self._target = cluster
        self._fault_calls = FaultCalls(cluster.faults)
        self.faults = cluster.faults
        self.brokers = [handle(portal, broker) for broker in cluster.brokers]
        """In the order of their ids."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, HOST:PORT, separated by commas; the same before and after restarts."""
        return self._target.bootstrap_servers

    @property
    def active_controller(self) -> int:
        """The id of the node whose controller is active; -1 while there is none."""
        return self._target.active_controller

    def broker(self, node_id: int) -> B:
        """Return the broker with that id.

        Raises:
            BrokerNotAvailableError: the cluster has no such broker.
        """
        return self.brokers[self._target.brokers.index(self._target.broker(node_id))]

    client_options = delegated("_target", RunningCluster.client_options)
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
