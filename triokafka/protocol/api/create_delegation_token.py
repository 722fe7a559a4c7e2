"""CreateDelegationToken (API key 38): a token with which another client can act as its owner (KIP-48).

Versions 1–3; flexible from 2. v3: tokens for other owners (KIP-373).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int64, String


class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = field(String, doc="The type of the principal: ``User``.")
    principal_name: str = field(String, doc="The name of the principal.")


class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"], api_key=38, versions="1-3", flexible="2+"):
    """Create a token."""

    owner_principal_type: str | None = field(
        String, versions="3+", nullable="3+", doc="The type of the token's owner; null for the caller."
    )
    owner_principal_name: str | None = field(
        String, versions="3+", nullable="3+", doc="The name of the token's owner; null or empty for the caller."
    )
    renewers: list[CreatableRenewers] = field(
        Array(CreatableRenewers),
        doc="The principals that may renew the token, besides its owner.",
        errors=("InvalidPrincipalTypeError",),
    )
    max_lifetime_ms: int = field(
        Int64, doc="How long the token can be renewed, in milliseconds; -1 for ``delegation.token.max.lifetime.ms``."
    )


class CreateDelegationTokenResponse(Response, api_key=38, versions="1-3", flexible="2+"):
    """The token, with its secret."""

    error_code: int = fields.token_error_code()
    principal_type: str = field(String, doc="The type of the token's owner.")
    principal_name: str = field(String, doc="The name of the token's owner.")
    token_requester_principal_type: str = field(String, versions="3+", doc="The type of the caller.")
    token_requester_principal_name: str = field(String, versions="3+", doc="The name of the caller.")
    issue_timestamp_ms: int = field(Int64, doc="When the token was created, in milliseconds since 1970.")
    expiry_timestamp_ms: int = field(Int64, doc="When the token expires unless it is renewed.")
    max_timestamp_ms: int = field(Int64, doc="When the token expires in any case.")
    token_id: str = field(String, doc="The token's id, the user name of a login with it.")
    hmac: bytes = field(Bytes, doc="The token's secret; in base64, the password of a login with it.")
    throttle_time_ms: int = fields.throttle_time_ms()
