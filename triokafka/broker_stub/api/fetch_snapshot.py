"""FetchSnapshot (API key 59): a replica of the metadata log reads a part of a snapshot (KIP-630).

Versions 0-1.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from triokafka.security.acl import AclOperation


@handles(FetchSnapshotRequest, versions=range(0, 2), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def fetch_snapshot(request: FetchSnapshotRequest, context: RequestContext) -> FetchSnapshotResponse:
    """Pass the request to this node of the quorum."""
    context.yield_slot()
    quorum = context.controller.quorum()
    return await quorum.fetch_snapshot(request, version=context.version, listener=context.listener)
