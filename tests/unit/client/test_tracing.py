"""Traces lead from the sender's span through record headers to the consumer's."""

from __future__ import annotations

import sys

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import triokafka
from triokafka.client.tracing import ConsumerTracing, ProducerTracing, record_context
from triokafka.errors import ConfigurationError
from triokafka.testing import running_broker


async def test_trace_reaches_from_the_sender_to_the_consumer() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    async with running_broker() as broker:
        address = broker.bootstrap_servers
        tracing = ProducerTracing(provider)
        async with triokafka.Producer(bootstrap_servers=address, client_id="c", interceptors=[tracing]) as producer:
            with tracer.start_as_current_span("request") as request:
                await (await producer.send("orders", b"x", partition=0, headers=[("own", b"1")]))
        async with triokafka.Consumer(
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            interceptors=[ConsumerTracing(provider, group_id="g")],
        ) as consumer:
            consumer.assign([triokafka.TopicPartition("orders", 0)])
            with trio.fail_after(60):
                while not (records := await consumer.poll(timeout_ms=1000)):
                    pass
    ((record,),) = records.values()
    create, _, poll = exporter.get_finished_spans()
    assert (create.name, create.kind, poll.name, poll.kind) == (
        "create orders", trace.SpanKind.PRODUCER, "poll orders", trace.SpanKind.CONSUMER,
    )  # fmt: skip
    assert create.parent is not None and create.parent.span_id == request.get_span_context().span_id
    assert create.attributes is not None and poll.attributes is not None
    assert create.attributes["messaging.client.id"] == "c"
    assert create.attributes["messaging.destination.partition.id"] == "0"
    assert poll.attributes["messaging.batch.message_count"] == 1
    assert poll.attributes["messaging.consumer.group.name"] == "g"
    (link,) = poll.links
    assert link.context.span_id == create.context.span_id
    carried = trace.get_current_span(record_context(record)).get_span_context()
    assert (carried.trace_id, carried.span_id) == (create.context.trace_id, create.context.span_id)
    assert [key for key, _ in record.headers] == ["own", "traceparent"]


def test_record_without_headers_has_an_empty_context() -> None:
    record = triokafka.ConsumerRecord("orders", 0, 1)
    assert not trace.get_current_span(record_context(record)).get_span_context().is_valid


def test_missing_opentelemetry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"triokafka\[otel\]"):
        ProducerTracing()
