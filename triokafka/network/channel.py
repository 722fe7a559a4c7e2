"""The way to one broker: connecting with back-off over all its addresses, and agreeing on versions.

`BrokerChannel` outlives its connections. `transport` is where security protocols are put on top of the stream.
"""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable
from typing import Final

import trio

from triokafka.errors import (
    ConfigurationError,
    KafkaConnectionError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
)
from triokafka.network.backoff import Backoff
from triokafka.network.config import NetworkConfig
from triokafka.network.connection import Connection
from triokafka.network.receive_pool import ReceivePool
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from triokafka.structs import Node
from triokafka.world import Stream, World

logger = logging.getLogger(__name__)

_API_VERSIONS_KEY: Final = 18
_UNSUPPORTED_VERSION: Final = 35
SOFTWARE_NAME: Final = "triokafka"


def check_security(config: NetworkConfig) -> None:
    """Refuse what this build cannot do. Raises `ConfigurationError`."""
    if config.security_protocol != "PLAINTEXT":
        raise ConfigurationError(
            f"security_protocol {config.security_protocol!r} is not available yet; only 'PLAINTEXT' is."
            " Use a listener of the broker without TLS and SASL"
        )


async def transport(world: World, config: NetworkConfig, host: str, port: int) -> Stream:
    """Connect to one address and do the handshake of the security protocol. Raises `OSError`."""
    return await world.connect(host, port)


class ChannelState(enum.Enum):
    """Where a channel stands. Only a ``READY`` one takes requests (`client/NET-9`, `client/NET-15`)."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    READY = "ready"


class BrokerChannel:
    """All that a client knows about reaching one broker, for one purpose.

    ``changed`` is set and replaced whenever the state changes. Points in time are seconds on the world's clock.
    """

    def __init__(
        self, node: Node, *, world: World, config: NetworkConfig, pool: ReceivePool, on_change: Callable[[], None]
    ) -> None:
        self.node = node
        self.state = ChannelState.DISCONNECTED
        self.connection: Connection | None = None
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.error: KafkaError | None = None
        self.failures = 0
        self.attempts = 0
        self.retry_at = 0.0
        self.throttled_until = 0.0
        self.changed = trio.Event()
        self._world = world
        self._config = config
        self._pool = pool
        self._on_change = on_change
        self._backoff = Backoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000)
        self._address_turn = 0
        self._max_api_versions: int | None = None
        self._only_api_versions: int | None = None

    @property
    def name(self) -> str:
        """How messages call this broker."""
        address = f"{self.node.host}:{self.node.port}"
        return f"broker {self.node.node_id} at {address}" if self.node.node_id >= 0 else f"bootstrap server {address}"

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return self.connection.in_flight if self.connection is not None else 0

    def may_connect(self, now: float) -> bool:
        """Whether a connection attempt may start now (`client/NET-16`)."""
        return self.state is ChannelState.DISCONNECTED and now >= self.retry_at

    def is_ready(self, now: float) -> bool:
        """Whether a request may be handed over now."""
        connection = self.connection
        return (
            self.state is ChannelState.READY
            and connection is not None
            and connection.can_send
            and now >= self.throttled_until
        )

    def delay(self, now: float) -> float:
        """Seconds until this channel may be worth another look; infinity when an event will tell."""
        if self.state is ChannelState.DISCONNECTED:
            return max(0.0, self.retry_at - now)
        if self.state is ChannelState.READY and self.throttled_until > now:
            return self.throttled_until - now
        return float("inf")

    def begin(self) -> None:
        """Note that `run` is about to be started, so that nobody starts a second attempt."""
        self._set_state(ChannelState.CONNECTING)
        self.attempts += 1

    async def run(self) -> None:
        """Connect, serve the connection until it ends, and note the back-off. Never raises `Exception`."""
        was_ready = False
        try:
            stream = await self._connect()
            connection = self._new_connection(stream)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.run)
                try:
                    self.api_versions = await self._negotiate(connection)
                except (KafkaError, OSError) as error:
                    connection.close(error)
                    raise self._connect_error(str(error)) from error
                self.connection = connection
                self.failures = 0
                self.error = None
                was_ready = True
                self._set_state(ChannelState.READY)
            self.error = _as_kafka_error(connection.error)
            logger.debug("%s: %s", self.name, self.error)
        except* KafkaError as group:
            self.error = _first(group)
            logger.debug("%s", self.error)
        finally:
            self.connection = None
            self.failures = 1 if was_ready else self.failures + 1
            self.retry_at = self._world.now() + self._backoff.delay(self.failures, self._world.random.random())
            self._set_state(ChannelState.DISCONNECTED)

    def _set_state(self, state: ChannelState) -> None:
        self.state = state
        changed, self.changed = self.changed, trio.Event()
        changed.set()
        self._on_change()

    def _connect_error(self, why: str) -> KafkaConnectionError:
        return KafkaConnectionError(f"could not connect to {self.name}: {why}")

    async def _connect(self) -> Stream:
        host, port = self.node.host, self.node.port
        try:
            found = await self._world.resolve(host, port)
        except OSError as error:
            raise self._connect_error(f"the name {host!r} cannot be resolved: {error}") from error
        addresses = list(dict.fromkeys(found))
        # Each attempt starts one address further, so that a dead first address does not cost every reconnect (KIP-602).
        turn = self._address_turn % len(addresses) if addresses else 0
        addresses = addresses[turn:] + addresses[:turn]
        setup = Backoff(
            self._config.socket_connection_setup_timeout_ms / 1000,
            self._config.socket_connection_setup_timeout_max_ms / 1000,
        )
        timeout = setup.delay(self.failures + 1, self._world.random.random())
        tried: list[str] = []
        for address, address_port in addresses:
            try:
                with trio.fail_after(timeout):
                    return await transport(self._world, self._config, address, address_port)
            except trio.TooSlowError:
                why = f"no answer within {timeout * 1000:.0f} ms"
            except OSError as error:
                why = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
            self._address_turn += 1
            tried.append(why if (address, address_port) == (host, port) else f"{address}:{address_port}: {why}")
        raise self._connect_error("; ".join(tried) or f"the name {host!r} has no address")

    def _new_connection(self, stream: Stream) -> Connection:
        config = self._config
        return Connection(
            stream,
            world=self._world,
            name=self.name,
            client_id=config.client_id,
            pool=self._pool,
            request_timeout=config.request_timeout_ms / 1000,
            max_idle=config.connections_max_idle_ms / 1000 if config.connections_max_idle_ms >= 0 else float("inf"),
            max_in_flight=config.max_in_flight_requests_per_connection,
            max_response_bytes=config.receive_message_max_bytes,
        )

    async def _negotiate(self, connection: Connection) -> dict[int, tuple[int, int]]:
        ours = ApiVersionsRequest.versions
        version = ours.max if self._max_api_versions is None else self._max_api_versions
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=_software_version())
        try:
            response: ApiVersionsResponse = await connection.call(request, version)
        except KafkaConnectionError:
            # Some brokers hang up on a version that they do not know instead of saying so.
            self._max_api_versions = 0 if version else None
            raise
        except ProtocolError:
            # librdkafka's mock says it in a format of its own, and always will.
            self._max_api_versions = self._only_api_versions = 0
            raise
        if response.error_code == _UNSUPPORTED_VERSION:
            theirs = next((k for k in response.api_keys if k.api_key == _API_VERSIONS_KEY), None)
            version = min(version, theirs.max_version) if theirs is not None else 0
            response = await connection.call(request, version)
        if response.error_code:
            raise UnsupportedVersionError(f"{self.name} answers ApiVersions with error {response.error_code}")
        self._max_api_versions = self._only_api_versions
        return {k.api_key: (k.min_version, k.max_version) for k in response.api_keys}


def _software_version() -> str:
    from importlib import metadata  # slow to import, and needed once per connection at most

    try:
        return metadata.version("triokafka")
    except metadata.PackageNotFoundError:
        return "unknown"


def _as_kafka_error(error: Exception | None) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaConnectionError(str(error))


def _first(group: BaseExceptionGroup[KafkaError]) -> KafkaError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return _as_kafka_error(found if isinstance(found, Exception) else None)
