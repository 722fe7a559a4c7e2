"""OAUTHBEARER: a bearer token (RFC 7628, KIP-255), and unsecured tokens for tests."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from triokafka.errors import SaslAuthenticationFailedError
from triokafka.named_tuple import NamedTuple
from triokafka.security.secret import reveal

_SEPARATOR: Final = "\x01"
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authorization>(?:[^\x00,=]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)+)\x01"
)
_INVALID: Final = b'{"status":"invalid_token"}'
_EXTENSION_NAME: Final = re.compile("[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_LATEST_SECONDS: Final = 1e14


class BearerToken(NamedTuple):
    """A validated token: whose it is, and when it expires, in milliseconds since 1970 (None for never)."""

    principal: str
    expires_at_ms: int | None


class InvalidTokenError(SaslAuthenticationFailedError):
    """The token is not acceptable. The message goes to the log, and not to the client."""


TokenValidator = Callable[[str], BearerToken]
"""Validates a token; raises `InvalidTokenError`."""


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise `ValueError` unless these are valid SASL extensions (RFC 7628); the message shows no value."""
    for name, value in extensions.items():
        if not isinstance(name, str) or not _EXTENSION_NAME.fullmatch(name) or name.lower() == "auth":
            raise ValueError(f"{name!r} is not a name of a SASL extension: letters only, and not 'auth'")
        if not isinstance(value, str) or not _EXTENSION_VALUE.fullmatch(reveal(value)):
            raise ValueError(f"the value of the SASL extension {name!r} is not printable ASCII text")


class OAuthBearerClient:
    """The client's end, with a token that was fetched before the exchange."""

    is_slow: Final = False

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = dict(extensions or {})
        self._refusal: str | None = None

    def first(self) -> bytes:
        pairs = [
            f"auth=Bearer {reveal(self._token)}",
            *(f"{key}={reveal(value)}" for key, value in self._extensions.items()),
        ]
        return f"n,,{_SEPARATOR}{_SEPARATOR.join(pairs)}{_SEPARATOR}{_SEPARATOR}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._refusal is not None:
            raise SaslAuthenticationFailedError(f"the broker refused the token: {self._refusal}")
        if not challenge:
            return None
        # The broker names the reason, and fails the exchange after this answer (RFC 7628 section 3.2.3).
        self._refusal = challenge[:200].decode("utf-8", "replace")
        return _SEPARATOR.encode()


class OAuthBearerServer:
    """The server's end. ``on_refused`` is called with the reason why a token was refused."""

    is_slow: Final = False

    def __init__(self, validate: TokenValidator, on_refused: Callable[[str], None] = lambda reason: None) -> None:
        self._validate = validate
        self._on_refused = on_refused
        self._refused = False
        self.user: str | None = None
        self.expires_at_ms: int | None = None
        self.token_authenticated = False

    def evaluate(self, token: bytes) -> bytes:
        if self._refused:
            raise SaslAuthenticationFailedError(_INVALID.decode())
        match = _FIRST.fullmatch(token.decode("utf-8", "replace"))
        if match is None:
            raise SaslAuthenticationFailedError("Invalid OAUTHBEARER client first message")
        pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(_SEPARATOR) if pair)
        scheme, _, bearer = pairs.get("auth", "").partition(" ")
        if scheme.lower() != "bearer" or not bearer.strip():
            raise SaslAuthenticationFailedError(
                "Invalid OAUTHBEARER client first message: 'auth' is not a bearer token"
            )
        try:
            valid = self._validate(bearer.strip())
        except InvalidTokenError as error:
            self._on_refused(str(error))
            self._refused = True
            return _INVALID
        if match["authorization"] not in (None, valid.principal):
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
        self.user, self.expires_at_ms = valid
        return b""


# Tokens without a signature


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """Return a token with these claims and without a signature (RFC 7515 appendix A.5). For tests only."""
    return f"{_encode({'alg': 'none'})}.{_encode(claims)}."


def _encode(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def decode_part(text: str) -> dict[str, Any]:
    """Return the JSON object of one part of a token. Raises `InvalidTokenError`."""
    try:
        part = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidTokenError("a part of the token is not base64url-encoded JSON") from None
    if not isinstance(part, dict):
        raise InvalidTokenError("a part of the token is not a JSON object")
    return part


class UnsecuredValidator:
    """Accepts tokens without a signature, as Kafka's default does. Anybody can make such a token: for tests only.

    Args:
        wall_ms: returns the time in milliseconds since 1970.
        principal_claim: the claim with the name of the principal.
        clock_skew_ms: tolerance of all times.
    """

    def __init__(self, wall_ms: Callable[[], int], *, principal_claim: str = "sub", clock_skew_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._principal_claim = principal_claim
        self._skew = clock_skew_ms

    def __call__(self, token: str) -> BearerToken:
        parts = token.split(".")
        if len(parts) != 3:
            raise InvalidTokenError(f"a token has 3 parts, this one {len(parts)}")
        if decode_part(parts[0]).get("alg") != "none" or parts[2]:
            raise InvalidTokenError("this listener accepts unsecured tokens only, and this one is signed")
        return check_claims(decode_part(parts[1]), self._wall_ms(), self._principal_claim, self._skew)


def check_claims(claims: Mapping[str, Any], now_ms: int, principal_claim: str, skew_ms: int) -> BearerToken:
    """Check the times and the principal of a token. Raises `InvalidTokenError`."""
    principal = claims.get(principal_claim)
    if not isinstance(principal, str) or not principal:
        raise InvalidTokenError(f"the token has no claim {principal_claim!r} with a name")
    expires = claimed_time_ms(claims, "exp")
    if expires is None:
        raise InvalidTokenError("the token has no expiration time ('exp')")
    if expires + skew_ms <= now_ms:
        raise InvalidTokenError("the token has expired")
    for name in ("nbf", "iat"):
        begin = claimed_time_ms(claims, name)
        if begin is not None and begin - skew_ms > now_ms:
            raise InvalidTokenError(f"the token is not valid yet ({name!r})")
    return BearerToken(principal, expires)


def claimed_time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """Return a time that a token claims, in milliseconds since 1970; None without one. Raises `InvalidTokenError`."""
    value = claims.get(name)
    if value is None:
        return None
    # JSON of Python has Infinity and NaN, too.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _LATEST_SECONDS:
        raise InvalidTokenError(f"the claim {name!r} is not a number of seconds since 1970")
    return int(value * 1000)
