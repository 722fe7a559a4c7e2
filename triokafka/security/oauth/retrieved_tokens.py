"""The access tokens of a client: retrieved from a token endpoint or a file, kept, and replaced ahead of their expiry.

There is no background task. The connection that logs in after the time of replacement retrieves the next token, and
the others wait for it. Connections log in again before their session ends (KIP-368), so a client in use stays ahead of
the expiry, and an idle one sends no request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from triokafka.errors import ConfigurationError, SaslAuthenticationFailedError
from triokafka.named_tuple import NamedTuple
from triokafka.security.oauth.assertion import Assertion
from triokafka.security.oauth.endpoint import EndpointError, OAuthEndpoint, document
from triokafka.security.oauth.grant_requests import (
    TokenRequest,
    token_of,
    with_client_assertion,
    with_jwt_bearer,
    with_secret,
)
from triokafka.security.oauth.refresh_window import RefreshWindow
from triokafka.security.oauth.token_claims import ClaimRules, check_claims_of_client
from triokafka.security.sasl.mechanism import CredentialsUnavailableError
from triokafka.security.sasl.oauthbearer import InvalidTokenError
from triokafka.security.secret import Secret, reveal
from triokafka.world import World

logger = logging.getLogger(__name__)

_RETRY_MS: Final = 10_000
"""After a failed replacement, the current token stays in use for so long before the next attempt, if it is valid."""

Text = str | Callable[[], str] | None


class TokenFile(NamedTuple):
    """The endpoint is a file that contains the token."""


class SecretGrant(NamedTuple):
    """Client credentials with a secret. Functions are called for every token."""

    client_id: Text
    client_secret: Text
    scope: str | None
    encoded: bool

    def request(self, world: World) -> TokenRequest:
        """Return the request for a token. Raises `SaslAuthenticationFailedError`."""
        client_id, secret = _called(self.client_id, "client id"), _called(self.client_secret, "client secret")
        return with_secret(client_id, secret, self.scope, encoded=self.encoded)


class AssertionGrant(NamedTuple):
    """A signed assertion: in place of a client's secret, or as the grant itself (``is_grant``)."""

    assertion: Assertion
    client_id: Text
    scope: str | None
    is_grant: bool

    def request(self, world: World) -> TokenRequest:
        """Return the request for a token. Raises `ConfigurationError`."""
        assertion = self.assertion.make(world)
        if self.is_grant:
            return with_jwt_bearer(assertion, self.scope)
        client_id = None if self.client_id is None else _called(self.client_id, "client id")
        return with_client_assertion(assertion, client_id, self.scope)


Grant = TokenFile | SecretGrant | AssertionGrant


class _Held(NamedTuple):
    token: str
    expires_ms: int
    refresh_at_ms: int


class RetrievedTokens:
    """The tokens of one client. Shared by its connections; a cancelled caller leaves the others alone.

    Args:
        endpoint: the token endpoint, or the file with the token.
        grant: how the client proves who it is.
        rules: the names of claims that a token must have.
    """

    def __init__(self, endpoint: OAuthEndpoint, grant: Grant, *, window: RefreshWindow, rules: ClaimRules) -> None:
        self._endpoint = endpoint
        self._grant = grant
        self._window = window
        self._rules = rules
        self._held: _Held | None = None
        self._lock = trio.Lock()

    def __repr__(self) -> str:
        return f"RetrievedTokens({self._endpoint.url})"

    async def token(self, world: World) -> str:
        """Return a token that has not expired. Waits for the endpoint if the current token must be replaced.

        Raises:
            CredentialsUnavailableError: there is no token, or it has expired. The message shows no credentials.
            SaslAuthenticationFailedError: the endpoint refuses the client.
        """
        async with self._lock:
            held, now_ms = self._held, world.wall_ms()
            if held is not None and now_ms < held.refresh_at_ms:
                return held.token
            is_valid = held is not None and now_ms < held.expires_ms
            try:
                self._held = await self._retrieve(world, patiently=not is_valid)
            except (EndpointError, InvalidTokenError, ConfigurationError, SaslAuthenticationFailedError) as error:
                if held is None or not is_valid:
                    refused = isinstance(error, EndpointError) and error.is_final
                    kind = SaslAuthenticationFailedError if refused else CredentialsUnavailableError
                    raise kind(f"no token for OAUTHBEARER ({self._endpoint.option}): {error}") from None
                logger.warning("the token for OAUTHBEARER could not be replaced and stays in use: %s", error)
                self._held = held._replace(refresh_at_ms=min(now_ms + _RETRY_MS, held.expires_ms))
            return self._held.token

    async def _retrieve(self, world: World, *, patiently: bool) -> _Held:
        endpoint = self._endpoint if patiently else self._endpoint._replace(retry_backoff_max_ms=0)
        if isinstance(self._grant, TokenFile):
            token = (await document(world, endpoint, {})).decode("utf-8", "replace").strip()
        else:
            request = self._grant.request(world)
            token = token_of(await document(world, endpoint, request.headers, request.body))
        expires_ms, begins_ms = check_claims_of_client(token, self._rules)
        now_ms = world.wall_ms()
        if expires_ms <= now_ms:
            raise InvalidTokenError(
                f"the token from {self._endpoint.url} expired {(now_ms - expires_ms) / 1000:.0f} s ago, by this"
                " machine's clock"
            )
        if isinstance(self._grant, TokenFile):
            return _Held(Secret(token), expires_ms, now_ms)  # the next login reads the file again
        refresh_at_ms = self._window.refresh_at_ms(
            now_ms=now_ms, begins_ms=begins_ms, expires_ms=expires_ms, random=world.random.random()
        )
        return _Held(Secret(token), expires_ms, refresh_at_ms)


def _called(given: Text, what: str) -> str:
    try:
        value = given() if callable(given) else given
    except Exception as error:
        raise SaslAuthenticationFailedError(f"the function for the {what} failed: {type(error).__name__}") from None
    if not isinstance(value, str) or not reveal(value).strip():
        raise SaslAuthenticationFailedError(f"the {what} is empty, or not a string")
    return value
