"""The interfaces of a SASL mechanism: one object per exchange, tokens in, tokens out (RFC 4422)."""

from __future__ import annotations

from typing import Final, Protocol

from triokafka.errors import SaslAuthenticationFailedError

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""The mechanisms that need nothing but this package and its configuration."""
GSSAPI: Final = "GSSAPI"
SUPPORTED: Final = (*MECHANISMS, GSSAPI)
"""All supported mechanisms."""


class CredentialsUnavailableError(SaslAuthenticationFailedError):
    """The client has no valid credentials now: a token provider, a file or a KDC does not supply them.

    No broker has refused credentials. A client that has logged in before tries again.
    """

    message = SaslAuthenticationFailedError.message


class SaslClient(Protocol):
    """The client's end of one exchange."""

    @property
    def is_slow(self) -> bool:
        """Whether the next step may take long or wait for servers or files, so that it must run in a thread."""

    def first(self) -> bytes:
        """Return the first token to send. Raises `CredentialsUnavailableError`, `SaslAuthenticationFailedError`."""

    def answer(self, challenge: bytes) -> bytes | None:
        """Take a token of the server; return the next one to send, or None when the exchange is complete.

        Raises:
            SaslAuthenticationFailedError: the server does not prove that it knows the credentials, or breaks the rules.
        """


class SaslServer(Protocol):
    """The server's end of one exchange."""

    @property
    def is_slow(self) -> bool:
        """Whether `evaluate` may wait for servers or files, so that it must run in a thread."""

    def evaluate(self, token: bytes) -> bytes:
        """Take a token of the client; return the token to send back.

        Raises:
            SaslAuthenticationFailedError: the client is refused. The message is safe to send to it.
        """

    @property
    def user(self) -> str | None:
        """The authenticated name; None before the exchange is complete."""

    @property
    def token_authenticated(self) -> bool:
        """Whether the client used a delegation token (KIP-48)."""

    @property
    def expires_at_ms(self) -> int | None:
        """When the credentials expire, in milliseconds since 1970; None for never."""
