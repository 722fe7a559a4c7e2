"""The network client: connections to many brokers, and the metadata that maps partitions to brokers.

The producer, the consumer, the admin client and the brokers use it. It reads no error codes in responses, except those
of Metadata and FindCoordinator.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Self, TypeVar

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.broker_channel import BrokerChannel, ChannelState
from triokafka.network.broker_status import BrokerStatus, take_statuses
from triokafka.network.cluster import Cluster
from triokafka.network.config import NetworkConfig
from triokafka.network.connection import Connection
from triokafka.network.connection_wait import ConnectionWait
from triokafka.network.coordinators import Coordinators
from triokafka.network.dead_peer import needs_checked_connection
from triokafka.network.in_flight_request import Completion
from triokafka.network.known_brokers import KnownBrokers
from triokafka.network.metadata import Metadata
from triokafka.network.metadata_updater import MetadataUpdater
from triokafka.network.response_waiter import ResponseWaiter
from triokafka.network.transport import check_security
from triokafka.network.version_negotiation import FinalizedFeatures
from triokafka.network.versions import request_type_of
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node
from triokafka.trio_context import require_trio
from triokafka.world import World

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_NEVER: Final = float("inf")


class NetworkClient:
    """Sends requests to brokers by node id.

    Use it as ``async with NetworkClient(config, world=world) as client``. Entering opens no connection. The client
    connects at the first request to a broker, keeps the connection while it is used, and reconnects after failures with
    a growing back-off. Leaving closes all connections; waiting callers get `ClosedError`.

    Node ids below 0 are bootstrap servers. ``purpose`` names a further connection to the same broker: a consumer uses a
    separate connection to its coordinator, so that long fetches do not delay heartbeats.
    """

    def __init__(self, config: NetworkConfig, *, world: World) -> None:
        check_security(config, world)
        if not config.bootstrap_servers:
            raise errors.ConfigurationError("bootstrap_servers is empty: name at least one broker as 'host:port'")
        self.config = config
        self.world = world
        self.hooks = config.hooks
        self._updater = MetadataUpdater(
            config,
            world,
            ask=self._ask_for_metadata,
            check_usable=self.check_usable,
            why_unreachable=self.why_unreachable,
            on_success=self._metadata_learnt,
            on_failure=self._metadata_failed,
            on_attempt=self._announce,
        )
        self.metadata = self._updater.metadata
        self._brokers = KnownBrokers(
            config,
            world,
            nodes=lambda: self.metadata.cluster.nodes,
            on_change=self._announce,
            on_unreachable=self.request_metadata_update,
        )
        self.background = BackgroundTasks(self._failed)
        """The tasks of this client, for its owner's tasks that end with it."""
        self._connection_wait = ConnectionWait(
            self._brokers, world, self.background, check_usable=self.check_usable, on_lost=self._connection_lost
        )
        self._coordinators = Coordinators(self._ask_for_coordinator, self._brokers, self.request_metadata_update)
        self.metadata.add_listener(self._call_metadata_hooks)
        self._failure: Exception | None = None
        self._closed = False
        self._listeners: list[Callable[[], None]] = []

    # ---------------------------------------------------------------- lifetime

    async def __aenter__(self) -> Self:
        await self.background.open()
        self.background.start(self._updater.run, name="kafka metadata")
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._closed = True
        for channel in self._brokers.channels():
            if channel.connection is not None:
                channel.connection.close(errors.ClosedError("the client was closed"))
        self._updater.wake_waiters()
        await self.background.close()

    def _failed(self, error: Exception) -> None:
        logger.error("Network client: a background task failed, and the client with it", exc_info=error)
        self.fail(error)

    def fail(self, error: Exception) -> None:
        """Make the client unusable: its owner failed. Waiting callers wake, and every later call raises."""
        if self._failure is None:
            self._failure = error
            if self.hooks:
                self.hooks.on_client_failed(error)
        for channel in self._brokers.channels():
            if channel.connection is not None:
                channel.connection.close(errors.KafkaConnectionError(f"the client failed: {error}"))
            channel.wake_waiters()
        self._announce()
        self._updater.wake_waiters()

    @property
    def has_failed(self) -> bool:
        """Whether the client is unusable: a background task has failed, or a broker refuses the login."""
        return self._failure is not None

    def check_usable(self) -> None:
        """Raise `ClosedError` after closing, or `KafkaError` after the failure of a background task."""
        if self._failure is not None:
            if isinstance(self._failure, errors.AuthenticationError):
                raise errors.raisable_copy(self._failure)
            raise errors.KafkaError(f"the network client failed: {self._failure!r}") from self._failure
        if self._closed or not self.background.is_open:
            require_trio("The client")
            raise errors.ClosedError("the client is not open: use it inside its async with block")

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the result of `ready` may have changed. It must not block.

        Reasons: a connection became ready, takes requests again, or ended; a metadata request began or ended.
        """
        self._listeners.append(listener)

    def _announce(self) -> None:
        for listener in self._listeners:
            listener()

    async def connect(self, *, timeout_ms: float | None = None) -> None:
        """Connect and log in to one of the known brokers, and get the cluster's metadata from it.

        Without this call, the first request connects. Tries every broker once, one after the other, in all at most
        ``timeout_ms`` (default ``request_timeout_ms``).

        Raises:
            AuthenticationError: client and broker do not accept each other; the client is unusable.
            KafkaConnectionError: no broker accepts connections; the message names every address tried.
            KafkaTimeoutError: no broker has sent metadata in time.
        """
        limit = (self.config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        give_up_at = self.world.now() + limit
        failures: list[str] = []
        nodes = list(self._brokers.candidates())
        first = self.world.random.randrange(len(nodes))
        for node_id in nodes[first:] + nodes[:first]:
            try:
                await self._connection_wait.connection_to(node_id, "", max(0.0, give_up_at - self.world.now()))
            except errors.AuthenticationError:
                raise
            except errors.KafkaError as error:
                self.check_usable()
                failures.append(str(error))
            else:
                # A listener with SASL answers ApiVersions to any client, and ends the connection at the next request.
                await self._updater.refresh((give_up_at - self.world.now()) * 1000)
                return
        raise errors.KafkaConnectionError("; ".join(failures))

    # ---------------------------------------------------------------- nodes

    @property
    def cluster(self) -> Cluster:
        """The current snapshot of brokers and topics."""
        return self.metadata.cluster

    def node_ids(self) -> list[int]:
        """The ids of the known brokers; those of the bootstrap servers (negative) before the first metadata."""
        return list(self._brokers.candidates())

    def _connection_lost(self, channel: BrokerChannel) -> None:
        if isinstance(channel.error, errors.AuthenticationError) and not self._closed:
            # Trying again would lock the account, or never succeed.
            self.fail(channel.error)
        if not self._closed:
            # The broker may be gone permanently, and its partitions may have another leader.
            if channel.node.node_id >= 0:
                self.request_metadata_update()
            self._brokers.note_lost_connection()

    def ready(self, node_id: int, purpose: str = "") -> bool:
        """Whether `submit` may be called now. If not, start a connection attempt if the back-off allows."""
        return self.ready_channel(node_id, self.world.now(), purpose) is not None

    def ready_channel(self, node_id: int, now: float, purpose: str = "") -> BrokerChannel | None:
        """Return the channel to a broker if it is `ready`; submit a request there before the next checkpoint."""
        self.check_usable()
        try:
            channel = self._brokers.channel(node_id, purpose)
        except errors.NodeNotReadyError:
            self.request_metadata_update()
            return None
        if channel.is_ready(now):
            # metadata first: it may name another broker
            return None if self._updater.is_due(now) else channel
        self._connection_wait.start(channel)
        return None

    def ready_delay(self, node_id: int) -> float:
        """Return the seconds until `ready` may change; infinity if a listener will be called first."""
        channel = self._brokers.known_channel(node_id)
        return channel.delay(self.world.now()) if channel is not None else _NEVER

    def channel_error(self, node_id: int) -> errors.KafkaError | None:
        """Return the error of the last connection to a broker; None while connected."""
        channel = self._brokers.known_channel(node_id)
        return channel.error if channel is not None else None

    def broker_statuses(self) -> list[BrokerStatus]:
        """Return the state of every connection, including ended ones."""
        return take_statuses(self._brokers.channels_by_purpose(), self.world.now())

    def close_as_dead(self, node_id: int, purpose: str, reason: str) -> None:
        """Close a connection with an overdue response, and unused connections that may have died with it."""
        channel = self._brokers.known_channel(node_id, purpose)
        if channel is not None and channel.connection is not None:
            channel.connection.close_as_dead(f"{channel.name}: {reason}")

    def disconnect(self, node_id: int, reason: str, *, purpose: str | None = None) -> None:
        """Close the connections to a broker, or the one of that purpose.

        Requests in flight fail with `KafkaConnectionError`.
        """
        for known, channel in self._brokers.channels_by_purpose():
            if channel.node.node_id == node_id and purpose in (None, known) and channel.connection is not None:
                channel.connection.close(errors.KafkaConnectionError(f"{channel.name}: {reason}"))

    def version_for(
        self,
        node_id: int,
        request_type: type[Request[Any]],
        *,
        purpose: str = "",
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> int:
        """Return the version of a request to this broker.

        Raises:
            NodeNotReadyError: not connected yet, so the broker's versions are unknown.
            UnsupportedVersionError: broker and client have no version in common.
        """
        return self._brokers.channel(node_id, purpose).version_for(request_type, min_version, max_version)

    # ---------------------------------------------------------------- requests

    def submit(
        self,
        node_id: int,
        request: Request[Any],
        version: int,
        on_done: Completion,
        *,
        timeout_ms: float | None = None,
        expect_response: bool = True,
        purpose: str = "",
    ) -> None:
        """Submit a request to a broker that is `ready`, without waiting; ``on_done`` gets the response or the error.

        Raises:
            NodeNotReadyError: the broker is not ready; nothing was sent.
        """
        self.check_usable()
        channel = self._brokers.channel(node_id, purpose)
        if not channel.is_ready(self.world.now()):
            raise errors.NodeNotReadyError(f"{channel.name} is not ready for a request")
        timeout = None if timeout_ms is None else timeout_ms / 1000
        channel.submit(request, version, on_done, timeout=timeout, expect_response=expect_response)

    async def send(
        self,
        node_id: int,
        request: Request[R] | Callable[[int], Request[R]],
        *,
        api: type[Request[R]] | None = None,
        timeout_ms: float | None = None,
        connect_timeout_ms: float = math.inf,
        min_version: int | None = None,
        max_version: int | None = None,
        purpose: str = "",
    ) -> R:
        """Send a request to one broker and return its response.

        Waits for the connection, for the broker's throttling and for a slot among the requests in flight, at most
        ``timeout_ms`` (default ``request_timeout_ms``), and without a connection at most ``connect_timeout_ms``; then
        for the response, at most ``timeout_ms`` again. ``request`` may be a function of the version; then ``api`` is
        the request's class. After cancelling, a late response is dropped, and the broker may have executed the request.

        Raises:
            KafkaConnectionError: no connection could be made (the message names every address tried), or it ended
                before the response. It is then unknown whether the broker executed the request.
            RequestTimedOutError: no response in time; the connection was closed.
            UnsupportedVersionError: the broker has no version that this request needs.
            NodeNotReadyError: the broker is unknown.
            ProtocolError: the response is invalid; the connection was closed.
        """
        request_type = request_type_of(request, api)
        limit = (self.config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        checked = needs_checked_connection(request_type)
        known = self._brokers.known_channel(node_id, purpose)
        is_connected = known is not None and known.state is ChannelState.READY
        patience = limit if is_connected else min(limit, connect_timeout_ms / 1000)
        channel, connection = await self._connection_wait.connection_to(node_id, purpose, patience, checked=checked)
        bounds = (min_version, max_version)
        return await self._exchange(channel, connection, request, request_type, bounds, limit)

    async def _exchange(
        self,
        channel: BrokerChannel,
        connection: Connection,
        request: Request[R] | Callable[[int], Request[R]],
        request_type: type[Request[R]],
        bounds: tuple[int | None, int | None],
        limit: float,
    ) -> R:
        """Send a request on a connection that has room for it, and wait for the response."""
        version = channel.version_for(request_type, *bounds)
        message = request if isinstance(request, Request) else request(version)
        waiter = ResponseWaiter()
        connection.submit(message, version, waiter.done, timeout=limit)
        response: R = await waiter.wait()
        return response

    async def send_to_least_loaded(
        self,
        request: Request[R] | Callable[[int], Request[R]],
        *,
        api: type[Request[R]] | None = None,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> R:
        """Send a request to any broker, preferably a connected and idle one.

        If a broker cannot be reached, the next is tried, at most ``timeout_ms`` in all; then `KafkaConnectionError`
        names every address tried. Otherwise as `send`.
        """
        request_type = request_type_of(request, api)
        limit = (self.config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        checked = needs_checked_connection(request_type)
        channel, connection = await self._connection_wait.connection_to_any(limit, checked=checked)
        return await self._exchange(channel, connection, request, request_type, (min_version, max_version), limit)

    def finalized_feature(self, name: str) -> int:
        """Return the level of a feature in the cluster (KIP-584), as the newest answer of a broker has it.

        0 while no broker was connected, and when the cluster does not run the feature.
        """
        newest = max((channel.finalized_features for channel in self._brokers.channels()), key=_epoch, default=None)
        return 0 if newest is None else newest.levels.get(name, 0)

    # ---------------------------------------------------------------- any broker

    def least_loaded(self) -> int | None:
        """Return the best broker for a request that any can answer; None when all are in reconnect back-off."""
        return self._brokers.least_loaded()

    def why_unreachable(self) -> str:
        """Return the last connection failures as text, for a timeout error."""
        return self._brokers.why_unreachable()

    def broker_troubles(self) -> list[str]:
        """The reasons why brokers are unreachable. A broker that only closed its connection is not included."""
        asked = self.node_ids()
        return [
            str(broker.error)
            for broker in self.broker_statuses()
            if broker.failed_connects and broker.node.node_id in asked
        ]

    # ---------------------------------------------------------------- metadata

    def request_metadata_update(self) -> None:
        """Request a metadata refresh, without waiting."""
        self.metadata.request_update()

    async def refresh_metadata(self, *, timeout_ms: float | None = None) -> Cluster:
        """Refresh the metadata and return the new snapshot.

        Raises:
            KafkaTimeoutError: no broker answered within ``timeout_ms`` (default ``request_timeout_ms``).
        """
        return await self._updater.refresh(self.config.request_timeout_ms if timeout_ms is None else timeout_ms)

    async def fetch_cluster(self) -> Cluster:
        """Ask a broker for all topics and return the answer, without an effect on this client's own metadata.

        Raises:
            KafkaConnectionError: no broker answered.
        """
        spoken = 0

        def build(version: int) -> MetadataRequest:
            nonlocal spoken
            spoken = version
            return MetadataRequest(topics=None if version else [], allow_auto_topic_creation=True)

        response = await self.send_to_least_loaded(build, api=MetadataRequest)
        learnt = Metadata(max_age=_NEVER, max_idle=_NEVER, backoff=Backoff(0, 0), chance=lambda: 0.0)
        learnt.update(response, None, self.world.now(), version=spoken)
        return learnt.cluster

    async def answers(self, node_id: int) -> bool:
        """Return whether the broker answers a request within ``request_timeout_ms``."""
        try:
            await self.send(node_id, ApiVersionsRequest())
        except errors.KafkaError:
            self.check_usable()
            return False
        return True

    async def metadata_for(
        self, topics: Iterable[str], *, timeout_ms: float | None = None, wait_for_creation: bool = True
    ) -> Cluster:
        """Wait until every topic is known, and return that snapshot.

        Waits at most ``timeout_ms`` (default ``request_timeout_ms``). The broker may create a missing topic in the
        meantime, so its absence is an error only at the end; with ``wait_for_creation=False`` it is an immediate error.

        Raises:
            TopicAuthorizationFailedError, InvalidTopicError: as soon as the cluster reports it.
            UnknownTopicOrPartitionError: the cluster answered, and does not have the topic.
            KafkaTimeoutError: no broker answered.
        """
        limit = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return await self._updater.wait_for(list(topics), limit, wait_for_creation=wait_for_creation)

    async def _ask_for_metadata(
        self, build: Callable[[int], MetadataRequest], min_version: int | None
    ) -> MetadataResponse:
        if self.config.controllers:
            from triokafka.network.controllers import (
                FIRST_WITH_CONTROLLERS,
                controllers_as_metadata,
                controllers_request,
            )

            return controllers_as_metadata(
                await self.send_to_least_loaded(controllers_request(), min_version=FIRST_WITH_CONTROLLERS)
            )
        return await self.send_to_least_loaded(build, api=MetadataRequest, min_version=min_version)

    def _metadata_failed(self, start_over: bool) -> None:
        self._brokers.bootstrap.note_no_metadata(self.metadata.last_success, start_over=start_over)

    def _metadata_learnt(self) -> None:
        self._brokers.note_metadata()

    def _call_metadata_hooks(self, cluster: Cluster) -> None:
        if self.hooks:
            self.hooks.on_metadata(cluster.summary(self.metadata.version))

    # ---------------------------------------------------------------- coordinators

    async def find_coordinator(self, key: str, key_type: int = 0, *, timeout_ms: float | None = None) -> Node:
        """Return the coordinator of a group (``key_type`` 0) or transactional id (1); cached until
        `forget_coordinator`.

        Raises:
            CoordinatorNotAvailableError: none yet; retry after a back-off.
            GroupAuthorizationFailedError, TransactionalIdAuthorizationFailedError: access is not allowed.
        """
        return await self._coordinators.find(key, key_type, timeout_ms)

    async def find_coordinators(
        self, keys: Iterable[str], key_type: int = 0, *, timeout_ms: float | None = None
    ) -> dict[str, Node | errors.KafkaError]:
        """Find the coordinators of many keys (KIP-699); return each key's error instead of raising it.

        Brokers before 3.0 get one request for each key.
        """
        return await self._coordinators.find_all(keys, key_type, timeout_ms)

    async def _ask_for_coordinator(
        self, build: Callable[[int], FindCoordinatorRequest], min_version: int | None, timeout_ms: float | None
    ) -> FindCoordinatorResponse:
        return await self.send_to_least_loaded(
            build, api=FindCoordinatorRequest, timeout_ms=timeout_ms, min_version=min_version
        )

    def assume_coordinator(self, key: str, node: Node, key_type: int = 0) -> None:
        """Use a broker of the cluster as the coordinator until `forget_coordinator`."""
        self._coordinators.assume(key, key_type, node)

    def forget_coordinator(self, key: str, key_type: int = 0) -> None:
        """Look the coordinator up again next time: it moved, or its connection broke."""
        self._coordinators.forget(key, key_type)


def _epoch(features: FinalizedFeatures) -> int:
    return features.epoch
