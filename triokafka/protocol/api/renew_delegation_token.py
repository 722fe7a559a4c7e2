"""RenewDelegationToken (API key 39): move the expiry of a token to a later time (KIP-48).

Versions 1–2; flexible from 2.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Bytes, Int64


class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"], api_key=39, versions="1-2", flexible="2+"):
    """Renew a token."""

    hmac: bytes = field(Bytes, doc="The token's secret.", errors=("DelegationTokenNotFoundError",))
    renew_period_ms: int = field(
        Int64, doc="For how long to renew it, in milliseconds; -1 for ``delegation.token.expiry.time.ms``."
    )


class RenewDelegationTokenResponse(Response, api_key=39, versions="1-2", flexible="2+"):
    """When the token expires."""

    error_code: int = fields.token_error_code()
    expiry_timestamp_ms: int = field(Int64, doc="When the token expires, in milliseconds since 1970; -1 with an error.")
    throttle_time_ms: int = fields.throttle_time_ms()
