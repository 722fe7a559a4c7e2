"""OpenTelemetry traces: interceptors that carry the trace context in record headers (extra ``otel``).

Spans and attributes follow OpenTelemetry's conventions for messaging. Without these interceptors nothing is imported
and nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from triokafka.client.consumer.interceptors import ConsumerInterceptor, Records
from triokafka.client.producer.interceptors import ProducerInterceptor, ProducerRecord
from triokafka.errors import ConfigurationError
from triokafka.records import ConsumerRecord

_SCOPE: Final = "triokafka"
_MOST_LINKS: Final = 128
"""Largest number of links of one span: OpenTelemetry drops more by default."""


def _api() -> tuple[Any, Any]:
    try:
        from opentelemetry import propagate, trace
    except ImportError as error:
        raise ConfigurationError("traces need OpenTelemetry: pip install 'triokafka[otel]'") from error
    return trace, propagate


class ProducerTracing(ProducerInterceptor):
    """Begins a span ``create <topic>`` for each record, and puts its context into the record's headers.

    The span is a child of the sender's current span. It ends when the record is given to the producer.

    Args:
        tracer_provider: an OpenTelemetry ``TracerProvider``; None for the global one.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        self._trace, self._propagate = _api()
        self._tracer = self._trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._client_id = ""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the client id for the spans."""
        self._client_id = str(config.get("client_id") or "")

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record with the context of a new span in its headers."""
        attributes: dict[str, str] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "create",
            "messaging.operation.type": "create",
            "messaging.destination.name": record.topic,
            "messaging.client.id": self._client_id,
        }
        if record.partition is not None:
            attributes["messaging.destination.partition.id"] = str(record.partition)
        kind = self._trace.SpanKind.PRODUCER
        span = self._tracer.start_span(f"create {record.topic}", kind=kind, attributes=attributes)
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, context=self._trace.set_span_in_context(span))
        span.end()
        kept = [header for header in record.headers if header[0] not in carrier]
        return replace(record, headers=[*kept, *((key, value.encode()) for key, value in carrier.items())])


class ConsumerTracing(ConsumerInterceptor):
    """Records a span ``poll <topic>`` for the records of each partition, with links to the spans that created them.

    Start your own span for a record with ``context=record_context(record)`` to continue its trace.

    Args:
        tracer_provider: an OpenTelemetry ``TracerProvider``; None for the global one.
        group_id: the consumer group, for the spans.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(self, tracer_provider: Any = None, *, group_id: str | None = None) -> None:
        self._trace, _ = _api()
        self._tracer = self._trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._group_id = group_id

    def on_consume(self, records: Records) -> Records:
        """Record a span for each partition."""
        for partition, batch in records.items():
            attributes: dict[str, str | int] = {
                "messaging.system": "kafka",
                "messaging.operation.name": "poll",
                "messaging.operation.type": "receive",
                "messaging.destination.name": partition.topic,
                "messaging.destination.partition.id": str(partition.partition),
                "messaging.batch.message_count": len(batch),
            }
            if self._group_id is not None:
                attributes["messaging.consumer.group.name"] = self._group_id
            links = []
            for record in batch[:_MOST_LINKS]:
                created = self._trace.get_current_span(record_context(record)).get_span_context()
                if record.headers and created.is_valid:
                    links.append(self._trace.Link(created, {"messaging.kafka.offset": record.offset}))
            kind = self._trace.SpanKind.CONSUMER
            self._tracer.start_span(f"poll {partition.topic}", kind=kind, attributes=attributes, links=links).end()
        return records


def record_context(record: ConsumerRecord) -> Any:
    """Return the OpenTelemetry context in a record's headers; an empty context without one.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    _, propagate = _api()
    from opentelemetry.context import Context

    carrier = {key: bytes(value).decode("utf-8", "replace") for key, value in record.headers if value is not None}
    return propagate.extract(carrier, context=Context())
