"""The connections to one broker, one after the other: back-off, all addresses of the broker, version negotiation.

`BrokerChannel` outlives its connections. `transport` makes the streams, `version_negotiation` negotiates the versions.
"""

from __future__ import annotations

import enum
import logging
import os
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.network.broker_addresses import BrokerAddress, broker_addresses
from triokafka.network.config import NetworkConfig
from triokafka.network.connection import Connection
from triokafka.network.in_flight_request import Completion
from triokafka.network.receive_pool import ReceivePool
from triokafka.network.silent_close import SilentClose, SilentCloseExplainer
from triokafka.network.tls_failures import handshake_error
from triokafka.network.transport import discard, open_stream
from triokafka.network.version_negotiation import ApiVersions, FinalizedFeatures, VersionNegotiation
from triokafka.network.versions import choose_version
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.frames import encode_request
from triokafka.protocol.message import Request
from triokafka.protocol.templates import FilledRequest
from triokafka.structs import Node, address_text
from triokafka.world import Stream, World

if TYPE_CHECKING:
    from triokafka.security.client_security import SaslSettings

logger = logging.getLogger(__name__)

_NEVER: Final = float("inf")
_PROBE_BYTES: Final = 64


class ChannelState(enum.Enum):
    """The state of a channel. Only a ``READY`` channel takes requests."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    READY = "ready"


class BrokerChannel:
    """The client's connection to one broker, for one purpose.

    ``changed`` is set and replaced whenever the state changes. ``failures`` counts the connections that failed or ended
    since the last one was ready, ``failed_connects`` only those that never became ready. Points in time are seconds on
    the world's clock. ``on_dead`` is called when a connection counts as dead, with the time since which it was silent;
    ``on_unreachable`` when the broker does not answer over a fresh connection either.
    ``has_others`` returns whether another broker is available.
    """

    def __init__(
        self,
        node: Node,
        *,
        world: World,
        config: NetworkConfig,
        pool: ReceivePool,
        on_change: Callable[[], None],
        on_dead: Callable[[float], None] = lambda since: None,
        on_unreachable: Callable[[], None] = lambda: None,
        has_others: Callable[[], bool] = lambda: False,
        purpose: str = "",
    ) -> None:
        self.node = node
        self._purpose = purpose
        self.state = ChannelState.DISCONNECTED
        self.connection: Connection | None = None
        self.api_versions: ApiVersions = {}
        self._chosen_versions: dict[tuple[type[Request[Any]], int | None, int | None], int] = {}
        self.error: errors.KafkaError | None = None
        self.failures = 0
        self.failed_connects = 0
        self.attempts = 0
        self.retry_at = 0.0
        self.changed = trio.Event()
        self._world = world
        self._config = config
        self._pool = pool
        self._on_change = on_change
        self._on_dead = on_dead
        self._on_unreachable = on_unreachable
        self._has_others = has_others
        self._patience: dict[type[Request[Any]], float] = {}
        self._address: BrokerAddress | None = None
        limit = config.connections_max_silence_ms / 1000
        self._silence_limit = limit if limit > 0 else _NEVER
        self._backoff = Backoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000)
        self._address_turn = 0
        self._throttled_until = 0.0
        self._negotiation = VersionNegotiation()
        self._versions_doubted = trio.Event()
        self._silent_closes = SilentCloseExplainer(world, config)
        self._closed_by: SilentClose | None = None

    @property
    def name(self) -> str:
        """The broker's name in messages."""
        address = self.node.address
        return f"broker {self.node.node_id} at {address}" if self.node.node_id >= 0 else f"bootstrap server {address}"

    @property
    def finalized_features(self) -> FinalizedFeatures:
        """The cluster's features, as this broker stated them when it was connected last."""
        return self._negotiation.features

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return self.connection.in_flight if self.connection is not None else 0

    def may_connect(self, now: float) -> bool:
        """Whether a connection attempt may start now."""
        return self.state is ChannelState.DISCONNECTED and now >= self.retry_at

    def is_ready(self, now: float) -> bool:
        """Whether a request may be submitted now."""
        connection = self.connection
        return (
            self.state is ChannelState.READY
            and connection is not None
            and connection.can_send
            and now >= connection.throttled_until
        )

    def delay(self, now: float) -> float:
        """Return the seconds until the channel may be ready; infinity if a listener will be called first."""
        if self.state is ChannelState.DISCONNECTED:
            return max(0.0, self.retry_at - now)
        if self.connection is not None and self.connection.throttled_until > now:
            return self.connection.throttled_until - now
        return float("inf")

    def begin(self) -> None:
        """Mark the channel as connecting before `run` starts, so that no second attempt starts."""
        self._set_state(ChannelState.CONNECTING)
        self.attempts += 1

    async def run(self) -> None:
        """Connect, serve the connection until it ends, and note the back-off. Never raises `KafkaError`."""
        began = self._world.now()
        failure: errors.KafkaError | None = None
        try:
            failure = await self._connect_and_serve(began)
            if self._closed_by is not None and self._address is not None:
                explained = await self._silent_closes.explain(
                    self._closed_by, self.name, *self._address, self.api_versions
                )
                failure = explained or failure
        finally:
            self._ended(began, failure)

    async def _connect_and_serve(self, began: float) -> errors.KafkaError:
        """Return the error that ended the attempt or the connection."""
        hooks, security = self._config.hooks, self._config.security
        self._closed_by = None
        try:
            stream = await self._connect()
            connection = None
            received = 0
            try:
                async with trio.open_nursery() as nursery:
                    connection = self._new_connection(stream, nursery)
                    nursery.start_soon(self._serve, connection, nursery.cancel_scope)
                    self._note_versions(await self._agree(connection, self._first_answer_timeout()))
                    if security is not None and security.sasl is not None:
                        await self._authenticate(connection, security.sasl, nursery)
                    received = connection.bytes_received
                    self.connection = connection
                    self.failures = self.failed_connects = 0
                    self.error = None
                    if self._config.traffic is not None:
                        self._config.traffic.note_open(self._world.now() - began, self.api_versions)
                    if hooks:
                        address = "{}:{}".format(*stream.peer_address)
                        hooks.on_connect(self.node, address, self._world.now() - began, None)
                    self._set_state(ChannelState.READY)
                    while True:
                        await self._versions_doubted.wait()
                        self._versions_doubted = trio.Event()
                        self._note_versions(await self._agree(connection))
            finally:
                await discard(stream)
                if connection is not None and connection.closed_by_peer and connection.bytes_received == received:
                    self._closed_by = SilentClose.BEFORE_VERSIONS if not received else SilentClose.BEFORE_FIRST_ANSWER
            return self._connect_error(str(connection.error))
        except* errors.KafkaError as group:
            failure = _first(group)
        return failure

    async def _authenticate(self, connection: Connection, sasl: SaslSettings, nursery: trio.Nursery) -> None:
        """Authenticate, and start the task that does it again before the session ends."""
        from triokafka.network.sasl_exchange import authenticate, keep_authenticated  # not needed without SASL

        timeout = self._config.request_timeout_ms / 1000
        try:
            renew_after = await authenticate(
                connection, sasl, self.api_versions, self._world, timeout=timeout, host=self.node.host
            )
        except errors.KafkaError as error:
            connection.close(error)
            raise
        if renew_after is not None:
            nursery.start_soon(
                partial(
                    keep_authenticated,
                    connection,
                    sasl,
                    lambda: self.api_versions,
                    self._world,
                    renew_after,
                    timeout=timeout,
                    host=self.node.host,
                )
            )

    def _ended(self, began: float, failure: errors.KafkaError | None) -> None:
        """Record the error and the time of the next attempt; ``failure`` is None when the client was closed."""
        hooks = self._config.hooks
        connection, self.connection = self.connection, None
        if connection is not None:
            self._throttled_until = connection.throttled_until
            self.failures = 1
            self.error = ended = (
                failure if isinstance(failure, errors.AuthenticationError) else _as_kafka_error(connection.error)
            )
            if self._config.traffic is not None:
                self._config.traffic.closed.append(1.0)
            if hooks:
                hooks.on_disconnect(self.node, ended)
        else:
            self.failures += 1
            self.failed_connects += 1
            self.error = failure or self.error
            if self._config.traffic is not None and isinstance(failure, errors.AuthenticationError):
                self._config.traffic.refused.append(1.0)
            if hooks and failure is not None:
                hooks.on_connect(self.node, self.node.address, self._world.now() - began, failure)
        logger.debug("%s: %s", self.name, self.error)
        self.retry_at = self._world.now() + self._backoff.delay(self.failures, self._world.random.random())
        self._set_state(ChannelState.DISCONNECTED)

    async def _serve(self, connection: Connection, attempt: trio.CancelScope) -> None:
        await connection.run()
        attempt.cancel()

    def _first_answer_timeout(self) -> float:
        """Return the seconds for the TLS handshake and for the first response on a connection; doubled with each
        failure, up to the request timeout.

        No broker delays these, so a silent path fails soon. A slow broker gets more time on the next attempt.
        """
        backoff = Backoff(self._silence_limit / 2, self._config.request_timeout_ms / 1000)
        return backoff.delay(self.failed_connects + 1, 0.5)

    async def _probe(self, suspect: Connection) -> None:
        """Test whether the broker answers over a new connection."""
        alive = False
        with trio.move_on_after(suspect.probe_timeout):
            alive = await self._answers()
        logger.debug("%s is silent; over a fresh connection it %s", self.name, "answers" if alive else "is silent, too")
        suspect.probed(alive=alive)
        if not alive:
            self._on_unreachable()

    async def _answers(self) -> bool:
        """Open a second connection to the same address, and send an ApiVersions request, which no broker delays."""
        assert self._address is not None
        host, port, server_name = self._address
        frame = encode_request(ApiVersionsRequest(), version=0, correlation_id=0, client_id=self._config.client_id)
        try:
            stream = await open_stream(self._world, self._config, host, port, server_name=server_name)
            try:
                await stream.send(*frame)
                return await stream.receive_into(memoryview(bytearray(_PROBE_BYTES))) > 0
            finally:
                await discard(stream)
        except (OSError, trio.ClosedResourceError):
            return False

    async def _agree(self, connection: Connection, timeout: float | None = None) -> ApiVersions:
        try:
            return await self._negotiation.ask(connection, timeout)
        except (errors.KafkaError, OSError) as error:
            connection.close(error)
            if isinstance(connection.error, errors.AuthenticationError):
                raise connection.error from error
            raise self._connect_error(str(error)) from error

    def _note_versions(self, versions: ApiVersions) -> None:
        self.api_versions = versions
        self._chosen_versions.clear()

    def version_for(
        self, request_type: type[Request[Any]], min_version: int | None = None, max_version: int | None = None
    ) -> int:
        """Return the version of a request to this broker; cached per connection.

        Raises:
            NodeNotReadyError: not connected yet, so the broker's versions are unknown.
            UnsupportedVersionError: broker and client have no version in common.
        """
        asked = (request_type, min_version, max_version)
        version = self._chosen_versions.get(asked)
        if version is None:
            if not self.api_versions:
                raise errors.NodeNotReadyError(f"{self.name} has not sent its API versions yet")
            version = self._chosen_versions[asked] = choose_version(
                request_type, self.api_versions, broker=self.name, min_version=min_version, max_version=max_version
            )
        return version

    def submit(
        self,
        request: Request[Any] | FilledRequest,
        version: int,
        on_done: Completion,
        *,
        timeout: float | None = None,
        expect_response: bool = True,
        now: float | None = None,
        may_wait: float = 0.0,
    ) -> None:
        """Like `Connection.submit`. Raises `NodeNotReadyError` without a connection; then nothing was sent."""
        if self.connection is None:
            raise errors.NodeNotReadyError(f"{self.name} is not ready for a request")
        self.connection.submit(
            request, version, on_done, timeout=timeout, expect_response=expect_response, now=now, may_wait=may_wait
        )

    def call_after_answers(self, callback: Callable[[float], None]) -> None:
        """As `Connection.call_after_answers`."""
        if self.connection is not None:
            self.connection.call_after_answers(callback)

    def hold(self) -> None:
        """As `Connection.hold`, if there is a connection."""
        if self.connection is not None:
            self.connection.hold()

    def let_go(self) -> None:
        """As `Connection.let_go`, if there is still a connection."""
        if self.connection is not None:
            self.connection.let_go()

    def _doubt_versions(self) -> None:
        """Request the versions again. The broker refused one of its own versions, so it was replaced or upgraded."""
        self._versions_doubted.set()

    def _set_state(self, state: ChannelState) -> None:
        self.state = state
        self.wake_waiters()
        self._on_change()

    def wake_waiters(self) -> None:
        """Wake all tasks that wait for a change of the state."""
        changed, self.changed = self.changed, trio.Event()
        changed.set()

    def _connect_error(self, why: str) -> errors.KafkaConnectionError:
        return errors.KafkaConnectionError(f"could not connect to {self.name}: {why}")

    async def _connect(self) -> Stream:
        try:
            addresses = await broker_addresses(self.node, self._config, self._world)
        except OSError as error:
            why = f"the name {self.node.host!r} cannot be resolved: {_reason(error)}"
            raise self._connect_error(why) from error
        # Each attempt starts one address further, so that a dead first address does not delay every attempt (KIP-602).
        turn = self._address_turn % len(addresses) if addresses else 0
        addresses = addresses[turn:] + addresses[:turn]
        setup = Backoff(
            self._config.socket_connection_setup_timeout_ms / 1000,
            self._config.socket_connection_setup_timeout_max_ms / 1000,
        )
        timeout = setup.delay(self.failed_connects + 1, self._world.random.random())
        tried: list[str] = []
        for host, port, server_name in addresses:
            try:
                with trio.fail_after(timeout):
                    stream = await open_stream(
                        self._world,
                        self._config,
                        host,
                        port,
                        server_name=server_name,
                        handshake_timeout=self._first_answer_timeout(),
                    )
                self._address = BrokerAddress(host, port, server_name)
                self._closed_by = None  # another address may have closed its connection without an error
                return stream
            except ssl.SSLError as error:
                final = handshake_error(f"{self.name}", error, server_name)
                if final is None and isinstance(error, ssl.SSLEOFError):
                    self._address = BrokerAddress(host, port, server_name)
                    self._closed_by = SilentClose.BEFORE_VERSIONS
                if final is not None:
                    raise final from error
                why = getattr(error, "reason", None) or _reason(error)
            except trio.TooSlowError:
                why = f"no answer within {timeout * 1000:.0f} ms"
            except OSError as error:
                why = _reason(error)
            self._address_turn += 1
            tried.append(
                why if (host, port) == (self.node.host, self.node.port) else f"{address_text(host, port)}: {why}"
            )
        raise self._connect_error("; ".join(tried) or f"the name {self.node.host!r} has no address")

    def _new_connection(self, stream: Stream, nursery: trio.Nursery) -> Connection:
        config = self._config
        watches_silence = self._silence_limit < _NEVER

        def probe() -> None:
            nursery.start_soon(self._probe, connection)

        connection = Connection(
            stream,
            world=self._world,
            name=self.name,
            node=self.node,
            client_id=config.client_id,
            pool=self._pool,
            request_timeout=config.request_timeout_ms / 1000,
            max_idle=config.connections_max_idle_ms / 1000 if config.connections_max_idle_ms >= 0 else float("inf"),
            max_in_flight=config.max_in_flight_requests_per_connection,
            max_response_bytes=config.receive_message_max_bytes,
            throttled_until=self._throttled_until,
            hooks=config.hooks,
            traffic=config.traffic.node(self.node.node_id, self._purpose) if config.traffic is not None else None,
            on_room=self._on_change,
            on_version_refused=self._doubt_versions,
            silence_limit=self._silence_limit,
            on_silent=probe if watches_silence else None,
            on_dead=self._on_dead,
            patience=self._patience,
            has_others=self._has_others,
        )
        return connection


def copied_failure(error: errors.KafkaError) -> errors.KafkaError:
    """Return the failure of an attempt for one of its callers: they must not share one traceback."""
    if isinstance(
        error,
        (
            errors.AuthenticationError,
            errors.KafkaConnectionError,
            errors.UnsupportedVersionError,
            errors.BrokerResponseError,
        ),
    ):
        return errors.raisable_copy(error)
    return errors.KafkaConnectionError(str(error))


def _as_kafka_error(error: Exception | None) -> errors.KafkaError:
    return error if isinstance(error, errors.KafkaError) else errors.KafkaConnectionError(str(error))


def _first(group: BaseExceptionGroup[errors.KafkaError]) -> errors.KafkaError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return _as_kafka_error(found if isinstance(found, Exception) else None)


def _reason(error: OSError) -> str:
    # The resolver has its own error numbers, which strerror does not know.
    if error.errno and error.errno > 0 and type(error).__name__ != "gaierror":
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
