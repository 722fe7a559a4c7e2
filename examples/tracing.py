"""Tracing with OpenTelemetry: one trace from the code that sends an order to the code that handles it.

The producer's interceptor puts the trace context into the record's headers, and the consumer continues the trace. This
program prints its spans; a service gives ``BatchSpanProcessor`` an exporter instead. Needs triokafka[otel] and
opentelemetry-sdk.

python examples/tracing.py localhost:9092 orders
"""

from __future__ import annotations

import sys

import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import triokafka
from triokafka.client.tracing import ConsumerTracing, ProducerTracing, record_context


def line_of(span: ReadableSpan) -> str:
    """Return the trace, the name, and the kind of a span."""
    assert span.context is not None
    return f"{span.context.trace_id:032x} {span.kind.name} {span.name}\n"


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "orders") -> None:
    """Send one order within a span, and handle it within another span of the same trace."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line_of)))
    tracer = provider.get_tracer("orders")
    async with triokafka.Producer(
        bootstrap_servers=bootstrap_servers, interceptors=[ProducerTracing(provider)]
    ) as producer:
        with tracer.start_as_current_span("take order"):
            delivery = await producer.send(topic, b"two coffees", key=b"table 4")
        sent = await delivery
    async with triokafka.Consumer(
        bootstrap_servers=bootstrap_servers, interceptors=[ConsumerTracing(provider)]
    ) as consumer:
        consumer.assign([triokafka.TopicPartition(topic, sent.partition)])
        consumer.seek(triokafka.TopicPartition(topic, sent.partition), sent.offset)
        async for record in consumer:
            with tracer.start_as_current_span("handle order", context=record_context(record)):
                print("handling", record.value)
            break


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
