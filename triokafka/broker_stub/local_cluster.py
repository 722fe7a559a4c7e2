"""Several brokers in one process that share one controller and one log of every partition, for tests.

All replicas of a partition are the one log, so leadership moves without a copy. Replication between nodes will replace
this module as a whole: nothing of a single node depends on it.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Final, Self

import trio

from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.gateway.local import LocalControllerGateway
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.broker_stub.node_storage import NodeStorage
from triokafka.errors import KafkaError
from triokafka.world import World

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class LocalCluster:
    """The controller and the logs that the brokers of one process share.

    Use: `start`, then the nodes' blocks, and `run` beside them; `close` when all have ended.

    Args:
        config: what the brokers have in common.
    """

    def __init__(self, config: BrokerConfig, world: World) -> None:
        self.storage = NodeStorage(config, world)
        self.metadata = NodeMetadata(world, config, follower=self.storage)
        self.controller = Controller(world, config, self.metadata, follower=self.storage)
        self._nodes: list[LocalClusterNode] = []
        self._behind = trio.Event()

    def node(self, config: BrokerConfig, world: World, faults: Faults | None = None) -> LocalClusterNode:
        """Return a new node of this cluster."""
        return LocalClusterNode(self, self._nodes, config, world, faults)

    async def start(self) -> None:
        """Open the shared directories; raises as `NodeStorage.open`."""
        await self.storage.open_metadata(self.metadata)
        self.controller.start()
        await self.storage.load(self.metadata)

    async def run(self) -> None:
        """Run the shared tasks until cancelled; the first that fails raises."""
        self.controller.publisher.subscribe(self._published)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.metadata.run)
            nursery.start_soon(self.controller.run)
            nursery.start_soon(self._keep_in_sync)
            self.storage.start_tasks(nursery.start_soon)

    async def close(self) -> None:
        """Write checkpoints and logs. Not cancelled."""
        with trio.CancelScope(shield=True):
            self.storage.write_high_watermarks()
            await self.controller.close()
            await self.metadata.close()
            await self.storage.close()

    def clock_jumped(self) -> None:
        """See `Node.clock_jumped`; for all brokers."""
        for node in self._nodes:
            node.broker.clock_jumped()
        self.storage.clock_jumped()
        self.controller.clock_jumped()

    def _published(self, delta: MetadataDelta, image: MetadataImage) -> None:
        # All brokers have applied the image when it was published.
        self.controller.state.cluster.all_follow(image.offset)
        if delta.changed_brokers or any(set(now.isr) < set(now.replicas) for _, _, now in delta.changed_partitions()):
            self._behind.set()

    async def _keep_in_sync(self) -> None:
        """Take replicas into the in-sync sets as soon as their brokers are up: they are one log."""
        while True:
            await self._behind.wait()
            self._behind = trio.Event()
            try:
                await self.controller.expand_in_sync_sets()
            except KafkaError as error:
                logger.error("in-sync sets could not be changed, trying again: %s", error)
                # Nothing else tells when a retry can succeed, such as when the disk has room again.
                await trio.sleep(_RETRY_SECONDS)
                self._behind.set()


class LocalClusterNode:
    """One broker of a `LocalCluster`, for the length of an ``async with`` block; see `Node`."""

    def __init__(
        self,
        cluster: LocalCluster,
        nodes: list[LocalClusterNode],
        config: BrokerConfig,
        world: World,
        faults: Faults | None,
    ) -> None:
        controller = cluster.controller
        # The brokers have options of their own, but the same policies.
        configuration = ConfigurationControl(config, controller.state.configuration.policies)
        self.controller = controller
        self._cluster = cluster
        self._nodes = nodes
        self.broker = Broker(
            config,
            world,
            storage=cluster.storage,
            gateway=LocalControllerGateway(controller, configuration),
            controller=controller,
            faults=faults,
            shares_logs=True,
        )
        self._tasks = self.broker.tasks

    @property
    def failure(self) -> Exception | None:
        """Why the broker stopped serving by itself; None while it has not."""
        return self._tasks.failure

    async def wait_stopped(self) -> None:
        """Wait until the broker has stopped."""
        await self._tasks.wait_stopped()

    async def __aenter__(self) -> Self:
        await self._tasks.open()
        try:
            await self.broker.bind()
            self._nodes.append(self)
            self.broker.follow_metadata()
            await self.broker.start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def kill(self) -> None:
        """End at once, as `Node.kill`."""
        await self._stop(cleanly=False)

    async def _stop(self, *, cleanly: bool = True) -> None:
        if not self._tasks.is_open:
            return
        await self.broker.stop(cleanly=cleanly)
        self.broker.unfollow_metadata()
        if self in self._nodes:
            self._nodes.remove(self)
        self._tasks.note_stopped()

    def clock_jumped(self) -> None:
        """See `LocalCluster.clock_jumped`."""
        self._cluster.clock_jumped()
