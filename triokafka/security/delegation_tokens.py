"""Delegation tokens (KIP-48): their secret, and the interface through which a listener looks them up."""

from __future__ import annotations

import base64
import hmac
from typing import Final, Protocol

from triokafka.named_tuple import NamedTuple
from triokafka.security.scram_credentials import ScramCredential, ScramMechanism
from triokafka.security.secret import reveal

TOKEN_AUTH: Final = "tokenauth"
"""The SCRAM extension, and the option of ScramLoginModule, that says that the login uses a delegation token."""


def token_secret(token_id: str, secret_key: str) -> bytes:
    """Return the secret of a token, which every node with the same ``delegation.token.secret.key`` computes."""
    return hmac.digest(reveal(secret_key).encode(), token_id.encode(), "sha512")


def token_password(secret: bytes) -> str:
    """Return the password of a SCRAM login with a token."""
    return base64.b64encode(secret).decode()


class TokenLogin(NamedTuple):
    """The login of a client with a token: its credential, the owner's name, and the expiry."""

    credential: ScramCredential
    owner: str
    expires_at_ms: int


class DelegationTokens(Protocol):
    """A lookup of delegation tokens."""

    def login(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """Return the login of a token; None if there is no such token, or it has expired. May take milliseconds."""
