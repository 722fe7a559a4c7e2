"""ExpireDelegationToken (API key 40): change when a token expires, or remove it (KIP-48).

Versions 1–2; flexible from 2.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Bytes, Int64


class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"], api_key=40, versions="1-2", flexible="2+"):
    """Expire a token."""

    hmac: bytes = field(Bytes, doc="The token's secret.", errors=("DelegationTokenNotFoundError",))
    expiry_time_period_ms: int = field(
        Int64, doc="In how many milliseconds the token expires; negative to remove it immediately."
    )


class ExpireDelegationTokenResponse(Response, api_key=40, versions="1-2", flexible="2+"):
    """When the token expires."""

    error_code: int = fields.token_error_code()
    expiry_timestamp_ms: int = field(Int64, doc="When the token expires, in milliseconds since 1970; -1 with an error.")
    throttle_time_ms: int = fields.throttle_time_ms()
