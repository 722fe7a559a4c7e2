"""The network client: connections to many brokers, and the picture of the cluster that says which to ask.

Shared by producer, consumer and admin client, and used between brokers. It never looks at the error codes inside a
response, metadata and coordinator lookups aside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import trio

from triokafka.errors import (
    BrokerResponseError,
    ClosedError,
    ConfigurationError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    UnsupportedVersionError,
    for_code,
)
from triokafka.network.channel import BrokerChannel, ChannelState, check_security
from triokafka.network.config import NetworkConfig
from triokafka.network.connection import Completion, Connection, ResponseWaiter
from triokafka.network.directory import BrokerDirectory
from triokafka.network.metadata import Cluster
from triokafka.network.metadata_updater import MetadataUpdater
from triokafka.network.tasks import BackgroundTasks
from triokafka.network.versions import choose_version
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node
from triokafka.world import World

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_NEVER: Final = float("inf")
_FIRST_BATCHED_COORDINATOR: Final = 4


class NetworkClient:
    """Requests to brokers by node id, with everything that it takes to get them there.

    Use it as ``async with NetworkClient(config, world=world) as client``. Entering connects nothing; connections are
    made when first needed, kept while used, and made again after failures with a growing back-off. Leaving closes
    them all; whoever still waits gets `ClosedError`.

    Node ids below 0 are bootstrap servers. ``purpose`` names a further connection to the same broker: a consumer
    talks to its coordinator on a connection of its own, so that long fetches do not delay heartbeats (`client/NET-3`).
    """

    def __init__(self, config: NetworkConfig, *, world: World) -> None:
        check_security(config)
        if not config.bootstrap_servers:
            raise ConfigurationError("bootstrap_servers is empty: name at least one broker as 'host:port'")
        self.config = config
        self.world = world
        self.hooks = config.hooks
        self._updater = MetadataUpdater(
            config,
            world,
            ask=self._ask_for_metadata,
            check_usable=self.check_usable,
            why_unreachable=self.why_unreachable,
            on_success=lambda: self._directory.note_metadata(),
            on_failure=self._metadata_failed,
            on_attempt=self._announce,
        )
        self.metadata = self._updater.metadata
        self._directory = BrokerDirectory(
            config, world, nodes=lambda: self.metadata.cluster.nodes, on_change=self._announce
        )
        self._coordinators: dict[tuple[str, int], Node] = {}
        self._tasks = BackgroundTasks(self._failed)
        self._failure: Exception | None = None
        self._closed = False
        self._listeners: list[Callable[[], None]] = []

    # ---------------------------------------------------------------- life

    async def __aenter__(self) -> Self:
        await self._tasks.open()
        self._tasks.start(self._updater.run, name="kafka metadata")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        for channel in self._directory.channels():
            if channel.connection is not None:
                channel.connection.close(ClosedError("the client was closed"))
        self._updater.wake_waiters()
        await self._tasks.close()

    def _failed(self, error: Exception) -> None:
        logger.error("a background task of the network client failed", exc_info=error)
        self.fail(error)

    def fail(self, error: Exception) -> None:
        """Make the client unusable: its owner cannot go on. Whoever waits wakes, and every later call raises."""
        self._failure = self._failure or error
        for channel in self._directory.channels():
            if channel.connection is not None:
                channel.connection.close(KafkaConnectionError(f"the client failed: {error}"))
        self._announce()
        self._updater.wake_waiters()

    def check_usable(self) -> None:
        """Raise what made this client unusable: `ClosedError`, or the failure of a background task."""
        if self._failure is not None:
            raise KafkaError(f"the network client failed: {self._failure!r}") from self._failure
        if self._closed or not self._tasks.is_open:
            raise ClosedError("the client is not open: use it inside its async with block")

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when a connection becomes ready or ends, and when metadata changes. It must not block."""
        self._listeners.append(listener)

    def _announce(self) -> None:
        for listener in self._listeners:
            listener()

    # ---------------------------------------------------------------- nodes

    @property
    def cluster(self) -> Cluster:
        """The current snapshot of brokers and topics."""
        return self.metadata.cluster

    def node_ids(self) -> list[int]:
        """Ids of the brokers known now; the bootstrap servers' (negative) before the first metadata."""
        return list(self._directory.candidates())

    def _start_connecting(self, channel: BrokerChannel) -> None:
        channel.begin()
        self._tasks.start(self._serve, channel, name=f"kafka connection to {channel.name}")

    async def _serve(self, channel: BrokerChannel) -> None:
        await channel.run()
        if not self._closed:
            # The broker may be gone for good, and its partitions led by another (`client/NET-23`, `client/NET-28`).
            if channel.node.node_id >= 0:
                self.request_metadata_update()
            self._directory.note_lost_connection()

    def ready(self, node_id: int, purpose: str = "") -> bool:
        """Whether `submit` may be called now. If not, and the back-off allows it, a connection attempt starts."""
        self.check_usable()
        try:
            channel = self._directory.channel(node_id, purpose)
        except NodeNotReadyError:
            self.request_metadata_update()
            return False
        now = self.world.now()
        if channel.is_ready(now):
            return True
        if channel.may_connect(now):
            self._start_connecting(channel)
        return False

    def ready_delay(self, node_id: int, purpose: str = "") -> float:
        """Seconds after which `ready` is worth asking again; infinity when a listener will be called first."""
        channel = self._directory.known_channel(node_id, purpose)
        return channel.delay(self.world.now()) if channel is not None else _NEVER

    def channel_error(self, node_id: int) -> KafkaError | None:
        """Why the last connection to a broker failed or ended; None while it is well."""
        channel = self._directory.known_channel(node_id)
        return channel.error if channel is not None else None

    def disconnect(self, node_id: int, reason: str) -> None:
        """Close the connections to a broker; what is in flight fails with `KafkaConnectionError`."""
        for channel in self._directory.channels_of(node_id):
            if channel.connection is not None:
                channel.connection.close(KafkaConnectionError(f"{channel.name}: {reason}"))

    def version_for(
        self,
        node_id: int,
        request_type: type[Request[Any]],
        *,
        purpose: str = "",
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> int:
        """The version that a request to this broker would have.

        Raises:
            NodeNotReadyError: not connected yet, so that nothing is known.
            UnsupportedVersionError: broker and client have no version in common.
        """
        channel = self._directory.channel(node_id, purpose)
        if not channel.api_versions:
            raise NodeNotReadyError(f"{channel.name} has not said yet which versions it speaks")
        return choose_version(
            request_type, channel.api_versions, broker=channel.name, min_version=min_version, max_version=max_version
        )

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
        """Hand a request to a broker that is `ready`, without waiting; ``on_done`` gets the response or the error.

        Raises:
            NodeNotReadyError: it is not ready; nothing was sent.
        """
        self.check_usable()
        channel = self._directory.channel(node_id, purpose)
        connection = channel.connection
        if connection is None or not channel.is_ready(self.world.now()):
            raise NodeNotReadyError(f"{channel.name} is not ready for a request")

        def done(response: Response | None, error: Exception | None) -> None:
            self._note_throttle(channel, response)
            on_done(response, error)
            self._announce()

        timeout = None if timeout_ms is None else timeout_ms / 1000
        connection.submit(request, version, done, timeout=timeout, expect_response=expect_response)

    async def send(
        self,
        node_id: int,
        request: Request[R] | Callable[[int], Request[R]],
        *,
        api: type[Request[R]] | None = None,
        timeout_ms: float | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
        purpose: str = "",
    ) -> R:
        """Send a request to one broker and return its response.

        Waits for the connection, for the broker's throttling and for a slot among the requests in flight, at most
        ``timeout_ms`` (default ``request_timeout_ms``); then for the answer, at most the same time again. ``request``
        may be a function of the version instead; then ``api`` names the request's class. If cancelled, the answer is
        dropped when it comes; the broker may have done what was asked.

        Raises:
            KafkaConnectionError: no connection could be made (the message names every address tried), or it ended
                before the answer came. Whether the broker did the work is then unknown.
            RequestTimedOutError: no answer in time; the connection was closed.
            UnsupportedVersionError: the broker does not speak a version that this request needs.
            NodeNotReadyError: no broker of this id is known.
            ProtocolError: the answer made no sense; the connection was closed.
        """
        request_type = type(request) if isinstance(request, Request) else api
        if request_type is None:
            raise TypeError("a request given as a function needs api=, the class of the request")
        limit = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        channel, connection = await self._ready_connection(node_id, purpose, limit / 1000)
        version = choose_version(
            request_type, channel.api_versions, broker=channel.name, min_version=min_version, max_version=max_version
        )
        message = request if isinstance(request, Request) else request(version)
        waiter = ResponseWaiter()
        connection.submit(message, version, waiter.done, timeout=limit / 1000)
        response: R = await waiter.wait()
        self._note_throttle(channel, response)
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

        When a broker cannot be reached the next is tried, at most ``timeout_ms`` in all; then `KafkaConnectionError`
        names every address tried. Otherwise as `send`.
        """
        limit = (self.config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        give_up_at = self.world.now() + limit
        while True:
            node_id = await self._least_loaded(give_up_at)
            try:
                await self._ready_connection(node_id, "", max(0.0, give_up_at - self.world.now()))
            except (KafkaConnectionError, NodeNotReadyError):
                continue
            return await self.send(
                node_id,
                request,
                api=api,
                timeout_ms=limit * 1000,
                min_version=min_version,
                max_version=max_version,
            )

    async def _ready_connection(self, node_id: int, purpose: str, limit: float) -> tuple[BrokerChannel, Connection]:
        self.check_usable()
        channel = self._directory.channel(node_id, purpose)
        connection = channel.connection
        if connection is not None and channel.is_ready(self.world.now()):
            return channel, connection
        # A failure of the attempt that is under way now, or of the connection that is there, is this caller's as well;
        # what ended before is not.
        ended = connection is not None and connection.error is not None
        attempt = None if channel.state is ChannelState.DISCONNECTED or ended else channel.attempts
        with trio.move_on_after(limit):
            while True:
                self.check_usable()
                now = self.world.now()
                connection = channel.connection
                if connection is not None and channel.is_ready(now):
                    return channel, connection
                if channel.state is ChannelState.DISCONNECTED:
                    if attempt is not None and channel.attempts >= attempt and channel.error is not None:
                        raise _again(channel.error)
                    if channel.may_connect(now):
                        self._start_connecting(channel)
                        attempt = channel.attempts
                # One that has just ended is not waited for: its channel says so in a moment.
                full = connection is not None and connection.error is None and not connection.can_send
                if connection is not None and full and channel.throttled_until <= now:
                    await connection.wait_for_slot()
                    continue
                changed = channel.changed
                with trio.move_on_after(max(0.0, channel.delay(now))):
                    await changed.wait()
        raise KafkaConnectionError(
            f"no connection to {channel.name} within {limit * 1000:.0f} ms"
            + (f"; last failure: {channel.error}" if channel.error is not None else "")
        )

    def _note_throttle(self, channel: BrokerChannel, response: Response | None) -> None:
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            channel.throttled_until = max(channel.throttled_until, self.world.now() + throttle_ms / 1000)

    # ---------------------------------------------------------------- any broker

    def least_loaded(self) -> int | None:
        """The broker to ask when any will do: idle ones first; None when all are in reconnect back-off."""
        return self._directory.least_loaded()

    async def _least_loaded(self, give_up_at: float) -> int:
        while True:
            self.check_usable()
            node_id = self.least_loaded()
            now = self.world.now()
            if now >= give_up_at:
                raise KafkaConnectionError(self.why_unreachable())
            if node_id is not None:
                return node_id
            await trio.sleep(min(self._directory.shortest_delay(), give_up_at - now) + 0.001)

    def why_unreachable(self) -> str:
        """A sentence about the last connection failures, for who has waited in vain."""
        return self._directory.why_unreachable()

    # ---------------------------------------------------------------- metadata

    def request_metadata_update(self) -> None:
        """Have the metadata refreshed soon; returns at once."""
        self.metadata.request_update()

    async def refresh_metadata(self, *, timeout_ms: float | None = None) -> Cluster:
        """Refresh the metadata and return the new snapshot.

        Raises:
            KafkaTimeoutError: no broker answered within ``timeout_ms`` (default ``request_timeout_ms``).
        """
        return await self._updater.refresh(self.config.request_timeout_ms if timeout_ms is None else timeout_ms)

    async def metadata_for(
        self, topics: Iterable[str], *, timeout_ms: float | None = None, wait_for_creation: bool = True
    ) -> Cluster:
        """Wait until every topic is known and return that snapshot; at once when they are.

        Waits at most ``timeout_ms`` (default ``request_timeout_ms``). A topic that does not exist yet may be created
        by the broker in the meantime, so its absence is an error only at the end; with ``wait_for_creation=False`` at
        once.

        Raises:
            TopicAuthorizationFailedError, InvalidTopicError: as soon as the cluster says so.
            UnknownTopicOrPartitionError: the cluster answered, and does not have the topic.
            KafkaTimeoutError: no broker answered.
        """
        limit = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        return await self._updater.wait_for(list(topics), limit, wait_for_creation=wait_for_creation)

    async def _ask_for_metadata(
        self, build: Callable[[int], MetadataRequest], min_version: int | None
    ) -> MetadataResponse:
        return await self.send_to_least_loaded(build, api=MetadataRequest, min_version=min_version)

    def _metadata_failed(self, start_over: bool) -> None:
        self._directory.note_no_metadata(self.metadata.last_success, start_over=start_over)

    # ---------------------------------------------------------------- coordinators

    async def find_coordinator(self, key: str, key_type: int = 0, *, timeout_ms: float | None = None) -> Node:
        """The coordinator of a group (``key_type`` 0) or a transactional id (1); cached until `forget_coordinator`.

        Raises:
            CoordinatorNotAvailableError: none yet; try again after a back-off.
            GroupAuthorizationFailedError, TransactionalIdAuthorizationFailedError: not allowed.
        """
        node = self._coordinators.get((key, key_type))
        if node is not None:
            return node

        def build(version: int) -> FindCoordinatorRequest:
            if version >= _FIRST_BATCHED_COORDINATOR:
                return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            return FindCoordinatorRequest(key=key, key_type=key_type)

        response: FindCoordinatorResponse = await self.send_to_least_loaded(
            build, api=FindCoordinatorRequest, timeout_ms=timeout_ms, min_version=1 if key_type else None
        )
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise for_code(found.error_code)(found.error_message or f"coordinator of {key!r}")
        node = Node(found.node_id, found.host, found.port)
        self._directory.add(node)
        self._coordinators[key, key_type] = node
        return node

    def forget_coordinator(self, key: str, key_type: int = 0) -> None:
        """Look the coordinator up again next time: it moved, or its connection broke."""
        self._coordinators.pop((key, key_type), None)


def _again(error: KafkaError) -> KafkaError:
    """A new exception of the same meaning, so that several waiters do not share one traceback."""
    if isinstance(error, (KafkaConnectionError, UnsupportedVersionError, BrokerResponseError)):
        copy = type(error)(*error.args)
        copy.__cause__ = error.__cause__
        return copy
    return KafkaConnectionError(str(error))
