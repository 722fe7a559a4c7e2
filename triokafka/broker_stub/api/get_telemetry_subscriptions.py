"""GetTelemetrySubscriptions (API key 71): which metrics a client is to push, and how often (KIP-714).

Version 0. The broker advertises it while the cluster has subscriptions.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.telemetry.client_facts import ACCEPTED_CODECS, facts_of, subscriptions
from triokafka.protocol.api.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

_NIL = UUID(int=0)


@handles(GetTelemetrySubscriptionsRequest, versions=range(0, 1))
async def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Answer with the subscription that matches the client, and give it an id if it has none."""
    instance_id = context.world.uuid() if request.client_instance_id == _NIL else request.client_instance_id
    telemetry = context.services.telemetry
    found = telemetry.subscribe(facts_of(instance_id, context), subscriptions(context), context.now)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=found.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=found.interval_ms,
        telemetry_max_bytes=context.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(found.metrics),
    )
