"""One process: the roles of ``process.roles`` over one `World`.

A node runs both roles today, broker and controller, and refuses any other configuration. The roles share the data
directories (`NodeStorage`); the controller has its metadata log there.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import trio

from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.gateway.local import LocalControllerGateway
from triokafka.broker_stub.network.authentication import Authentication
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.broker_stub.node_storage import NodeStorage
from triokafka.broker_stub.request.dispatcher import QuotaHook
from triokafka.errors import ConfigurationError
from triokafka.world import World
from triokafka.world.system import RealWorld


class Node:
    """A broker and the controller of its cluster, for the length of an ``async with`` block.

    Entering the block starts the node. Leaving it, in whatever way, stops it cleanly: requests in progress get a moment
    to finish, and logs and checkpoints are written, so that the next start needs no recovery.

    Args:
        config: all options, checked already.
        world: the door to the outside; the operating system when None.
        authorizer: access control; everything is allowed when None.
        quota: is called with every response, and returns how long to hold the client back; None for no such hook.
        authentication: finds the principal of a connection before its first request; all are anonymous when None.
        faults: the faults that tests arm.

    Raises:
        ConfigurationError: at construction: a listener has a security protocol that is not served. On entering: an
            address cannot be listened on, or a data directory cannot be used, is in use by another broker, or belongs
            to another node or cluster. Says which, and what to do.
        KafkaStorageError: on entering: a log cannot be read or written.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        world: World | None = None,
        authorizer: Authorizer | None = None,
        quota: QuotaHook | None = None,
        authentication: Authentication | None = None,
        faults: Faults | None = None,
    ) -> None:
        if not (config.is_broker and config.is_controller) or len(config.quorum_voters) > 1:
            raise ConfigurationError(
                "process.roles: this node runs with both roles and as the only voter of controller.quorum.voters"
            )
        world = RealWorld() if world is None else world
        self.storage = NodeStorage(config, world)
        self.metadata = NodeMetadata(world, config, follower=self.storage)
        self.controller = Controller(world, config, self.metadata, follower=self.storage)
        self.broker = Broker(
            config,
            world,
            storage=self.storage,
            gateway=LocalControllerGateway(self.controller),
            controller=self.controller,
            authorizer=authorizer,
            quota=quota,
            authentication=authentication,
            faults=faults,
        )
        self._tasks = self.broker.tasks

    @property
    def failure(self) -> Exception | None:
        """Why the node stopped serving by itself; None while it has not."""
        return self._tasks.failure

    async def wait_stopped(self) -> None:
        """Wait until the node has stopped, by leaving its block or because a part of it failed (`failure`)."""
        await self._tasks.wait_stopped()

    async def __aenter__(self) -> Self:
        await self._tasks.open()
        try:
            await self.broker.bind()
            await self.storage.open_metadata(self.metadata)
            self.controller.start()
            self._tasks.start(self.metadata.run)
            self._tasks.start(self.controller.run)
            await self.metadata.wait_caught_up()
            await self.storage.load(self.metadata)
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
        """End at once and leave everything as a process that is killed does; for tests.

        Connections break in the middle of responses, the controller is not told, nothing is flushed, checkpointed or
        marked as closed cleanly: what was written stays, and the next start recovers it. Call it inside the block, in
        the task that entered it; leaving the block does nothing more.
        """
        await self._stop(cleanly=False)

    async def _stop(self, *, cleanly: bool = True) -> None:
        if not self._tasks.is_open:
            return
        await self.broker.stop(cleanly=cleanly)
        with trio.CancelScope(shield=True):
            if cleanly:
                self.storage.write_high_watermarks()
            await self.controller.close()
            await self.metadata.close()
            if cleanly:
                await self.storage.close()  # last: the locks of the directories go with it
            else:
                self.storage.abandon()
        self.broker.unfollow_metadata()
        self._tasks.note_stopped()

    def clock_jumped(self) -> None:
        """The world's clock was put forward: do now what is due by it.

        Deadlines of groups and waiting requests end, connections that were idle for too long are closed, retention,
        flushes and compaction that time decides happen soon. The broker keeps its registration.
        """
        self.broker.clock_jumped()
        self.storage.clock_jumped()
        self.controller.clock_jumped()
