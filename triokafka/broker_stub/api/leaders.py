"""Leaders and their addresses in the response to a client that sent a request to the wrong broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from triokafka.broker_stub.api.brokers import endpoint_of
from triokafka.broker_stub.replica.read_result import LeaderHint
from triokafka.broker_stub.request.context import RequestContext

N = TypeVar("N")


def current_leader(topic: str, partition: int, context: RequestContext) -> LeaderHint:
    """Return leader and leader epoch from the hosted replica, or else from the metadata image; -1 when unknown."""
    hosted = context.replicas.find(topic, partition)
    if hosted is not None:
        return hosted.leader_hint
    known = context.metadata.image.partition(topic, partition)
    return LeaderHint(-1, -1) if known is None else LeaderHint(known.leader, known.leader_epoch)


def node_endpoints(leaders: Iterable[int], context: RequestContext, endpoint: Callable[..., N]) -> list[N]:
    """Return the endpoint of each broker, without repetition, on the listener that the client uses.

    ``endpoint`` is the class of endpoints in the response. The result omits brokers that are unknown, are fenced, or
    lack the listener. The client then requests metadata.
    """
    brokers = context.metadata.image.brokers
    found = []
    for node_id in dict.fromkeys(leaders):
        node = brokers.get(node_id)
        if node is not None and not node.fenced:
            for host, port in endpoint_of(node, context.listener):
                found.append(endpoint(node_id=node_id, host=host, port=port, rack=node.rack))
    return found
