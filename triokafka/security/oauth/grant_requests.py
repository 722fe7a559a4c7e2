"""Requests to a token endpoint (RFC 6749, RFC 7521, RFC 7523) and its answer, as texts. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_plus  # noqa: TID251 - only texts

from triokafka.named_tuple import NamedTuple
from triokafka.security.oauth.endpoint import EndpointError
from triokafka.security.secret import reveal

_HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class TokenRequest(NamedTuple):
    """The headers and the body of a POST. Both contain credentials, so neither appears in the ``repr``."""

    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return "TokenRequest([hidden])"


def with_secret(client_id: str, client_secret: str, scope: str | None, *, encoded: bool) -> TokenRequest:
    """Return the client credentials grant with the client's secret, by HTTP Basic.

    ``encoded``: whether id and secret are form-encoded first, as RFC 6749 section 2.3.1 wants and many providers do
    not.
    """
    texts = [reveal(client_id).strip(), reveal(client_secret).strip()]
    if encoded:
        texts = [quote_plus(text) for text in texts]
    basic = base64.b64encode(":".join(texts).encode()).decode()
    return TokenRequest(
        {**_HEADERS, "Authorization": f"Basic {basic}"}, _form({"grant_type": "client_credentials", "scope": scope})
    )


def with_client_assertion(assertion: str, client_id: str | None, scope: str | None) -> TokenRequest:
    """Return the client credentials grant with a signed assertion in place of a secret (RFC 7523 section 2.2)."""
    fields = {
        "client_assertion_type": _CLIENT_ASSERTION,
        "client_assertion": assertion,
        "grant_type": "client_credentials",
        "client_id": client_id,
        "scope": scope,
    }
    return TokenRequest(_HEADERS, _form(fields))


def with_jwt_bearer(assertion: str, scope: str | None) -> TokenRequest:
    """Return the JWT bearer grant (RFC 7523 section 2.1)."""
    return TokenRequest(_HEADERS, _form({"grant_type": _JWT_BEARER, "assertion": assertion, "scope": scope}))


def token_of(answer: bytes) -> str:
    """Return the token of an answer. Raises `EndpointError`, which does not show the answer."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        raise EndpointError("the answer of the token endpoint is not JSON", is_final=True) from None
    for name in ("access_token", "id_token"):
        token = found.get(name) if isinstance(found, dict) else None
        if isinstance(token, str) and token.strip():
            return token.strip()
    raise EndpointError("the answer of the token endpoint has no access_token", is_final=True)


def _form(fields: Mapping[str, str | None]) -> bytes:
    given = {name: reveal(value).strip() for name, value in fields.items() if value is not None}
    return "&".join(f"{name}={quote_plus(value)}" for name, value in given.items() if value).encode()
