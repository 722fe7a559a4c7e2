"""PLAIN: user and password in clear text (RFC 4616). Use it with TLS only."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from triokafka.errors import SaslAuthenticationFailedError
from triokafka.security.secret import reveal

REFUSED = "Authentication failed: Invalid username or password"
"""The message for an unknown user and for a wrong password alike."""


class PlainClient:
    """The client's end: one token with user and password."""

    is_slow: Final = False

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        return b"\0" + self._user.encode() + b"\0" + reveal(self._password).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class PlainServer:
    """The server's end. ``verify`` decides about user and password; see `PlainUsers`."""

    is_slow: Final = False

    def __init__(self, verify: Callable[[str, str], bool]) -> None:
        self._verify = verify
        self.user: str | None = None
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def evaluate(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslAuthenticationFailedError("Invalid SASL/PLAIN response: not UTF-8") from None
        if len(parts) != 3:
            raise SaslAuthenticationFailedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise SaslAuthenticationFailedError("Authentication failed: username not specified")
        if not password:
            raise SaslAuthenticationFailedError("Authentication failed: password not specified")
        if not self._verify(user, password):
            raise SaslAuthenticationFailedError(REFUSED)
        if authorization_id and authorization_id != user:
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        return b""


class PlainUsers:
    """Users with their passwords. The comparison takes the same time for unknown users and for wrong passwords."""

    def __init__(self, passwords: dict[str, str]) -> None:
        self._passwords = passwords

    def __repr__(self) -> str:
        return f"PlainUsers({sorted(self._passwords)})"

    def verify(self, user: str, password: str) -> bool:
        """Whether ``user`` exists and has this password."""
        expected = self._passwords.get(user)
        # Equal lengths, so that the comparison does not reveal the length of the password.
        given = hmac.digest(b"given", password.encode(), "sha256")
        wanted = hmac.digest(b"given", reveal(expected or "").encode(), "sha256")
        return hmac.compare_digest(given, wanted) and expected is not None
