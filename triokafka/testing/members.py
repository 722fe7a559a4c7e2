"""The nodes of a test's cluster as a whole: the active controller, and the effect of one node's start and end on all.

Tests run faster than timeouts: when a test stops a node without a controlled shutdown, the others learn of it at once,
and when it starts a node, that node does not wait for the end of its last session.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import trio

from triokafka.errors import IllegalStateError, KafkaError, KafkaTimeoutError, NotControllerError
from triokafka.testing.node_links import NodeLinks

if TYPE_CHECKING:
    from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
    from triokafka.broker_stub.node import Node
    from triokafka.testing.faulty_world import FaultyWorld
    from triokafka.testing.node_process import NodeProcess

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TIMEOUT_SECONDS: Final = 30.0
"""How long a test's call waits for an active controller."""
_ELECTION_SECONDS: Final = 5.0
"""How long the stop of a node waits for another active controller, which may have to wait itself: for a full disk."""
_APPLY_SECONDS: Final = 10.0
"""How long a test's call waits for nodes that have not applied a change of the metadata."""
_BACKOFF_SECONDS: Final = 0.005


class ClusterNode(Protocol):
    """One node: the part of a `RunningBroker` that the others need."""

    @property
    def process(self) -> NodeProcess:
        """The process of the node."""
        ...

    @property
    def world(self) -> FaultyWorld:
        """The world of the process."""
        ...

    @property
    def node_id(self) -> int:
        """The node's id."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether it runs, and has not failed."""
        ...

    @property
    def node(self) -> Node:
        """The running node. Raises `IllegalStateError` while it is stopped."""
        ...

    @property
    def image(self) -> MetadataImage:
        """The metadata that its broker has applied."""
        ...

    def place(self) -> None:
        """Note its ports for partitions of the network."""
        ...


class Members:
    """The nodes of one cluster, in the order of their ids; a broker that runs alone is a cluster of one.

    Args:
        voters: the ids of the nodes with a vote in the quorum; every other node is only a broker.
        links: the network between the nodes.
    """

    def __init__(self, voters: frozenset[int], links: NodeLinks) -> None:
        self.brokers: list[ClusterNode] = []
        self.voters = voters
        self.links = links

    @property
    def running(self) -> list[ClusterNode]:
        """The nodes that run."""
        return [broker for broker in self.brokers if broker.is_running]

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that a running node has. Raises `IllegalStateError` if none runs."""
        images = [broker.image for broker in self.running]
        if not images:
            raise IllegalStateError("every broker of the cluster is stopped. Start one with start(node_id)")
        return max(images, key=lambda image: image.offset)

    @property
    def has_majority(self) -> bool:
        """Whether enough voters run or start for an active controller."""
        present = [
            broker
            for broker in self.brokers
            if broker.node_id in self.voters and (broker.is_running or broker.process.is_starting)
        ]
        return len(present) > len(self.voters) // 2

    @property
    def active(self) -> ClusterNode | None:
        """The node whose controller is active; None while there is none."""
        found = [broker for broker in self._controllers if broker.node.is_active_controller]
        return max(found, key=lambda broker: broker.node.metadata.raft.leader.epoch, default=None)

    @property
    def _controllers(self) -> list[ClusterNode]:
        return [broker for broker in self.running if broker.node_id in self.voters and not broker.world.is_frozen]

    async def wait_active(self, within: float = _TIMEOUT_SECONDS) -> ClusterNode:
        """Wait until a controller is active.

        Raises:
            KafkaTimeoutError: there is none within the time limit.
        """
        with trio.move_on_after(within):
            while (active := self.active) is None:
                controllers = self._controllers
                if not controllers:
                    await trio.sleep(_BACKOFF_SECONDS)  # nodes that start are not seen yet
                    continue
                async with trio.open_nursery() as nursery:

                    async def watch(broker: ClusterNode) -> None:
                        await broker.node.controller.wait_active()
                        nursery.cancel_scope.cancel()

                    for broker in controllers:
                        nursery.start_soon(watch, broker)
                await trio.sleep(_BACKOFF_SECONDS)
            return active
        raise KafkaTimeoutError(
            f"the cluster has no active controller: of its voters {sorted(self.voters)}, "
            f"{[broker.node_id for broker in self._controllers]} run and answer"
        )

    async def with_controller(self, operation: Callable[[ClusterNode], Awaitable[T]]) -> T:
        """Do something with the node whose controller is active, again if it loses its leadership meanwhile."""
        with trio.move_on_after(_TIMEOUT_SECONDS):
            while True:
                active = await self.wait_active()
                try:
                    return await operation(active)
                except NotControllerError:
                    await trio.sleep(_BACKOFF_SECONDS)
        raise KafkaTimeoutError(f"no controller has answered within {_TIMEOUT_SECONDS:.0f} s")

    async def settle(self, at_least: int = -1) -> None:
        """Wait until all running brokers have applied the newest metadata, and that of offset ``at_least``.

        Frozen nodes, and nodes that a partition keeps apart from the active controller, are not waited for.
        """
        active, running = self.active, self.running
        offsets = [broker.image.offset for broker in running]
        if active is not None:
            offsets.append(active.node.metadata.image.offset)
        target = max([at_least, *offsets])
        behind = [
            broker
            for broker in running
            if broker.image.offset < target
            and not broker.world.is_frozen
            and not (active is not None and self.links.are_apart(active.node_id, broker.node_id))
        ]
        if not behind:
            return
        with trio.move_on_after(_APPLY_SECONDS):
            async with trio.open_nursery() as nursery:
                for broker in behind:
                    nursery.start_soon(_wait_applied, broker.node, target)

    # Starting

    async def start(self, brokers: Sequence[ClusterNode]) -> None:
        """Start nodes at once, and wait until clients can connect to them.

        Without a majority of the voters it does not wait: the nodes serve when the quorum has a leader.
        """
        for broker in brokers:
            await broker.process.begin()
        if not self.has_majority:
            return
        # Errors are raised as they are, not in a group.
        failures: list[Exception] = []

        async with trio.open_nursery() as nursery:

            async def start(broker: ClusterNode) -> None:
                try:
                    await broker.process.wait_started()
                except Exception as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()

            async with trio.open_nursery() as starting:
                if len(self.brokers) > 1:
                    nursery.start_soon(self._end_old_sessions)
                for broker in brokers:
                    starting.start_soon(start, broker)
            nursery.cancel_scope.cancel()
        if failures:
            raise failures[0]
        for broker in brokers:
            broker.place()
        await self.settle()

    async def _end_old_sessions(self) -> None:
        """End the sessions that nodes which start have left behind: they need not wait for them."""
        for broker in [broker for broker in self.brokers if broker.process.is_starting]:
            try:
                await self._end_old_session(broker)
            except KafkaError as error:
                logger.warning("Broker %d: its last session could not be ended: %s", broker.node_id, error)

    async def _end_old_session(self, broker: ClusterNode) -> None:
        def own_epoch() -> int | None:
            node = broker.process.starting
            return None if node is None else node.broker.lifecycle.broker_epoch

        while broker.process.is_starting:
            # The active controller can be on a node that starts itself, and waits for the end of its session.
            nodes = [one.process.node or one.process.starting for one in self.brokers]
            active = next((node for node in nodes if node is not None and node.is_active_controller), None)
            if active is not None:
                try:
                    return await active.controller.fence_broker(broker.node_id, unless_epoch=own_epoch)
                except NotControllerError:
                    pass
            await trio.sleep(_BACKOFF_SECONDS)

    # Ending

    async def left(self, offset: int) -> None:
        """Wait until the others have an active controller, and a stopped node's metadata up to ``offset``."""
        if not self.running or not self.has_majority:
            return
        try:
            await self.wait_active(_ELECTION_SECONDS)
        except KafkaError as error:
            logger.warning("%s", error)
        await self.settle(offset)

    async def missed(self, node_id: int, offset: int) -> None:
        """Let the other nodes notice now that a node ended without a controlled shutdown."""
        if not self.running or not self.has_majority:
            return
        try:
            await self._end_quorum_epoch(node_id)
            await self.wait_active(_ELECTION_SECONDS)
            await self.with_controller(lambda active: active.node.controller.fence_broker(node_id))
        except KafkaError as error:
            logger.warning("Broker %d: the other nodes notice its end only after a timeout: %s", node_id, error)
        await self.settle(offset)

    async def _end_quorum_epoch(self, node_id: int) -> None:
        """Send the other voters EndQuorumEpoch in the name of the node, if they follow it."""
        from triokafka.broker_stub.raft.messages import TOPIC
        from triokafka.protocol.api.end_quorum_epoch import (
            EndQuorumEpochRequest,
            PartitionData,
            PreferredCandidate,
            TopicData,
        )

        rafts = [broker.node.metadata.raft for broker in self._controllers]
        followers = [raft for raft in rafts if raft.leader.leader_id == node_id]
        followers.sort(key=lambda raft: raft.end_offset, reverse=True)
        keys = [raft.config.key for raft in followers]
        async with trio.open_nursery() as nursery:
            for raft in followers:
                partition = PartitionData(
                    partition_index=0,
                    leader_id=node_id,
                    leader_epoch=raft.leader.epoch,
                    preferred_successors=[key.node_id for key in keys],
                    preferred_candidates=[
                        PreferredCandidate(candidate_id=key.node_id, candidate_directory_id=key.wire_directory_id)
                        for key in keys
                    ],
                )
                request = EndQuorumEpochRequest(
                    cluster_id=raft.config.cluster_id, topics=[TopicData(topic_name=TOPIC, partitions=[partition])]
                )
                nursery.start_soon(partial(raft.end_quorum_epoch, request, version=1))


async def _wait_applied(node: Node, offset: int) -> None:
    """Wait until a node's broker has applied the metadata up to an offset, or has stopped."""
    applied = trio.Event()

    def published(delta: MetadataDelta, image: MetadataImage) -> None:
        if node.broker.image.offset >= offset:
            applied.set()

    async def watch(scope: trio.CancelScope) -> None:
        await node.wait_stopped()
        scope.cancel()

    publisher = node.metadata.publisher
    publisher.subscribe(published)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            await applied.wait()
            nursery.cancel_scope.cancel()
    finally:
        publisher.unsubscribe(published)
