"""SASL at the broker's end of a connection: which requests are allowed when (KIP-43, KIP-152, KIP-368).

``_HANDSHAKE`` → ``_AUTHENTICATE`` → ``_COMPLETE``; when clients must authenticate again, a SaslHandshake leads from
``_COMPLETE`` to ``_AUTHENTICATE``. ApiVersions is allowed before the handshake. Every other request before
``_COMPLETE`` ends the connection.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from triokafka.errors import (
    IllegalSaslStateError,
    ProtocolError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from triokafka.protocol.frames import RequestHeader, decode_request_header, encode_response
from triokafka.protocol.message import Response
from triokafka.security.sasl.mechanism import SaslServer
from triokafka.structs import Buffer
from triokafka.world import World

_HANDSHAKE_KEY: Final = 17
_AUTHENTICATE_KEY: Final = 36
_API_VERSIONS_KEY: Final = 18
_MOST_REQUESTS: Final = 64
"""Requests of a connection before it is authenticated, and each time again; clients need about five."""


class MechanismOptions(NamedTuple):
    """A mechanism of a listener: how to start an exchange, and ``connections.max.reauth.ms`` (0 for no limit)."""

    start: Callable[[], SaslServer]
    max_reauth_ms: int = 0


class SaslOptions(NamedTuple):
    """The SASL of a listener: its mechanisms by name, and ``sasl.server.max.receive.size``."""

    mechanisms: Mapping[str, MechanismOptions]
    max_receive_bytes: int = 524_288


class SaslStep(NamedTuple):
    """The reaction to a frame: send ``parts``, and then close the connection if there is a ``refusal``."""

    parts: Sequence[Buffer]
    refusal: str | None = None
    delayed: bool = False
    """Whether the refusal waits for ``connection.failed.authentication.delay.ms`` (KIP-306)."""
    evaluate: Callable[[], bytes | SaslAuthenticationFailedError] | None = None
    """A function to run in a thread, because it may wait; `SaslSession.evaluated` takes the result and returns the
    step."""


class _State(enum.Enum):
    HANDSHAKE = "before SaslHandshake"
    AUTHENTICATE = "before SaslAuthenticate"
    COMPLETE = "authenticated"
    FAILED = "refused"


class SaslSession:
    """The state of one connection. ``principal`` is None until the peer is authenticated."""

    def __init__(self, options: SaslOptions, world: World) -> None:
        self.principal: str | None = None
        self.token_authenticated = False
        self._options = options
        self._world = world
        self._state = _State.HANDSHAKE
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._evaluating: RequestHeader | None = None
        self._expires_at: float | None = None
        self._requests = 0

    @property
    def is_complete(self) -> bool:
        """Whether the peer is authenticated, and not about to authenticate again."""
        return self._state is _State.COMPLETE

    @property
    def max_bytes(self) -> int:
        """The largest frame of a peer that is not authenticated."""
        return self._options.max_receive_bytes

    def take(self, frame: Buffer) -> SaslStep | None:
        """Take a request. Return None when the broker serves it as any other."""
        state = self._state
        key = int.from_bytes(frame[:2], "big")
        if state is _State.COMPLETE:
            if key == _HANDSHAKE_KEY and self._may_start_again:
                return self._handshake(frame)
            if self._expires_at is not None and self._world.now() >= self._expires_at:
                return self._refuse((), f"the session of {self.principal} has expired (connections.max.reauth.ms)")
            return None
        self._requests += 1
        if self._requests > _MOST_REQUESTS:
            return self._refuse((), f"{_MOST_REQUESTS} requests without authentication")
        if state is _State.HANDSHAKE and key == _API_VERSIONS_KEY:
            return None
        if state is _State.HANDSHAKE and key == _HANDSHAKE_KEY:
            return self._handshake(frame)
        if state is _State.AUTHENTICATE and key == _AUTHENTICATE_KEY:
            return self._authenticate(frame)
        return self._refuse((), f"a request with API key {key} {state.value}")

    @property
    def _may_start_again(self) -> bool:
        return self._expires_at is not None

    def _refuse(self, parts: Sequence[Buffer], why: str, *, delayed: bool = False) -> SaslStep:
        self._state = _State.FAILED
        return SaslStep(parts, why, delayed)

    def _handshake(self, frame: Buffer) -> SaslStep:
        decoded = self._decode(SaslHandshakeRequest, frame)
        if decoded is None:
            return self._refuse((), "an invalid SaslHandshake")
        header, request = decoded
        assert isinstance(request, SaslHandshakeRequest)
        offered = list(self._options.mechanisms)
        if self.principal is not None and request.mechanism != self._mechanism:
            reply = SaslHandshakeResponse(error_code=IllegalSaslStateError.code, mechanisms=offered)
            return self._refuse(
                _encode(reply, header), "the mechanism may not change when a client authenticates again"
            )
        if request.mechanism not in self._options.mechanisms:
            reply = SaslHandshakeResponse(error_code=UnsupportedSaslMechanismError.code, mechanisms=offered)
            return self._refuse(_encode(reply, header), f"no such SASL mechanism: {request.mechanism[:40]!r}")
        if header.api_version == 0:
            # The tokens would follow as bare frames, as before Kafka 1.0.
            reply = SaslHandshakeResponse(error_code=IllegalSaslStateError.code, mechanisms=offered)
            return self._refuse(_encode(reply, header), "SaslHandshake version 0: the client is older than Kafka 1.0")
        self._mechanism = request.mechanism
        self._server = self._options.mechanisms[request.mechanism].start()
        self._state = _State.AUTHENTICATE
        return SaslStep(_encode(SaslHandshakeResponse(mechanisms=offered), header))

    def _authenticate(self, frame: Buffer) -> SaslStep:
        decoded = self._decode(SaslAuthenticateRequest, frame)
        server = self._server
        if decoded is None or server is None:
            return self._refuse((), "an invalid SaslAuthenticate")
        header, request = decoded
        assert isinstance(request, SaslAuthenticateRequest)
        evaluate = partial(_evaluate, server, bytes(request.auth_bytes))
        if server.is_slow:
            self._evaluating = header
            return SaslStep((), evaluate=evaluate)
        return self._evaluated(server, header, evaluate())

    def evaluated(self, token: bytes | SaslAuthenticationFailedError) -> SaslStep:
        """Return the step after the evaluation of a token in a thread."""
        header, self._evaluating = self._evaluating, None
        if header is None or self._server is None:
            return self._refuse((), "no token is being evaluated")
        return self._evaluated(self._server, header, token)

    def _evaluated(
        self, server: SaslServer, header: RequestHeader, token: bytes | SaslAuthenticationFailedError
    ) -> SaslStep:
        if isinstance(token, SaslAuthenticationFailedError):
            return self._fail(header, str(token), getattr(token, "why", None))
        if server.user is None:
            return SaslStep(_encode(SaslAuthenticateResponse(auth_bytes=token), header))
        principal = f"User:{server.user}"
        if self.principal is not None and principal != self.principal:
            return self._fail(header, "the principal may not change when a client authenticates again")
        self.principal, self.token_authenticated = principal, server.token_authenticated
        self._server = None
        self._state = _State.COMPLETE
        self._requests = 0
        lifetime_ms = self._lifetime_ms(server)
        return SaslStep(_encode(SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms), header))

    def _lifetime_ms(self, server: SaslServer) -> int:
        """Return the lifetime for the client, and note when the session expires: 0 and None for never."""
        limit = self._options.mechanisms[self._mechanism].max_reauth_ms
        left = None if server.expires_at_ms is None else max(server.expires_at_ms - self._world.wall_ms(), 1)
        lifetime_ms = min(limit or left or 0, left or limit)
        self._expires_at = None
        if not lifetime_ms:
            return 0
        self._expires_at = self._world.now() + lifetime_ms / 1000
        return lifetime_ms

    def _fail(self, header: RequestHeader, why: str, for_log: str | None = None) -> SaslStep:
        reply = SaslAuthenticateResponse(error_code=SaslAuthenticationFailedError.code, error_message=why)
        return self._refuse(_encode(reply, header), f"{self._mechanism}: {for_log or why}", delayed=True)

    def _decode(
        self, kind: type[SaslHandshakeRequest] | type[SaslAuthenticateRequest], frame: Buffer
    ) -> tuple[RequestHeader, SaslHandshakeRequest | SaslAuthenticateRequest] | None:
        try:
            header = decode_request_header(frame)
            if header.api_version not in kind.versions:
                return None
            return header, kind.decode(frame, header.api_version, header.size)
        except ProtocolError:
            return None


def _evaluate(server: SaslServer, token: bytes) -> bytes | SaslAuthenticationFailedError:
    try:
        return server.evaluate(token)
    except SaslAuthenticationFailedError as error:
        return error


def _encode(response: Response, header: RequestHeader) -> list[Buffer]:
    return encode_response(response, version=header.api_version, correlation_id=header.correlation_id)
