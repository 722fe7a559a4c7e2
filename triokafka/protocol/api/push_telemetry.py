"""PushTelemetry (API key 72): a client pushes its metrics (KIP-714).

Version 0; flexible.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Boolean, Bytes, Int8, Int16, Int32, Uuid
from triokafka.structs import Buffer


class PushTelemetryRequest(Request["PushTelemetryResponse"], api_key=72, versions="0", flexible="0+"):
    """Push metrics."""

    client_instance_id: UUID = field(Uuid, doc="The client's id.")
    subscription_id: int = field(Int32, doc="The subscription that the metrics belong to.")
    terminating: bool = field(Boolean, doc="Whether the client is closing: this is its last push.")
    compression_type: int = field(Int8, doc="The codec of the metrics; 0 none.")
    metrics: Buffer = field(Bytes, doc="Metrics in the format of OpenTelemetry (OTLP), compressed.")


class PushTelemetryResponse(Response, api_key=72, versions="0", flexible="0+"):
    """Whether the broker took the metrics."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ThrottlingQuotaExceededError",
            "UnknownSubscriptionIdError",
            "UnsupportedCompressionTypeError",
            "TelemetryTooLargeError",
            "InvalidRecordError",
            "InvalidRequestError",
        ),
    )
