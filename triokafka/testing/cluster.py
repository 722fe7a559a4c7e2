"""A cluster of several brokers for a test.

The brokers share the controller of a `LocalCluster` in this process. Each has its own logs, and replicates over the
network.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from triokafka.broker_stub.faults.faults import Faults
from triokafka.delegation import delegated
from triokafka.errors import BrokerNotAvailableError, IllegalStateError
from triokafka.testing.fault_calls import FaultCalls
from triokafka.testing.faulty_world import FaultyWorld
from triokafka.testing.running import RunningBroker

if TYPE_CHECKING:
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.metadata import MetadataImage
    from triokafka.coordinator.group.members import KnownMember


class RunningCluster:
    """The brokers of a test; made by `running_cluster`.

    ``brokers`` are in the order of their ids, and `broker` finds one. Faults of requests that are armed here hold on
    every broker, and are used up together; those of one broker are armed at it.
    """

    def __init__(self, config: BrokerConfig, nodes: int, world: FaultyWorld, nursery: trio.Nursery) -> None:
        from triokafka.broker_stub.local_cluster import LocalCluster

        self.faults = Faults(world.random.random)
        self._fault_calls = FaultCalls(self.faults)
        first = config.node_id
        self._nursery = nursery
        self._local = LocalCluster(config, world)
        # The brokers need it until the last one has shut down, even if everything is cancelled.
        self._scope = trio.CancelScope(shield=True)
        self._ended = trio.Event()
        self.brokers: list[RunningBroker] = []
        for number in range(nodes):
            # Each broker has its own freeze; they share clock and disk.
            own = world if not number else world.beside()
            mine = replace(config, node_id=first + number, listeners=_following(config, number))
            node = RunningBroker(mine, own, nursery, self._local, self.faults)
            self.brokers.append(node)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def image(self) -> MetadataImage:
        """The cluster's metadata."""
        return self._local.controller.image

    def broker(self, node_id: int) -> RunningBroker:
        """Return the broker with that id.

        Raises:
            BrokerNotAvailableError: the cluster has no such broker.
        """
        for broker in self.brokers:
            if broker.node_id == node_id:
                return broker
        ids = [broker.node_id for broker in self.brokers]
        raise BrokerNotAvailableError(f"the cluster has the brokers {ids}, not {node_id}")

    # Life

    async def start(self) -> None:
        """Start all brokers, in the order of their ids; called by `running_cluster`."""
        try:
            await self._local.start()
        except BaseException:
            self._ended.set()
            raise
        self._nursery.start_soon(self._run_shared)
        for broker in self.brokers:
            await broker.start()

    async def end(self) -> None:
        """Stop all brokers, and close the logs; called by `running_cluster`."""
        with trio.CancelScope(shield=True):
            for broker in reversed(self.brokers):
                await broker.end()
            self._scope.cancel()
            await self._ended.wait()
            await self._local.close()

    async def wait_failed(self) -> Exception:
        """Wait until a part of a broker fails; return the reason."""
        send, receive = trio.open_memory_channel[Exception](len(self.brokers))

        async def watch(broker: RunningBroker) -> None:
            send.send_nowait(await broker.wait_failed())

        async with trio.open_nursery() as nursery:
            for broker in self.brokers:
                nursery.start_soon(watch, broker)
            failure = await receive.receive()
            nursery.cancel_scope.cancel()
        return failure

    async def _run_shared(self) -> None:
        try:
            with self._scope:
                await self._local.run()
        finally:
            self._ended.set()

    async def stop(self, node_id: int, *, clean: bool = True, move: bool = False) -> None:
        """Stop a broker; see `RunningBroker.stop`.

        Other brokers then lead the partitions of which they have replicas. A partition without another replica has no
        leader until the broker restarts; with ``move`` it moves to another broker first.
        """
        broker = self.broker(node_id)
        if move and broker.is_running:
            for topic, state in list(self.image.partitions()):
                others = [one.node_id for one in self.brokers if one.is_running and one is not broker]
                if state.leader == node_id and others:
                    to = next((other for other in others if other in state.replicas), others[0])
                    await self.move_leader(topic.name, state.partition, to=to)
        await broker.stop(clean=clean)

    async def start_broker(self, node_id: int) -> None:
        """Start a stopped broker again; see `RunningBroker.start`."""
        await self.broker(node_id).start()

    async def restart(self, node_id: int, *, clean: bool = True, move: bool = False) -> None:
        """Stop and start a broker: `stop`, then `start_broker`."""
        await self.stop(node_id, clean=clean, move=move)
        await self.start_broker(node_id)

    # Leaders

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of a partition's leader; -1 without a leader or without such a partition."""
        state = self.image.partition(topic, partition)
        return -1 if state is None else state.leader

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """Return the partition's leader epoch; -1 without such a partition."""
        state = self.image.partition(topic, partition)
        return -1 if state is None else state.leader_epoch

    def coordinator(self, group: str) -> int:
        """Return the id of a group's coordinator; -1 if there is none yet."""
        from triokafka.topic_names import GROUP_METADATA_TOPIC

        return self.leader(GROUP_METADATA_TOPIC, self._running.group_coordinator.runtime.partition_for(group))

    move_leader = delegated("_running", RunningBroker.move_leader)

    move_coordinator = delegated("_running", RunningBroker.move_coordinator)

    @property
    def _running(self) -> RunningBroker:
        """Return the first running broker."""
        for broker in self.brokers:
            if broker.is_running:
                return broker
        raise IllegalStateError("every broker of the cluster is stopped. Start one with start_broker()")

    # Faults of all brokers

    fail_next = delegated("_fault_calls", FaultCalls.fail_next)
    drop_replies = delegated("_fault_calls", FaultCalls.drop_replies)
    delay_replies = delegated("_fault_calls", FaultCalls.delay_replies)
    delay_requests = delegated("_fault_calls", FaultCalls.delay_requests)
    throttle = delegated("_fault_calls", FaultCalls.throttle)
    close_on = delegated("_fault_calls", FaultCalls.close_on)

    def cut_connections(self) -> int:
        """Close every connection to every broker; return their number."""
        return sum(broker.cut_connections() for broker in self.brokers if broker.is_running)

    def fill_disk(self, *, free_bytes: int = 0) -> None:
        """See `RunningBroker.fill_disk`; the brokers have one disk."""
        self.brokers[0].fill_disk(free_bytes=free_bytes)

    def free_disk(self) -> None:
        """End `fill_disk`."""
        self.brokers[0].free_disk()

    def advance_clock(self, ms: int) -> None:
        """See `RunningBroker.advance_clock`; the brokers have the same clocks."""
        self.brokers[0].advance_clock(ms)

    def members(self, group: str) -> list[KnownMember]:
        """See `RunningBroker.members`."""
        return self._coordinating(group).members(group)

    def expire_member(self, group: str, member: str | None = None) -> str:
        """See `RunningBroker.expire_member`."""
        return self._coordinating(group).expire_member(group, member)

    def _coordinating(self, group: str) -> RunningBroker:
        node_id = self.coordinator(group)
        return self._running if node_id == -1 else self.broker(node_id)

    def reset(self) -> None:
        """Switch off all faults of the cluster and of each broker."""
        self.faults.disarm_all()
        for broker in self.brokers:
            broker.reset()

    create_topic = delegated("_running", RunningBroker.create_topic)

    delete_topic = delegated("_running", RunningBroker.delete_topic)


def _following(config: BrokerConfig, number: int) -> tuple[str, ...]:
    """Return the listeners of the ``number``-th broker; explicit ports are counted up from the first broker's."""
    listeners = []
    for listener in config.listeners:
        address, _, port = listener.rpartition(":")
        listeners.append(f"{address}:{int(port) + number if int(port) else 0}")
    return tuple(listeners)
