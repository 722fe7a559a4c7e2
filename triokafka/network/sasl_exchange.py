"""SASL at the client's end of a connection (KIP-43, KIP-152), again before the session ends (KIP-368)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, TypeVar

import trio

from triokafka import errors
from triokafka.network.connection import Connection
from triokafka.network.response_waiter import ResponseWaiter
from triokafka.network.version_negotiation import ApiVersions
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from triokafka.protocol.message import Request
from triokafka.security.client_security import SaslSettings
from triokafka.security.sasl.mechanism import CredentialsUnavailableError, SaslClient
from triokafka.world import World

T = TypeVar("T")

_HANDSHAKE_KEY: Final = 17
_AUTHENTICATE_KEY: Final = 36
_MOST_TOKENS: Final = 16
"""Tokens of one exchange; no mechanism needs more than three."""
_MOST_TOKEN_BYTES: Final = 65_536
"""Size of a broker's token; Kerberos' are the largest, with some kilobytes."""
_RENEW_FROM: Final = 0.85
_RENEW_TO: Final = 0.95
_LEAST_RENEWAL: Final = 0.1
"""The part of a session's lifetime after which the client authenticates again: a random point between the two, but at
least `_LEAST_RENEWAL` seconds. The broker ends sessions that are shorter."""


async def authenticate(
    connection: Connection,
    settings: SaslSettings,
    versions: ApiVersions,
    world: World,
    *,
    timeout: float | None = None,
    again: bool = False,
    host: str = "",
) -> float | None:
    """Authenticate, and return the seconds after which to do it ``again``; None when the session does not end.

    ``host`` is the broker's name, which Kerberos needs. Waits for each response at most ``timeout`` seconds. Requests
    in flight continue while a client authenticates again; new ones wait.

    Raises:
        AuthenticationError: the broker refuses the client, or does not prove its identity; or the client has never
            logged in and gets no credentials.
        UnsupportedVersionError: the broker is older than 1.0.
        KafkaConnectionError, RequestTimedOutError, ProtocolError: the connection has ended. The first one also if the
            client gets no credentials now, and has logged in before.
    """
    try:
        # Fetching a token may take long, and must not hold up other requests.
        client = await settings.start(world, host)
        async with connection.exclusive() if again else nullcontext():
            call = _call(connection, timeout)
            renew_after = await _exchange(connection, call, client, settings.mechanism, versions, world)
    except CredentialsUnavailableError as error:
        # A provider that is down for a while must not end clients that run; a wrong configuration is to end at once.
        kind = errors.KafkaConnectionError if settings.has_logged_in(world) else errors.SaslAuthenticationFailedError
        raise kind(str(error)) from error.__cause__
    settings.note_login(world)
    return renew_after


Call = Callable[[Request[Any], int], Awaitable[Any]]


def _call(connection: Connection, timeout: float | None) -> Call:
    async def call(request: Request[Any], version: int) -> Any:
        waiter = ResponseWaiter()
        connection.submit(request, version, waiter.done, timeout=timeout)
        return await waiter.wait()

    return call


async def _exchange(
    connection: Connection, call: Call, client: SaslClient, mechanism: str, versions: ApiVersions, world: World
) -> float | None:
    name = connection.name
    if _HANDSHAKE_KEY not in versions or versions[_HANDSHAKE_KEY][1] < 1 or _AUTHENTICATE_KEY not in versions:
        raise errors.UnsupportedVersionError(
            f"{name} has no SaslAuthenticate: SASL needs brokers of Kafka 1.0 or later"
        )
    version = min(versions[_AUTHENTICATE_KEY][1], SaslAuthenticateRequest.versions.max)
    handshake: SaslHandshakeResponse = await call(SaslHandshakeRequest(mechanism=mechanism), 1)
    if handshake.error_code == errors.UnsupportedSaslMechanismError.code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise errors.UnsupportedSaslMechanismError(
            f"{name} does not offer the mechanism {mechanism}; it offers {offered}"
        )
    if handshake.error_code == errors.IllegalSaslStateError.code:
        raise errors.IllegalSaslStateError(
            f"{name}: this listener has no SASL. Set security_protocol to PLAINTEXT or SSL, or use another port"
        )
    if handshake.error_code:
        raise errors.for_code(handshake.error_code)(f"{name} refused the SASL handshake")
    began = world.now()
    token: bytes | None = await _run(client.first, client, world)
    for _ in range(_MOST_TOKENS):
        assert token is not None
        response: SaslAuthenticateResponse = await call(SaslAuthenticateRequest(auth_bytes=token), version)
        if response.error_code:
            why = response.error_message or "no reason given"
            raise errors.for_code(response.error_code)(f"{name} refused {mechanism}: {why}")
        if len(response.auth_bytes) > _MOST_TOKEN_BYTES:
            raise errors.SaslAuthenticationFailedError(
                f"{name}: a {mechanism} token of {len(response.auth_bytes)} bytes; allowed are {_MOST_TOKEN_BYTES}"
            )
        try:
            token = await _run(partial(client.answer, bytes(response.auth_bytes)), client, world)
        except errors.SaslAuthenticationFailedError as error:
            raise errors.SaslAuthenticationFailedError(f"{name}: {error}") from None
        if token is None:
            return _renew_after(response.session_lifetime_ms, began, world)
    raise errors.SaslAuthenticationFailedError(
        f"{name}: the {mechanism} exchange did not end after {_MOST_TOKENS} tokens"
    )


async def _run(step: Callable[[], T], client: SaslClient, world: World) -> T:
    """Run a step of the mechanism, in a thread if it may wait."""
    return await world.run_in_thread(step) if client.is_slow else step()


def _renew_after(lifetime_ms: int, began: float, world: World) -> float | None:
    if lifetime_ms <= 0:
        return None
    share = _RENEW_FROM + (_RENEW_TO - _RENEW_FROM) * world.random.random()
    return max(_LEAST_RENEWAL, lifetime_ms / 1000 * share - (world.now() - began))


async def keep_authenticated(
    connection: Connection,
    settings: SaslSettings,
    versions: Callable[[], ApiVersions],
    world: World,
    renew_after: float,
    *,
    timeout: float | None,
    host: str = "",
) -> None:
    """Authenticate again before each session ends, until the connection ends or a session does not end.

    A failure ends the connection.
    """
    delay: float | None = renew_after
    while delay is not None:
        await trio.sleep(delay)
        try:
            delay = await authenticate(connection, settings, versions(), world, timeout=timeout, again=True, host=host)
        except Exception as error:
            connection.close(error)
            return
