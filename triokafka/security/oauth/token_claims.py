"""The claims of an access token, checked as Apache Kafka checks them on brokers and on clients. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triokafka.named_tuple import NamedTuple
from triokafka.security.sasl.oauthbearer import BearerToken, InvalidTokenError, claimed_time_ms, decode_part


class ClaimRules(NamedTuple):
    """The claims that a token must have. ``issuer`` and ``audiences`` are the expected ones; times are in milliseconds.

    Without expected audiences, a token that names an audience is refused: it was issued for another service.
    """

    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    skew_ms: int = 30_000
    principal_claim: str = "sub"
    scope_claim: str = "scope"


def check_claims_of_broker(claims: Mapping[str, Any], rules: ClaimRules, now_ms: int) -> BearerToken:
    """Return the principal and the expiry of a token whose signature is valid. Raises `InvalidTokenError`."""
    expires, issued, begins = (claimed_time_ms(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None:
        raise InvalidTokenError("the token has no expiration time ('exp')")
    if issued is None:
        raise InvalidTokenError("the token has no time of issue ('iat')")
    if now_ms - rules.skew_ms >= expires:
        raise InvalidTokenError(f"the token has expired, {(now_ms - expires) // 1000} s ago")
    if begins is not None and now_ms + rules.skew_ms < begins:
        raise InvalidTokenError(f"the token is not valid before {(begins - now_ms) // 1000} s from now ('nbf')")
    if expires < max(issued, begins or 0):
        raise InvalidTokenError("the token expires before it begins ('exp', 'iat', 'nbf')")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidTokenError("the token is from another issuer ('iss')")
    _check_audience(claims.get("aud"), rules.audiences)
    _check_scope(claims.get(rules.scope_claim), rules.scope_claim)
    return BearerToken(_principal(claims, rules.principal_claim), expires)


def expiry_of(token: str) -> int | None:
    """Return when a JWT expires, in milliseconds since 1970. None for any other token, or one without a time."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        return claimed_time_ms(decode_part(parts[1]), "exp")
    except InvalidTokenError:
        return None


def check_claims_of_client(token: str, rules: ClaimRules) -> tuple[int, int | None]:
    """Return when a retrieved token expires and begins, in milliseconds. The broker validates its signature.

    Raises:
        InvalidTokenError: the token is not a JWT, or lacks a claim that brokers need.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidTokenError("the token is not a JWT, but an opaque string")
    claims = decode_part(parts[1])
    expires = claimed_time_ms(claims, "exp")
    if expires is None:
        raise InvalidTokenError("the token has no expiration time ('exp')")
    _principal(claims, rules.principal_claim)
    _check_scope(claims.get(rules.scope_claim), rules.scope_claim)
    return expires, claimed_time_ms(claims, "iat")


def _principal(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidTokenError(f"the token has no claim {name!r} with a name")
    return value.strip()


def _check_audience(given: Any, expected: frozenset[str]) -> None:
    audiences = [given] if isinstance(given, str) else given
    if audiences is None and not expected:
        return
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise InvalidTokenError("the token names no audience ('aud')")
    if not expected:
        raise InvalidTokenError(
            "the token is for an audience ('aud'), and sasl.oauthbearer.expected.audience is not set"
        )
    if not expected & {*audiences}:
        raise InvalidTokenError("the token is for another audience ('aud')")


def _check_scope(given: Any, name: str) -> None:
    scopes = [given] if isinstance(given, str) else given
    if scopes is None:
        return
    if not isinstance(scopes, list) or not all(isinstance(one, str) and one.strip() for one in scopes):
        raise InvalidTokenError(f"the claim {name!r} is not a list of names")
    if len({one.strip() for one in scopes}) != len(scopes):
        raise InvalidTokenError(f"the claim {name!r} names a scope twice")
