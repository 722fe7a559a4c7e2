"""PushTelemetry (API key 72): a client pushes its metrics (KIP-714).

Version 0. The broker advertises it while the cluster has subscriptions.
"""

from __future__ import annotations

from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.telemetry.client_telemetry import malformed
from triokafka.broker_stub.telemetry.pushes import ACCEPTED_CODECS, facts_of, subscriptions
from triokafka.errors import CorruptRecordError, UnsupportedCodecError
from triokafka.metrics.otlp import decode_metrics
from triokafka.protocol.api.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from triokafka.records.compression import decompress

_EXPANSION = 16
"""How many times larger than ``telemetry.max.bytes`` the metrics may be without compression."""


@handles(PushTelemetryRequest, versions=range(0, 1))
async def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Check that the push is due and wanted, and keep its values."""
    limit = context.config.telemetry_max_bytes
    instance = context.services.telemetry.admit(
        facts_of(request.client_instance_id, context),
        subscriptions(context),
        context.now,
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        codec=request.compression_type,
        accepted_codecs=ACCEPTED_CODECS,
        size=len(request.metrics),
        max_bytes=limit,
    )
    try:
        data = request.metrics
        if request.compression_type and len(data):
            data = decompress(request.compression_type, data, max_size=limit * _EXPANSION)
        instance.take(decode_metrics(memoryview(data)))
    except (ValueError, CorruptRecordError, UnsupportedCodecError) as error:
        raise malformed(error) from None
    return PushTelemetryResponse()
