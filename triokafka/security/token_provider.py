"""The interface of an object that supplies tokens for OAUTHBEARER (the option ``sasl_oauth_token_provider``)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol


class TokenProvider(Protocol):
    """Supplies the tokens of a client: from a signer such as that of Amazon MSK, a sidecar, or a vault.

    The names are kafka-python's and aiokafka's. An object may also have a method ``extensions()``, which returns the
    SASL extensions (RFC 7628) of the token returned last: a mapping of names to texts, or nothing. Names have letters
    only, and texts are printable ASCII.
    """

    def token(self) -> str | Awaitable[str]:
        """Return a token that is valid now.

        The client calls this for every connection, and again before a session ends (KIP-368), so a provider whose
        tokens are expensive keeps one until it is about to expire. A synchronous method runs in a worker thread and
        may block; an ``async`` one runs on the client's event loop. Whatever it raises ends the login with
        `SaslAuthenticationFailedError`, whose message has only the exception's type.
        """
