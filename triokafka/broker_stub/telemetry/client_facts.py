"""Parts of a request that the handlers of client telemetry use: the client's facts, and the cluster's subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.telemetry.client_telemetry import ClientFacts

ACCEPTED_CODECS: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy, as Kafka orders them."""


def subscriptions(context: RequestContext) -> Sequence[Mapping[str, str]]:
    """Return the cluster's subscriptions. See `ClientTelemetry.subscriptions_in`."""
    return context.broker.telemetry.subscriptions_in(context.metadata.image.configs)


def facts_of(instance_id: UUID, context: RequestContext) -> ClientFacts:
    """Return the facts about the client that sent a request, for the ``match`` of subscriptions."""
    host, port = context.peer[:2]
    software, version = context.services.telemetry.software_of((host, port))
    return ClientFacts(instance_id, context.client_id, software, version, host, str(port))
