"""WriteTxnMarkers (API key 27): end transactions in the partitions that this broker leads.

Versions 1-2. v2: the transaction version of each marker (KIP-1228). Coordinators send it; administrators
send it to end a transaction that no coordinator knows (KIP-664).
"""

from __future__ import annotations

from collections.abc import Mapping

from triokafka.broker_stub.authorizer import denial, or_cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.coordinator.runtime.coordinator_log import TransactionMarker
from triokafka.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WrittenTxnMarker,
    WrittenTxnMarkerPartition,
    WrittenTxnMarkerTopic,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition


def _failed(
    request: WriteTxnMarkersRequest, context: RequestContext, code: int, message: str
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[_written(marker, dict.fromkeys(_partitions(marker.topics), code)) for marker in request.markers]
    )


@handles(
    WriteTxnMarkersRequest,
    versions=range(1, 3),
    accesses=[or_cluster(AclOperation.ALTER), or_cluster(AclOperation.CLUSTER_ACTION)],
    waits=True,
    nodes_since=0,
    on_error=_failed,
)
async def write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Append the markers, and respond when the in-sync replicas have them."""
    if context.denied_for_cluster(AclOperation.ALTER, audit=False) and context.denied_for_cluster(
        AclOperation.CLUSTER_ACTION
    ):
        raise denial(ResourceType.CLUSTER)(f"{context.principal} may not end transactions of others")
    codes = await context.broker.partition_markers().write(
        [
            (
                TransactionMarker(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.transaction_result,
                    marker.transaction_version,
                ),
                _partitions(marker.topics),
            )
            async for marker in in_portions(request.markers)
        ]
    )
    return WriteTxnMarkersResponse(
        markers=[
            _written(marker, found) async for marker, found in in_portions(zip(request.markers, codes, strict=True))
        ]
    )


def _partitions(topics: list[WritableTxnMarkerTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]


def _written(marker: WritableTxnMarker, found: Mapping[TopicPartition, int]) -> WrittenTxnMarker:
    return WrittenTxnMarker(
        producer_id=marker.producer_id,
        topics=[
            WrittenTxnMarkerTopic(
                name=topic.name,
                partitions=[
                    WrittenTxnMarkerPartition(
                        partition_index=number, error_code=found[TopicPartition(topic.name, number)]
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
