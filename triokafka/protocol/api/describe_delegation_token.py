"""DescribeDelegationToken (API key 41): the tokens that the caller may see, with their secrets (KIP-48).

Versions 1–3; flexible from 2. v3: who requested a token (KIP-373).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int64, String


class DescribeDelegationTokenOwner(Struct):
    """An owner or renewer of tokens."""

    principal_type: str = field(String, doc="The type of the principal.")
    principal_name: str = field(String, doc="The name of the principal.")


class DescribeDelegationTokenRequest(
    Request["DescribeDelegationTokenResponse"], api_key=41, versions="1-3", flexible="2+"
):
    """Ask for tokens."""

    owners: list[DescribeDelegationTokenOwner] | None = field(
        Array(DescribeDelegationTokenOwner),
        nullable="0+",
        doc="The principals whose tokens to return, as owners or renewers; null for all that the caller may see.",
    )


class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew a token."""

    principal_type: str = field(String, doc="The type of the principal.")
    principal_name: str = field(String, doc="The name of the principal.")


class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: str = field(String, doc="The type of the token's owner.")
    principal_name: str = field(String, doc="The name of the token's owner.")
    token_requester_principal_type: str = field(String, versions="3+", doc="The type of the token's requester.")
    token_requester_principal_name: str = field(String, versions="3+", doc="The name of the token's requester.")
    issue_timestamp: int = field(Int64, doc="When the token was created, in milliseconds since 1970.")
    expiry_timestamp: int = field(Int64, doc="When the token expires unless it is renewed.")
    max_timestamp: int = field(Int64, doc="When the token expires in any case.")
    token_id: str = field(String, doc="The token's id.")
    hmac: bytes = field(Bytes, doc="The token's secret.")
    renewers: list[DescribedDelegationTokenRenewer] = field(
        Array(DescribedDelegationTokenRenewer), doc="The principals that may renew the token."
    )


class DescribeDelegationTokenResponse(Response, api_key=41, versions="1-3", flexible="2+"):
    """The tokens."""

    error_code: int = fields.token_error_code()
    tokens: list[DescribedDelegationToken] = field(Array(DescribedDelegationToken), doc="The tokens.")
    throttle_time_ms: int = fields.throttle_time_ms()
