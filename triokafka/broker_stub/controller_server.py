"""The controller role of a node on the network: its listeners, their dispatcher, and its registration (KIP-919).

The controller itself is in `triokafka.broker_stub.controller`. On these listeners the nodes of the quorum and the
brokers of the cluster connect, and administrators who reach no broker (``bootstrap.controllers``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from triokafka.broker_stub.api import CONTROLLER_MODULES, Handlers
from triokafka.broker_stub.authorizer import AllowAll, Authorizer
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.current_config import CurrentConfig
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.gateway.advertised_endpoints import advertised_endpoints
from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
from triokafka.broker_stub.metadata import EndpointImage, MetadataDelta, MetadataImage, features
from triokafka.broker_stub.metadata.cache import MetadataCache
from triokafka.broker_stub.metadata.effective_configuration import EffectiveConfiguration
from triokafka.broker_stub.metadata.lifecycle_values import ControllerRegistration
from triokafka.broker_stub.metadata.publisher import MetadataPublisher
from triokafka.broker_stub.network.authentication import Authentication
from triokafka.broker_stub.network.options import ip_connection_rates, socket_config
from triokafka.broker_stub.network.socket_server import Endpoint, SocketServer
from triokafka.broker_stub.node_security import listener_security
from triokafka.broker_stub.request.client_quotas import ClientQuotas
from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.forwarded_requests import ForwardedRequests
from triokafka.broker_stub.request.services import ControllerServices
from triokafka.errors import KafkaError, UnsupportedVersionError
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.raft.raft_client import RaftClient
    from triokafka.security.scram_credentials import ScramCredentials

logger = logging.getLogger(__name__)

_REGISTRATION_RETRY_SECONDS: Final = 1.0


class ControllerServer:
    """Serves the listeners of a node's controller.

    Use: `bind`, `follow_metadata`, then `run` in a nursery; `stop` or `close` at the end.

    Args:
        local: the gateway to the node's own controller, which refuses changes while it is not active.
        active: the gateway to the active controller, for this controller's registration.
        quorum: returns the node's client of the metadata quorum.
        cluster_id: returns the cluster's id, once the metadata log is open.
        publisher: publishes the committed metadata.
        authorizer, authentication, faults, scram_credentials: see `Node`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        *,
        local: ControllerGateway,
        active: ControllerGateway,
        quorum: Callable[[], RaftClient],
        cluster_id: Callable[[], str],
        publisher: MetadataPublisher,
        authorizer: Authorizer | None = None,
        authentication: Authentication | None = None,
        faults: Faults | None = None,
        scram_credentials: ScramCredentials | None = None,
    ) -> None:
        self._config = config
        self._active = active
        self._publisher = publisher
        self._incarnation_id = world.uuid()
        self._metadata = MetadataCache(lambda: quorum().kraft_version)
        self._quotas = ClientQuotas(
            config.quota_window_num,
            config.quota_window_size_seconds,
            mutation_burst_seconds=config.controller_quota_window_num * config.controller_quota_window_size_seconds,
        )
        self._image_changed = trio.Event()
        self._listener_security = listener_security(
            config, config.controller_listeners, world, lambda: self._metadata.image, scram_credentials
        )
        self._configuration = EffectiveConfiguration(config)
        self._security = config.security
        self.sockets = SocketServer(
            world,
            socket_config(config, world.available_memory()),
            authentication=authentication or self._listener_security,
        )
        handlers = Handlers(CONTROLLER_MODULES)
        services = ControllerServices(
            node_id=config.node_id,
            world=world,
            config=CurrentConfig(config),
            cluster_id=cluster_id,
            metadata=self._metadata,
            configuration=self._configuration,
            gateway=local,
            quotas=self._quotas,
            authorizer=AllowAll() if authorizer is None else authorizer,
            faults=Faults(world.random.random) if faults is None else faults,
            advertised=handlers.advertised,
            quorum=quorum,
            answer_envelope=lambda envelope, arrival: self._forwarded.answer(envelope, arrival),
        )
        self.dispatcher = Dispatcher(services, handlers, self.sockets.memory)
        self._forwarded = ForwardedRequests(self.dispatcher)

    async def bind(self) -> None:
        """Listen on every address of the controller.

        Raises:
            ConfigurationError: an address cannot be listened on.
        """
        for listener in self._config.controller_listeners:
            await self.sockets.bind(Endpoint(listener.name, listener.host, listener.port))

    def endpoints(self) -> list[EndpointImage]:
        """Return the advertised address of every listener, in the order of ``controller.listener.names``."""
        config = self._config
        return advertised_endpoints(config, config.controller_listeners, lambda name: self.sockets.address(name)[1])

    def follow_metadata(self) -> None:
        """Apply the metadata from now on: the newest image at once."""
        self._publisher.subscribe(self._metadata_changed)

    def unfollow_metadata(self) -> None:
        """End `follow_metadata`."""
        self._publisher.unsubscribe(self._metadata_changed)

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if image.client_quotas is not self._metadata.image.client_quotas:
            self._quotas.configure(image.client_quotas)
            self.sockets.limits.configure_ip_rates(ip_connection_rates(image.client_quotas))
        self._metadata.update(delta, image)
        if self._listener_security is not None and any(
            kind == ConfigResourceType.BROKER for kind, _ in delta.changed_configs
        ):
            effective = self._configuration.broker_config(image)
            if effective.security != self._security:
                self._security = effective.security
                self._listener_security.reconfigure(effective)
        changed, self._image_changed = self._image_changed, trio.Event()
        changed.set()

    async def run(self, acls_loaded: Callable[[], Awaitable[None]]) -> None:
        """Serve until cancelled, and keep this controller registered.

        Listeners that ``early.start.listeners`` leaves out wait for ``acls_loaded``.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_registered)
            await self.sockets.run(self.dispatcher, late=self._config.late_listeners, ready=acls_loaded)

    async def _keep_registered(self) -> None:
        """Register this process with the active controller, again whenever the metadata has another registration."""
        if not self._config.controller_listeners:
            return
        registration = ControllerRegistration(
            controller_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            endpoints=tuple(self.endpoints()),
            features=features.SUPPORTED,
        )
        while True:
            image, changed = self._metadata.image, self._image_changed
            known = image.controllers.get(self._config.node_id)
            is_known = known is not None and known.incarnation_id == self._incarnation_id
            if is_known or not features.registers_controllers(image):
                await changed.wait()
                continue
            try:
                await self._active.register_controller(registration)
            except UnsupportedVersionError as error:
                logger.info("Controller %d: not registered: %s", self._config.node_id, error)
            except KafkaError as error:
                logger.warning("Controller %d: registration failed and is retried: %s", self._config.node_id, error)
            with trio.move_on_after(_REGISTRATION_RETRY_SECONDS):
                await changed.wait()

    async def stop(self, timeout_ms: int) -> None:
        """Stop accepting, let requests in progress finish for at most ``timeout_ms``, then close."""
        await self.sockets.stop(timeout_ms)

    def close(self) -> None:
        """Stop listening and close every connection immediately."""
        self.sockets.close()
