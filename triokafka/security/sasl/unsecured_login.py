"""A token provider that makes unsecured tokens from the options of Java's login text; for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triokafka.security.sasl.oauthbearer import unsecured_token
from triokafka.world.system import wall_ms

_LIFETIME_SECONDS: Final = 3600


class UnsecuredTokens:
    """Makes a token with these claims, valid for an hour from the call."""

    def __init__(self, claims: Mapping[str, str]) -> None:
        self._claims = dict(claims)

    def token(self) -> str:
        """Return a new token."""
        now = wall_ms() // 1000
        return unsecured_token({"iat": now, "exp": now + _LIFETIME_SECONDS, **self._claims})

    def extensions(self) -> Mapping[str, str]:
        """Return no extensions."""
        return {}
