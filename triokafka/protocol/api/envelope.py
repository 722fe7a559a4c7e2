"""Envelope (API key 58): a broker forwards a client's request to the active controller (KIP-590).

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Bytes, Int16
from triokafka.structs import Buffer


class EnvelopeRequest(Request["EnvelopeResponse"], api_key=58, versions="0", flexible="0+"):
    """A client's request, with the client's identity."""

    request_data: Buffer = field(
        Bytes,
        doc="The request as the client sent it: header and body, without the length.",
        errors=("InvalidRequestError", "UnsupportedVersionError"),
    )
    request_principal: Buffer | None = field(
        Bytes,
        nullable="0+",
        doc="The principal of the client, as a ``DefaultPrincipalData`` message; null when the broker has none.",
        errors=("PrincipalDeserializationFailureError",),
    )
    client_host_address: Buffer = field(
        Bytes, doc="The address of the client: 4 bytes for IPv4, 16 for IPv6.", errors=("InvalidRequestError",)
    )


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    """The response to the forwarded request."""

    response_data: Buffer | None = field(
        Bytes, nullable="0+", default=None, doc="The response: header and body, without the length; null on an error."
    )
    error_code: int = field(
        Int16,
        doc="The error code of the forwarding; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "NotControllerError",
            "InvalidRequestError",
            "UnsupportedVersionError",
            "PrincipalDeserializationFailureError",
        ),
    )
