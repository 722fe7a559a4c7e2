"""The security of a client's connections: TLS, and the SASL mechanism with its credentials."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from triokafka.errors import ConfigurationError, SaslAuthenticationFailedError
from triokafka.security.kerberos.login import KerberosLogin, KerberosSettings
from triokafka.security.oauth.retrieved_tokens import RetrievedTokens
from triokafka.security.oauth.token_claims import expiry_of
from triokafka.security.sasl.mechanism import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    CredentialsUnavailableError,
    SaslClient,
)
from triokafka.security.sasl.oauthbearer import OAuthBearerClient, check_extensions
from triokafka.security.sasl.plain import PlainClient
from triokafka.security.sasl.scram import ScramClient
from triokafka.security.scram_credentials import ScramMechanism
from triokafka.security.secret import reveal
from triokafka.security.tls import TlsContexts
from triokafka.world import World

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
Credential = str | Callable[[], str]
"""A user name or a password, or a function that returns it and is called for every connection."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The mechanism and the credentials of a client. Credentials do not appear in the ``repr``.

    ``token_provider`` is a function, a `TokenProvider`, or the `RetrievedTokens` of a token endpoint. Functions may be
    asynchronous.
    """

    mechanism: str
    user: Credential | None = field(default=None, repr=False)
    password: Credential | None = field(default=None, repr=False)
    token_provider: Any = field(default=None, repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    kerberos: KerberosSettings | None = None
    _logins: dict[World, KerberosLogin] = field(default_factory=dict, repr=False, compare=False)
    _accepted: set[World] = field(default_factory=set, repr=False, compare=False)

    async def start(self, world: World, host: str = "") -> SaslClient:
        """Return the client's end of a new exchange with the broker at ``host``. Waits for the token provider.

        Raises:
            CredentialsUnavailableError: the token provider or the function for a credential failed.
            SaslAuthenticationFailedError: one of them returned no text, or the token endpoint refuses the client.
        """
        if self.mechanism == OAUTHBEARER:
            token, extensions = await self._token(world)
            return OAuthBearerClient(token, {**self.extensions, **extensions})
        if self.mechanism == GSSAPI:
            from triokafka.security.sasl.gssapi import GssapiClient  # rarely needed

            settings = self.kerberos or KerberosSettings()
            login = self._logins.setdefault(world, KerberosLogin(settings))
            return GssapiClient(login, settings.host or host, now=world.now())
        user, password = _value(self.user, "user name"), _value(self.password, "password")
        if self.mechanism == PLAIN:
            return PlainClient(user, password)
        kind = ScramMechanism.SCRAM_SHA_256 if self.mechanism == SCRAM_SHA_256 else ScramMechanism.SCRAM_SHA_512
        return ScramClient(kind, user, password, random_bytes=world.random_bytes, extensions=self.extensions)

    def note_login(self, world: World) -> None:
        """Note that a broker has accepted the credentials."""
        self._accepted.add(world)

    def has_logged_in(self, world: World) -> bool:
        """Whether a broker has ever accepted the credentials."""
        return world in self._accepted

    async def _token(self, world: World) -> tuple[str, Mapping[str, str]]:
        provider = self.token_provider
        if isinstance(provider, RetrievedTokens):
            return await provider.token(world), {}
        fetch = provider.token if hasattr(provider, "token") else provider
        try:
            # A synchronous provider usually asks a server over HTTP, so it runs in a thread.
            if inspect.iscoroutinefunction(fetch):
                token = await fetch()
            else:
                token = await world.run_in_thread(fetch)
                if inspect.isawaitable(token):
                    token = await token
            extensions = provider.extensions() if hasattr(provider, "extensions") else {}
        except Exception as error:
            # Only the type: the text may contain a token.
            raise CredentialsUnavailableError(f"sasl_oauth_token_provider failed: {type(error).__name__}") from error
        if not isinstance(token, str) or not token:
            raise SaslAuthenticationFailedError(
                f"sasl_oauth_token_provider returned {type(token).__name__}, not a token as a string"
            )
        expires_ms = expiry_of(token)
        if expires_ms is not None and expires_ms <= world.wall_ms():
            raise CredentialsUnavailableError(
                "sasl_oauth_token_provider returned a token that expired"
                f" {(world.wall_ms() - expires_ms) / 1000:.0f} s ago, by this machine's clock"
            )
        try:
            check_extensions(extensions or {})
        except (ValueError, AttributeError) as error:
            raise SaslAuthenticationFailedError(f"sasl_oauth_token_provider: {error}") from None
        return token, extensions or {}


def _value(given: Credential | None, what: str) -> str:
    try:
        value = given() if callable(given) else given
    except Exception as error:
        raise CredentialsUnavailableError(f"the function for the {what} failed: {type(error).__name__}") from error
    if not isinstance(value, str):
        raise SaslAuthenticationFailedError(f"the function for the {what} returned no string")
    return reveal(value)


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The security layers that a client adds to its connections."""

    protocol: str = "PLAINTEXT"
    tls: TlsContexts | None = field(default=None, repr=False)
    sasl: SaslSettings | None = None

    def check(self, world: World) -> None:
        """Read the files now, so that a wrong one fails at once. Raises `ConfigurationError`."""
        if self.protocol not in SECURITY_PROTOCOLS:
            raise ConfigurationError(f"security_protocol={self.protocol!r}: expected {', '.join(SECURITY_PROTOCOLS)}")
        if self.tls is not None:
            self.tls.context(world.storage)


PLAINTEXT: Final = ClientSecurity()
