"""Several brokers in one process that share one controller, for tests.

Every broker has its own data directories, logs and fetchers, and replicates over the network. Only the metadata is
shared: the controller runs in this process, and every broker applies each image as it is published. The metadata quorum
between nodes will replace this module as a whole: nothing of a single node depends on it.
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self

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
from triokafka.world import World


class LocalCluster:
    """The controller that the brokers of one process share.

    Use: `start`, then the nodes' blocks, and `run` beside them; `close` when all have ended.

    Args:
        config: what the brokers have in common. The controller's metadata log is in the directory ``controller`` of the
            first data directory, and a broker's logs are in ``broker-ID`` of each.
    """

    def __init__(self, config: BrokerConfig, world: World) -> None:
        directory = f"{config.data_directories[0]}/controller"
        own = replace(config, log_dirs=(directory,), metadata_log_dir=None)
        self.storage = NodeStorage(own, world)
        self.metadata = NodeMetadata(world, own, follower=self)
        self.controller = Controller(world, own, self.metadata, follower=self)
        self._nodes: list[LocalClusterNode] = []

    def node(self, config: BrokerConfig, world: World, faults: Faults | None = None) -> LocalClusterNode:
        """Return a new node of this cluster."""
        return LocalClusterNode(self, self._nodes, config, world, faults)

    async def start(self) -> None:
        """Open the controller's directory; raises as `NodeStorage.open_metadata`."""
        await self.storage.open_metadata(self.metadata)
        self.controller.start()
        await self.storage.load(self.metadata)

    async def run(self) -> None:
        """Run the controller until cancelled; the first task that fails raises."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.metadata.run)
            nursery.start_soon(self.controller.run)
            self.storage.start_tasks(nursery.start_soon)

    async def close(self) -> None:
        """Close the metadata log. Not cancelled."""
        with trio.CancelScope(shield=True):
            await self.controller.close()
            await self.metadata.close()
            await self.storage.close()

    def clock_jumped(self) -> None:
        """See `Node.clock_jumped`; for all brokers."""
        for node in self._nodes:
            node.broker.clock_jumped()
            node.storage.clock_jumped()
        self.storage.clock_jumped()
        self.controller.clock_jumped()

    # The controller's follower (`Follower`)

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `NodeStorage.prepare`; for all brokers."""
        for node in list(self._nodes):
            await node.storage.prepare(delta, image)

    async def settle(self) -> None:
        """See `NodeStorage.settle`; for all brokers."""
        for node in list(self._nodes):
            await node.storage.settle()


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
        directories = tuple(f"{directory}/broker-{config.node_id}" for directory in config.data_directories)
        self.controller = controller
        self.storage = storage = NodeStorage(replace(config, log_dirs=directories, metadata_log_dir=None), world)
        self._cluster = cluster
        self._nodes = nodes
        self.broker = Broker(
            storage.config,
            world,
            storage=storage,
            gateway=LocalControllerGateway(controller, configuration),
            controller=controller,
            faults=faults,
            directory_ids=lambda: storage.directory_ids,
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
            await self.storage.open_beside(self.controller.metadata)
            self._nodes.append(self)
            self.broker.follow_metadata()
            self.storage.start_tasks(self._tasks.start)
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
        with trio.CancelScope(shield=True):
            if cleanly:
                self.storage.write_high_watermarks()
                await self.storage.close()
            else:
                self.storage.abandon()
        self.broker.unfollow_metadata()
        if self in self._nodes:
            self._nodes.remove(self)
        self._tasks.note_stopped()

    def clock_jumped(self) -> None:
        """See `LocalCluster.clock_jumped`."""
        self._cluster.clock_jumped()
