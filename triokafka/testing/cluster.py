"""A cluster of several nodes for a test: brokers of which up to three are the controllers, one quorum.

Every node is a `Node` with its own world, metadata log and logs. The nodes reach each other over the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import trio

from triokafka.component_methods import delegated
from triokafka.errors import BrokerNotAvailableError, IllegalStateError
from triokafka.testing.broker import RunningBroker
from triokafka.testing.fault_calls import FaultCalls
from triokafka.testing.node_links import checked_groups

if TYPE_CHECKING:
    from triokafka.broker_stub.faults.faults import Faults
    from triokafka.broker_stub.metadata import MetadataImage
    from triokafka.coordinator.group.members import KnownMember
    from triokafka.testing.members import Members


class RunningCluster:
    """The nodes of a test; made by `running_cluster`.

    ``brokers`` are in the order of their ids, and `broker` finds one. Faults of requests that are armed here hold on
    every broker, and are used up together; those of one broker are armed at it.
    """

    def __init__(self, faults: Faults, members: Members, brokers: list[RunningBroker]) -> None:
        self.faults = faults
        self._fault_calls = FaultCalls(faults)
        self._members = members
        self.brokers = brokers

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def client_options(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        """Return the options with which a client connects to the cluster; see `RunningBroker.client_options`."""
        options = self.brokers[0].client_options(user, mechanism=mechanism)
        return {**options, "bootstrap_servers": self.bootstrap_servers}

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that a running broker has applied.

        Raises:
            IllegalStateError: every broker is stopped.
        """
        return self._members.image

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

    @property
    def active_controller(self) -> int:
        """The id of the node whose controller is active; -1 while there is none."""
        active = self._members.active
        return -1 if active is None else active.node_id

    # Life

    async def start(self, node_id: int | None = None) -> None:
        """Start a node that is stopped, or all such nodes; see `RunningBroker.start`.

        Without a majority of the controllers it returns at once, and the node serves as soon as there is one.

        Raises:
            BrokerNotAvailableError: the cluster has no such node.
        """
        await self._members.start(self.brokers if node_id is None else [self.broker(node_id)])

    async def end(self) -> None:
        """Stop all brokers, and close the logs; called by `running_cluster`."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for broker in self.brokers:
                    nursery.start_soon(broker.process.end)

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

    async def stop(self, node_id: int, *, clean: bool = True, move: bool = False) -> None:
        """Stop a node; see `RunningBroker.stop`.

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
        """Start a stopped node again; the same as `start`."""
        await self.start(node_id)

    async def restart(self, node_id: int, *, clean: bool = True, move: bool = False) -> None:
        """Stop and start a node: `stop`, then `start`."""
        await self.stop(node_id, clean=clean, move=move)
        await self.start(node_id)

    # Failures of nodes and of the network between them

    async def kill(self, node_id: int, *, power_cut: bool = False) -> None:
        """End a node as SIGKILL does; see `RunningBroker.kill`. `start` starts it again.

        Raises:
            BrokerNotAvailableError: the cluster has no such node.
            IllegalStateError: the node does not run.
        """
        await self.broker(node_id).kill(power_cut=power_cut)

    def pause(self, node_id: int) -> None:
        """Pause a node as SIGSTOP does, until `resume`; see `RunningBroker.freeze`.

        Raises:
            BrokerNotAvailableError: the cluster has no such node.
            IllegalStateError: the node does not run.
        """
        self._running_node(node_id, "pause").freeze()

    def resume(self, node_id: int) -> None:
        """End `pause`; does nothing for a node that is not paused.

        Raises:
            BrokerNotAvailableError: the cluster has no such node.
            IllegalStateError: the node does not run.
        """
        self._running_node(node_id, "resume").thaw()

    def _running_node(self, node_id: int, call: str) -> RunningBroker:
        broker = self.broker(node_id)
        if not broker.is_running:
            raise IllegalStateError(f"{call}: broker {node_id} is not running; start({node_id}) it first")
        return broker

    def partition_network(self, groups: Iterable[Iterable[int]]) -> None:
        """Let nodes reach only the nodes of their own group, until `heal`. Clients reach all nodes.

        Data between two groups is delayed until they reach each other again, and connecting waits, as with TCP. Nodes
        in no group are a further group: ``[[1]]`` cuts node 1 off. Another call replaces the groups.

        Raises:
            BrokerNotAvailableError: the cluster has no such node.
            ValueError: a node is in two groups.
        """
        checked = checked_groups(groups)
        for group in checked:
            for node_id in sorted(group):
                self.broker(node_id)
        self._members.links.partition(checked)

    def heal(self) -> None:
        """End `partition_network`, and the black hole of every broker."""
        self._members.links.heal()
        for broker in self.brokers:
            broker.heal()

    # Leaders

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of a partition's leader; -1 without a leader or without such a partition."""
        state = self.image.partition(topic, partition)
        return -1 if state is None else state.leader

    def partitions(self) -> list[tuple[str, int]]:
        """Return the topics and numbers of all partitions, those of internal topics too."""
        return [(topic.name, state.partition) for topic, state in self.image.partitions()]

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """Return the partition's leader epoch; -1 without such a partition."""
        state = self.image.partition(topic, partition)
        return -1 if state is None else state.leader_epoch

    def coordinator(self, group: str) -> int:
        """Return the id of a group's coordinator; -1 if there is none yet."""
        from triokafka.topic_names import GROUP_METADATA_TOPIC

        return self.leader(GROUP_METADATA_TOPIC, self._running.group_coordinator.runtime.partition_for(group))

    async def settle(self) -> None:
        """Wait until all running brokers have applied the newest metadata, such as a topic that a client has created.

        Waits for at most 10 seconds, and not for frozen nodes nor for those that a partition of the network separates
        from the active controller.
        """
        await self._members.settle()

    move_leader = delegated("_running", RunningBroker.move_leader)

    move_coordinator = delegated("_running", RunningBroker.move_coordinator)

    @property
    def _running(self) -> RunningBroker:
        """Return the first running broker."""
        for broker in self.brokers:
            if broker.is_running:
                return broker
        raise IllegalStateError("every broker of the cluster is stopped. Start one with start(node_id)")

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
        """Fill the disk of every broker; see `RunningBroker.fill_disk`."""
        for broker in self.brokers:
            broker.fill_disk(free_bytes=free_bytes)

    def free_disk(self) -> None:
        """End `fill_disk`."""
        for broker in self.brokers:
            broker.free_disk()

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
        """Switch off all faults of the cluster and of each broker, and heal the network."""
        self.faults.disarm_all()
        self._members.links.heal()
        for broker in self.brokers:
            broker.reset()

    create_topic = delegated("_running", RunningBroker.create_topic)

    delete_topic = delegated("_running", RunningBroker.delete_topic)
