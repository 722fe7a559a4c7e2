"""The controller role of a node: standby while another node leads the quorum, active while this one does."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from typing import TypeVar
from uuid import UUID

import trio

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.activation_records import activation_records
from triokafka.broker_stub.controller.controller_metrics import ElectionCounts
from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import Compute, EventQueue
from triokafka.broker_stub.controller.forced_leader import hand_over
from triokafka.broker_stub.controller.leader_balancing import LeaderBalancing
from triokafka.broker_stub.controller.no_op_records import NoOpRecords
from triokafka.broker_stub.controller.offline_partition_elections import OfflinePartitionElections
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.session_fencing import SessionFencing
from triokafka.broker_stub.controller.token_expiry import TokenExpiry
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.publisher import MetadataFollower
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.broker_stub.raft.metadata_log_interface import MetadataLogListener
from triokafka.broker_stub.raft.raft_client import RaftClient
from triokafka.errors import IllegalStateError, KafkaError
from triokafka.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Controller:
    """The controller of a node.

    Use: construct, `start` once the metadata is open, run `run` in a nursery beside `NodeMetadata.run`. A broker
    reaches it through a `ControllerGateway`. Operations fail with `NotControllerError` unless this node is the active
    controller.

    ``state`` decides about changes, and has the images. The periodic work of a controller is done only while it is
    active.

    Args:
        config: gives the node's id and the defaults.
        metadata: the metadata log of the node.
        follower: does the slow work after a change, such as creating logs.
    """

    def __init__(
        self, world: World, config: BrokerConfig, metadata: NodeMetadata, *, follower: MetadataFollower | None = None
    ) -> None:
        self.world = world
        self.config = config
        self.metadata = metadata
        self.state = ControllerState(config, pick=world.random.randrange, new_id=world.uuid)
        self._follower = follower
        self._queue: EventQueue | None = None
        self._active = trio.Event()
        self._inactive = trio.Event()
        self._had_term = False
        self.terms = 0
        self.elections = ElectionCounts()
        self._closed = False

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self.metadata.image

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._active.is_set() and not self._closed

    async def wait_active(self) -> None:
        """Wait until this node is the active controller."""
        await self._active.wait()

    # Operations

    async def submit(self, name: str, compute: Compute[T], *, timeout_ms: int | None = None) -> T:
        """See `EventQueue.submit`. The only voter waits until it leads the quorum, in the time limit.

        Raises also `KafkaStorageError` at once while its disk prevents that.
        """
        if not self._active.is_set() and self.metadata.is_alone:
            since = self.world.now()
            seconds = math.inf if timeout_ms is None else max(timeout_ms, 0) / 1000
            with trio.CancelScope(deadline=self.world.deadline(since + seconds) if timeout_ms else math.inf):
                await self._wait_to_lead()
            if timeout_ms is not None:
                timeout_ms = max(0, timeout_ms - int((self.world.now() - since) * 1000))
        return await self.queue.submit(name, compute, timeout_ms=timeout_ms)

    async def _wait_to_lead(self) -> None:
        refusals: list[KafkaError] = []

        async def watch() -> None:
            refusals.append(await self.metadata.raft.until_refusal())
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await self._active.wait()
            nursery.cancel_scope.cancel()
        if refusals and not self._active.is_set():
            raise refusals[0].fresh_copy()

    async def hand_over(self, topic: str, partition: int, to: int) -> int:
        """Make a broker in sync lead a partition in a new epoch; return its id. See `forced_leader.hand_over`."""
        return await self.submit("HandOver", lambda image: hand_over(image, topic, partition, to))

    async def fence_broker(self, broker_id: int, *, unless_epoch: Callable[[], int | None] | None = None) -> None:
        """Fence a broker that has stopped; do nothing if it is not registered or already fenced.

        Args:
            unless_epoch: returns the broker epoch of the process that has taken its place, which is not fenced; None
                when fencing is no longer needed.
        """

        def fence(image: MetadataImage) -> Outcome[None]:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.fenced:
                return Outcome([], None)
            if unless_epoch is not None and unless_epoch() in (None, broker.broker_epoch):
                return Outcome([], None)
            return Outcome(self.state.brokers.fence(image, broker), None)

        await self.submit("FenceBroker", fence)

    async def take_snapshot(self) -> int:
        """See `SnapshotGenerator.take`."""
        return await self.metadata.snapshots.take()

    # Life

    async def open(self, *, without: Collection[str] = (), committed: int = 0) -> frozenset[UUID]:
        """Open the metadata of this node, and start; return the ids of the topics that its log removed.

        Raises as `NodeMetadata.open`.
        """
        await self.metadata.open(without=without, committed=committed)
        self.start()
        return frozenset(self.metadata.loader.removed_topics or ())

    def start(self) -> None:
        """Make the event queue, over the log that the node's metadata has opened."""
        metadata = self.metadata
        raft = metadata.raft

        def log(listener: MetadataLogListener) -> RaftClient:
            metadata.controller = listener
            return raft

        self.metadata.publisher.subscribe(self.elections.metadata_changed)
        self._queue = EventQueue(
            self.world,
            self.state,
            log,
            metadata.publish_own,
            follower=self._follower,
            leads=False,
            activate=self._activate,
            resign=raft.resign,
            term_began=self._term_began,
            term_ended=self._term_ended,
        )

    @property
    def queue(self) -> EventQueue:
        """The event queue. It exists once the controller has started."""
        if self._queue is None:
            raise IllegalStateError("the controller was not started")
        return self._queue

    def _activate(self, image: MetadataImage) -> Outcome[None]:
        min_insync_replicas = self.config.text(features.MIN_INSYNC_REPLICAS) or "1"
        records = activation_records(
            image,
            self.metadata.bootstrap_records,
            min_insync_replicas,
            in_transaction=self.metadata.loader.in_transaction,
        )
        return Outcome(records, None)

    def _term_began(self) -> None:
        state = self.state
        # The broker of a lone node has ended with the process before; later, it is alive.
        own_id = self.config.node_id if not self._had_term and self.metadata.is_alone else None
        self._had_term = True
        self.terms += 1
        state.brokers.begin(
            state.committed,
            now=self.world.now(),
            own_id=own_id,
            cluster_id=self.metadata.cluster_id,
            silent=self.metadata.raft.silence_of_last_leader,
        )
        logger.info(
            "node %d is the active controller of cluster %s in epoch %d, %d topics, next offset %d",
            self.config.node_id,
            self.metadata.cluster_id,
            state.epoch,
            len(state.committed.topics),
            self.metadata.raft.end_offset,
        )
        self._inactive = trio.Event()
        self._active.set()

    def _term_ended(self) -> None:
        if self._active.is_set():
            logger.info("node %d is no longer the active controller", self.config.node_id)
        self._active = trio.Event()
        self._inactive.set()
        self.metadata.term_ended()

    async def run(self) -> None:
        """Process operations, and do the controller's periodic work while it is active, until `close`.

        If cancelled, waiting callers get a `NotControllerError`.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_terms)
            await self.queue.run()
            nursery.cancel_scope.cancel()

    async def _run_terms(self) -> None:
        config, state, queue = self.config, self.state, self.queue
        timeout = config.broker_session_timeout_ms / 1000
        while True:
            await self._active.wait()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(SessionFencing(self.world, state, queue, timeout=timeout).run)
                if config.auto_leader_rebalance_enable:
                    interval = config.leader_imbalance_check_interval_seconds
                    percentage = config.leader_imbalance_per_broker_percentage
                    nursery.start_soon(LeaderBalancing(state, queue, interval=interval, percentage=percentage).run)
                unclean_interval = config.unclean_leader_election_interval_ms / 1000
                nursery.start_soon(OfflinePartitionElections(state, queue, interval=unclean_interval).run)
                if state.tokens.enabled:
                    check_interval = config.delegation_token_expiry_check_interval_ms / 1000
                    nursery.start_soon(TokenExpiry(self.world, state, queue, interval=check_interval).run)
                if config.metadata_max_idle_interval_ms:
                    nursery.start_soon(NoOpRecords(config, self.metadata, queue).run)
                await self._inactive.wait()
                nursery.cancel_scope.cancel()

    async def close(self) -> None:
        """Fail waiting callers. A second call does nothing."""
        self._closed = True
        if self._queue is not None:
            self._queue.stop()
        self._active.set()

    def clock_jumped(self) -> None:
        """Extend the sessions of brokers after a jump of the world's clock."""
        self.state.brokers.sessions.resume(self.world.now())
