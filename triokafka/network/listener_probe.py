"""Find out over a fresh connection which security protocol a listener has, to explain a failure.

No credentials are sent. Used after the first failure of a kind that a wrong ``security_protocol`` causes.
"""

from __future__ import annotations

import enum
import ssl
import struct
from typing import Final

import trio

from triokafka.network.config import NetworkConfig
from triokafka.network.transport import discard, open_raw_stream, secure
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest
from triokafka.protocol.frames import encode_request
from triokafka.world import Stream, World

_SECONDS: Final = 1.0
_NO_MECHANISM: Final = "triokafka-asks"
_UNSUPPORTED_MECHANISM: Final = 33
_MOST_BYTES: Final = 64 << 10
_SIZE: Final = struct.Struct(">i")


class ListenerKind(enum.Enum):
    """The kind of a listener, as far as one connection shows."""

    TLS = "TLS"
    NO_TLS = "Kafka's protocol without TLS"
    SASL = "SASL"
    UNKNOWN = "unknown"


async def probe_tls(world: World, config: NetworkConfig, host: str, port: int) -> ListenerKind:
    """Return whether the listener answers with TLS (`ListenerKind.TLS`) or without (`ListenerKind.NO_TLS`)."""
    if await _answers_plainly(world, config, host, port):
        return ListenerKind.NO_TLS
    return ListenerKind.TLS if await _answers_with_tls(world, config, host, port) else ListenerKind.UNKNOWN


async def probe_sasl(world: World, config: NetworkConfig, host: str, port: int, server_name: str) -> ListenerKind:
    """Return whether the listener expects SASL, over a connection with the client's own TLS settings."""
    frame = encode_request(
        SaslHandshakeRequest(mechanism=_NO_MECHANISM), version=1, correlation_id=0, client_id=config.client_id
    )
    with trio.move_on_after(_SECONDS):
        try:
            stream = await open_raw_stream(world, config, host, port)
            try:
                stream = await secure(stream, world, config, server_name)
                await stream.send(*frame)
                answer = await _frame(stream)
                if len(answer) >= 6 and int.from_bytes(answer[4:6], "big") == _UNSUPPORTED_MECHANISM:
                    return ListenerKind.SASL
            finally:
                await discard(stream)
        except (OSError, trio.ClosedResourceError):
            return ListenerKind.UNKNOWN
    return ListenerKind.UNKNOWN


async def _answers_plainly(world: World, config: NetworkConfig, host: str, port: int) -> bool:
    frame = encode_request(ApiVersionsRequest(), version=0, correlation_id=7, client_id=config.client_id)
    with trio.move_on_after(_SECONDS):
        try:
            stream = await open_raw_stream(world, config, host, port)
            try:
                await stream.send(*frame)
                answer = await _frame(stream)
                return answer[:4] == _SIZE.pack(7)
            finally:
                await discard(stream)
        except (OSError, trio.ClosedResourceError):
            return False
    return False


async def _answers_with_tls(world: World, config: NetworkConfig, host: str, port: int) -> bool:
    from triokafka.world.tls_stream import TlsStream

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no data follows: only the protocol matters
    with trio.move_on_after(_SECONDS):
        try:
            raw = await open_raw_stream(world, config, host, port)
            try:
                await TlsStream(raw, context, server_side=False, server_name=host).handshake()
                return True
            finally:
                await discard(raw)
        except ssl.SSLEOFError:
            return False
        except ssl.SSLError as error:
            return "ALERT" in (getattr(error, "reason", None) or "")
        except (OSError, trio.ClosedResourceError):
            return False
    return False


async def _frame(stream: Stream) -> bytes:
    """Return one response without its size; less when the peer closes or sends something else."""
    received = bytearray()
    room = memoryview(bytearray(4096))
    while len(received) < _MOST_BYTES:
        got = await stream.receive_into(room)
        if not got:
            break
        received += room[:got]
        if len(received) >= 4 and len(received) - 4 >= _SIZE.unpack_from(received)[0]:
            break
    return bytes(received[4:])
