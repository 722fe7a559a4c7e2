"""The process of one node of a test: it can stop, be killed and start again, on the ports and the disk that it had."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from triokafka.errors import IllegalStateError
from triokafka.structs import address_text

if TYPE_CHECKING:
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.faults.faults import Faults
    from triokafka.broker_stub.node import Node
    from triokafka.security.scram_credentials import ScramCredentials
    from triokafka.testing.machine import Machine


class _Life:
    """One run of the node, from its start to its end."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.scope = trio.CancelScope()
        self.started = trio.Event()
        self.leave = trio.Event()
        self.gone = trio.Event()
        self.kills = False
        self.error: Exception | None = None

    @property
    def is_starting(self) -> bool:
        return not self.started.is_set() and not self.gone.is_set() and not self.scope.cancel_called


class NodeProcess:
    """Runs a `Node` again and again.

    Args:
        config: the node's options; explicit ports replace the free ones once the node has got them.
        machine: where it runs.
        nursery: watches over the node.
        faults: the faults of requests.
        cluster_id: the cluster of new data directories; see `Node`.
        elects_at_once, scram_credentials: see `Node`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        machine: Machine,
        nursery: trio.Nursery,
        faults: Faults,
        *,
        cluster_id: str | None = None,
        elects_at_once: bool = False,
        scram_credentials: ScramCredentials | None = None,
    ) -> None:
        self.config = config
        self.machine = machine
        self._nursery = nursery
        self._faults = faults
        self._cluster_id = cluster_id
        self._elects_at_once = elects_at_once
        self._scram_credentials = scram_credentials
        self._life: _Life | None = None
        self._changing = trio.Lock()
        self.addresses = ""
        """HOST:PORT of the listeners for clients; the same before and after a restart."""
        self._failure: Exception | None = None
        self._failed = trio.Event()

    # What it is

    @property
    def node(self) -> Node | None:
        """The node that runs, or one that has failed and was not started again; None while it starts or is stopped."""
        life = self._life
        return None if life is None or not life.started.is_set() else life.node

    @property
    def starting(self) -> Node | None:
        """The node that is starting."""
        life = self._life
        return life.node if life is not None and life.is_starting else None

    @property
    def is_starting(self) -> bool:
        """Whether the node was started and does not serve yet."""
        return self._life is not None and self._life.is_starting

    @property
    def is_running(self) -> bool:
        """Whether the node runs; false after a failure."""
        node = self.node
        return node is not None and node.failure is None

    @property
    def failure(self) -> Exception | None:
        """The failure that stopped the node; None without one."""
        return self._failure if self.node is None else self.node.failure

    # Its life

    async def begin(self) -> None:
        """Start the node if it is stopped or has failed; do not wait until it serves."""
        async with self._changing:
            life = self._life
            if life is not None and life.node is not None and life.node.failure is not None:
                life.kills = True  # the rest of the process
                life.leave.set()
            if life is not None and (life.leave.is_set() or life.scope.cancel_called or life.gone.is_set()):
                await life.gone.wait()  # the caller that stopped it may have been cancelled
                life = None
            if life is None:
                self._failure = None
                life = _Life()
                await self.machine.run(lambda: self._run(life))
                self._life = life

    async def wait_started(self) -> None:
        """Wait until clients can connect. If cancelled, the start is given up.

        Raises:
            IllegalStateError: the node was stopped meanwhile.
            ConfigurationError, KafkaError: the node cannot start; see `Node`.
        """
        life = self._life
        if life is None:
            raise IllegalStateError(f"node {self.config.node_id} is stopped; start it first")
        try:
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    await life.gone.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                await life.started.wait()
                nursery.cancel_scope.cancel()
        except trio.Cancelled:
            if life.is_starting:
                life.scope.cancel()
                with trio.CancelScope(shield=True):
                    await life.gone.wait()
            raise
        if life.error is not None:
            raise life.error
        if not life.started.is_set():
            raise IllegalStateError(f"node {self.config.node_id} was stopped while it started")

    async def stop(self, *, clean: bool = True, cluster_ends: bool = False) -> None:
        """Stop the node, and return when it is gone; its ports stay taken, so that connecting is refused.

        A node that is starting or stopped is fine.

        Args:
            clean: requests in progress get a moment to finish, leaderships move, and logs are closed. Otherwise it
                ends as if it had been killed.
            cluster_ends: all nodes stop now, so this one hands nothing over.
        """
        async with self._changing:
            life = self._life
            if life is None:
                return
            if not life.started.is_set():
                life.scope.cancel()
            elif not life.leave.is_set():
                if life.node is not None:
                    life.node.cluster_ends = cluster_ends
                life.kills = not clean
                life.leave.set()
            await life.gone.wait()  # also when it is ending already, being cancelled

    async def kill(self, *, power_cut: bool = False) -> None:
        """End the node at once, as SIGKILL does. ``power_cut`` needs a simulated host: its disk loses unsynced data."""
        if not await self.machine.kill(power_cut=power_cut):
            await self.stop(clean=False)
            return
        if self._life is not None:
            await self._life.gone.wait()

    async def _run(self, life: _Life) -> None:
        from triokafka.broker_stub.deferred_imports import import_everything
        from triokafka.broker_stub.node import Node

        import_everything()
        world = self.machine.world
        try:
            node = life.node = Node(
                self.config,
                world=world,
                faults=self._faults,
                cluster_id=self._cluster_id,
                elects_at_once=self._elects_at_once,
                scram_credentials=self._scram_credentials,
            )
            with life.scope:
                async with node:
                    self._keep_ports(node)
                    self._nursery.start_soon(self._watch, node)
                    life.started.set()
                    try:
                        await trio.lowlevel.checkpoint_if_cancelled()  # the caller that starts it may have given up
                        # From now on it lives until `stop`: clients that end with a cancelled body end with a node.
                        life.scope.shield = self.machine.outlives_cancellation
                        await life.leave.wait()
                    finally:
                        life.node = None
                        world.thaw()
                    if life.kills:
                        await node.kill()
        except Exception as error:
            if life.started.is_set():
                raise
            life.error = error
        finally:
            life.gone.set()

    async def _watch(self, node: Node) -> None:
        await node.wait_stopped()
        if node.failure is not None:
            self._failure = node.failure
            self._failed.set()
            self._failed = trio.Event()

    async def wait_failed(self) -> Exception:
        """Wait until a part of the node fails and stops it; return the reason."""
        while self._failure is None:
            await self._failed.wait()
        return self._failure

    # Its ports

    def _keep_ports(self, node: Node) -> None:
        """Take the ports that the node got for its own from now on."""
        self.addresses = node.addresses
        sockets = node.broker.sockets
        listeners = []
        for listener in self.config.broker_listeners:
            _, port = sockets.address(listener.name)
            listeners.append(f"{listener.name}://{address_text(listener.host, port)}")
        others = [spec for spec in self.config.listeners if spec.partition("://")[0] not in sockets.listeners]
        self.config = replace(self.config, listeners=(*listeners, *others))
        self.machine.world.held_ports.release_all()  # those of listeners that it no longer has

    async def end(self) -> None:
        """Stop the node permanently, as the last of its cluster or with all others, and release its ports."""
        await self.stop(cluster_ends=True)
        self.machine.world.held_ports.release_all()
