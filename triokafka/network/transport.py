"""From an address to a stream for requests: connect, or call the user's stream factory, then do the handshake of the
security protocol.

The only place that adds security protocols to a stream, and that refuses unsupported ones.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from triokafka.errors import ConfigurationError
from triokafka.network.config import NetworkConfig, StreamFactory
from triokafka.structs import Buffer
from triokafka.world import Stream, World

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LARGE: Final = 64 << 10


def check_security(config: NetworkConfig, world: World) -> None:
    """Raise `ConfigurationError` if connections cannot be secured as configured: a missing file, a wrong password."""
    if config.security is not None:
        config.security.check(world)
    elif config.security_protocol != "PLAINTEXT":
        raise ConfigurationError(
            f"security_protocol {config.security_protocol!r} needs the settings of TLS or SASL (NetworkConfig.security)"
        )


async def open_stream(
    world: World,
    config: NetworkConfig,
    host: str,
    port: int,
    *,
    server_name: str,
    handshake_timeout: float = float("inf"),
) -> Stream:
    """Connect to one address and do the handshake of the security protocol.

    ``server_name`` is the name that the broker's certificate must have. The handshake may take ``handshake_timeout``
    seconds; the caller bounds the whole time. Raises `OSError`.
    """
    stream = await open_raw_stream(world, config, host, port)
    try:
        with trio.fail_after(handshake_timeout):
            return await secure(stream, world, config, server_name)
    except trio.TooSlowError as error:
        await discard(stream)
        raise OSError(f"the TLS handshake was not finished within {handshake_timeout * 1000:.0f} ms") from error
    except BaseException:
        await discard(stream)
        raise


async def open_raw_stream(world: World, config: NetworkConfig, host: str, port: int) -> Stream:
    """Connect to one address, without any security protocol. The caller bounds the time. Raises `OSError`."""
    if config.stream_factory is not None:
        stream = await _made_by(config.stream_factory, host, port)
    else:
        stream = await world.connect(
            host, port, send_buffer_bytes=config.send_buffer_bytes, receive_buffer_bytes=config.receive_buffer_bytes
        )
    if config.connections_max_silence_ms > 0:
        stream.limit_silence(config.connections_max_silence_ms / 1000)
    return stream


async def secure(stream: Stream, world: World, config: NetworkConfig, server_name: str) -> Stream:
    """Put the security protocol on top of a connected stream; PLAINTEXT adds nothing."""
    security = config.security
    if security is None or security.tls is None:
        return stream
    from triokafka.world.tls_stream import start_tls_client  # not needed for PLAINTEXT

    return await start_tls_client(stream, security.tls.context(world.storage), server_name)


async def discard(stream: Stream) -> None:
    """Close a stream and wait until it is closed. Not interrupted by cancellation; does not wait for the peer."""
    stream.close()
    while (inner := getattr(stream, "inner", None)) is not None and isinstance(inner, Stream):
        stream = inner  # below TLS
    if isinstance(stream, TrioStream):
        try:
            await trio.aclose_forcefully(stream.inner)
        except Exception:
            logger.debug("a stream of the stream_factory could not be closed", exc_info=True)


async def _made_by(factory: StreamFactory, host: str, port: int) -> Stream:
    try:
        made = await factory(host, port)
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"the stream_factory failed: {error!r}") from error
    if isinstance(made, Stream):
        return made
    if isinstance(made, trio.abc.Stream):
        return TrioStream(made, (host, port))
    raise OSError(f"the stream_factory returned {made!r}, not a trio.abc.Stream or a triokafka.world.Stream")


class TrioStream(Stream):
    """An adapter from Trio's streams to `Stream`. It copies all bytes; use `discard` to close it."""

    def __init__(self, inner: trio.abc.Stream, peer: tuple[str, int]) -> None:
        self.inner = inner
        self._peer = peer
        self._closed = False
        self._waiting: list[trio.CancelScope] = []

    async def send(self, *buffers: Buffer) -> None:
        small: list[Buffer] = []
        for buffer in buffers:
            if len(buffer) < _LARGE:
                small.append(buffer)
                continue
            await self._send_all(b"".join(small))
            await self._send_all(buffer)
            small.clear()
        await self._send_all(b"".join(small))

    async def _send_all(self, data: Buffer) -> None:
        if data:
            await self._until_closed(lambda: self.inner.send_all(data))

    async def receive_into(self, buffer: memoryview) -> int:
        data = await self._until_closed(lambda: self.inner.receive_some(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    async def _until_closed(self, operation: Callable[[], Awaitable[T]]) -> T:
        if not self._closed:
            with trio.CancelScope() as scope:
                self._waiting.append(scope)
                try:
                    return await operation()
                except trio.BrokenResourceError as error:
                    raise OSError(f"the stream broke: {error.__cause__ or error}") from error
                finally:
                    self._waiting.remove(scope)
        raise trio.ClosedResourceError("this connection was closed here")

    def close(self) -> None:
        self._closed = True
        for scope in self._waiting:
            scope.cancel()

    @property
    def peer_address(self) -> tuple[str, int]:
        return self._peer

    @property
    def local_address(self) -> tuple[str, int]:
        return ("", 0)
