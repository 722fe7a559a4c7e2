"""GetTelemetrySubscriptions (API key 71): which metrics a client is to push, and how often (KIP-714).

Version 0; flexible.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String, Uuid


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"], api_key=71, versions="0", flexible="0+"
):
    """Ask for the subscription of this client."""

    client_instance_id: UUID = field(Uuid, doc="The client's id, zero to receive one.")


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions="0", flexible="0+"):
    """The subscription."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=("ThrottlingQuotaExceededError", "InvalidRequestError"),
    )
    client_instance_id: UUID = field(Uuid, doc="The client's id, new or that of the request.")
    subscription_id: int = field(Int32, doc="Identifies this state of the subscription.")
    accepted_compression_types: list[int] = field(
        Array(Int8), doc="Codecs that the broker reads, the best first; empty for none."
    )
    push_interval_ms: int = field(Int32, doc="Time between two pushes in ms.")
    telemetry_max_bytes: int = field(Int32, doc="Largest size of pushed metrics in bytes.")
    delta_temporality: bool = field(Boolean, doc="Whether sums are the growth since the last push.")
    requested_metrics: list[str] = field(
        Array(String), doc="Prefixes of the metrics; ``*`` for all; no metrics if the list is empty."
    )
