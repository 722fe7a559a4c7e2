"""PushTelemetry (API key 72): a client pushes its metrics (KIP-714).

Version 0. The broker advertises it while the cluster has subscriptions.
"""

from __future__ import annotations

from triokafka.broker_stub.config.broker_config import BrokerConfig
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.telemetry.client_facts import ACCEPTED_CODECS, facts_of, subscriptions
from triokafka.broker_stub.telemetry.client_telemetry import malformed
from triokafka.errors import CorruptRecordError, UnsupportedCodecError
from triokafka.metrics.otlp import Point, decode_metrics
from triokafka.protocol.api.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from triokafka.records.compression import decompress
from triokafka.structs import Buffer

_EXPANSION = 16
"""How many times larger than ``telemetry.max.bytes`` the metrics may be without compression."""


@handles(PushTelemetryRequest, versions=range(0, 1))
async def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Check that the push is due and matches its subscription, and keep its values.

    Does not read what a client pushes without a subscription. A thread reads the values, one push at a time.
    """
    telemetry = context.services.telemetry
    instance = telemetry.admit(
        facts_of(request.client_instance_id, context),
        subscriptions(context),
        context.now,
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        codec=request.compression_type,
        accepted_codecs=ACCEPTED_CODECS,
        size=len(request.metrics),
        max_bytes=context.config.telemetry_max_bytes,
    )
    if not instance.subscription.metrics:
        return PushTelemetryResponse()
    context.yield_slot()
    try:
        async with context.broker.telemetry_reader:
            points = await context.in_thread(_read, request.compression_type, request.metrics, context.config)
    except (ValueError, CorruptRecordError, UnsupportedCodecError) as error:
        raise malformed(error) from None
    telemetry.take(instance, points)
    return PushTelemetryResponse()


def _read(codec: int, data: Buffer, config: BrokerConfig) -> list[Point]:
    if codec and len(data):
        data = decompress(codec, data, max_size=config.telemetry_max_bytes * _EXPANSION)
    return decode_metrics(memoryview(data), max_fields=config.telemetry_max_fields)
