"""`running_broker` and `running_cluster` for code without Trio: plain context managers, in a thread of their own.

Their handles have the methods of `RunningBroker` and `RunningCluster`, which here may be called from any thread, also
from one with an event loop: a call takes milliseconds at most, but for a clean stop of a broker with work in progress.
Once the block is left, no thread, connection, port or file of theirs is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from triokafka.testing.brokers import running_broker as _running_broker
from triokafka.testing.brokers import running_cluster as _running_cluster
from triokafka.testing.cluster import RunningCluster
from triokafka.testing.fault_calls import FaultCalls
from triokafka.testing.portal import Portal
from triokafka.testing.running import RunningBroker

if TYPE_CHECKING:
    from triokafka.coordinator.group.members import KnownMember

__all__ = ["BlockingBroker", "BlockingCluster", "running_broker", "running_cluster"]


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


class _Handle(FaultCalls):
    """What a broker and a cluster have in common."""

    def __init__(self, portal: Portal[Any], target: RunningBroker | RunningCluster) -> None:
        self.faults = target.faults  # armed and disarmed from any thread: one step each
        self._portal = portal
        self._target = target

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: HOST:PORT, several separated by commas; the same before and after a restart."""
        return self._target.bootstrap_servers

    def cut_connections(self) -> int:
        """See `RunningBroker.cut_connections`."""
        return self._portal.call(self._target.cut_connections)

    def fill_disk(self, *, free_bytes: int = 0) -> None:
        """See `RunningBroker.fill_disk`."""
        self._portal.call(self._target.fill_disk, free_bytes=free_bytes)

    def free_disk(self) -> None:
        """See `RunningBroker.free_disk`."""
        self._portal.call(self._target.free_disk)

    def advance_clock(self, ms: int) -> None:
        """See `RunningBroker.advance_clock`."""
        self._portal.call(self._target.advance_clock, ms)

    def members(self, group: str) -> list[KnownMember]:
        """See `RunningBroker.members`."""
        return self._portal.call(self._target.members, group)

    def expire_member(self, group: str, member: str | None = None) -> str:
        """See `RunningBroker.expire_member`."""
        return self._portal.call(self._target.expire_member, group, member)

    def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """See `RunningBroker.move_leader`."""
        return self._portal.wait(self._target.move_leader, topic, partition, to=to)

    def move_coordinator(self, group: str, *, to: int | None = None) -> int:
        """See `RunningBroker.move_coordinator`."""
        return self._portal.wait(self._target.move_coordinator, group, to=to)

    def reset(self) -> None:
        """See `RunningBroker.reset`."""
        self._portal.call(self._target.reset)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """See `RunningBroker.create_topic`."""
        self._portal.wait(
            self._target.create_topic,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
        )

    def delete_topic(self, name: str) -> None:
        """See `RunningBroker.delete_topic`."""
        self._portal.wait(self._target.delete_topic, name)


class BlockingBroker(_Handle):
    """A `RunningBroker`, for any thread."""

    def __init__(self, portal: Portal[Any], broker: RunningBroker) -> None:
        super().__init__(portal, broker)
        self._broker = broker

    @property
    def node_id(self) -> int:
        """Its id in the cluster."""
        return self._broker.node_id

    @property
    def is_running(self) -> bool:
        """Whether it is up."""
        return self._broker.is_running

    def start(self) -> None:
        """See `RunningBroker.start`."""
        self._portal.wait(self._broker.start)

    def stop(self, *, clean: bool = True) -> None:
        """See `RunningBroker.stop`."""
        self._portal.wait(self._broker.stop, clean=clean)

    def restart(self, *, clean: bool = True) -> None:
        """See `RunningBroker.restart`."""
        self._portal.wait(self._broker.restart, clean=clean)

    def freeze(self) -> None:
        """See `RunningBroker.freeze`."""
        self._portal.call(self._broker.freeze)

    def thaw(self) -> None:
        """See `RunningBroker.thaw`."""
        self._portal.call(self._broker.thaw)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """`freeze` for the length of a block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


class BlockingCluster(_Handle):
    """A `RunningCluster`, for any thread."""

    def __init__(self, portal: Portal[Any], cluster: RunningCluster) -> None:
        super().__init__(portal, cluster)
        self._cluster = cluster
        self.brokers = [BlockingBroker(portal, broker) for broker in cluster.brokers]
        """In the order of their ids."""

    def broker(self, node_id: int) -> BlockingBroker:
        """See `RunningCluster.broker`."""
        return self.brokers[self._cluster.brokers.index(self._cluster.broker(node_id))]

    def leader(self, topic: str, partition: int = 0) -> int:
        """See `RunningCluster.leader`."""
        return self._portal.call(self._cluster.leader, topic, partition)

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """See `RunningCluster.leader_epoch`."""
        return self._portal.call(self._cluster.leader_epoch, topic, partition)

    def coordinator(self, group: str) -> int:
        """See `RunningCluster.coordinator`."""
        return self._portal.call(self._cluster.coordinator, group)

    def stop(self, node_id: int, *, clean: bool = True, move: bool = False) -> None:
        """See `RunningCluster.stop`."""
        self._portal.wait(self._cluster.stop, node_id, clean=clean, move=move)

    def start_broker(self, node_id: int) -> None:
        """See `RunningCluster.start_broker`."""
        self._portal.wait(self._cluster.start_broker, node_id)

    def restart(self, node_id: int, *, clean: bool = True, move: bool = False) -> None:
        """See `RunningCluster.restart`."""
        self._portal.wait(self._cluster.restart, node_id, clean=clean, move=move)
