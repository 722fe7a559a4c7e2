"""EndQuorumEpoch (API key 54): the leader of the metadata quorum resigns (KIP-595).

Versions 0-1.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from triokafka.security.acl import AclOperation


@handles(EndQuorumEpochRequest, versions=range(0, 2), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def end_quorum_epoch(request: EndQuorumEpochRequest, context: RequestContext) -> EndQuorumEpochResponse:
    """Pass the request to this node of the quorum."""
    context.yield_slot()
    quorum = context.controller.quorum()
    return await quorum.end_quorum_epoch(request, version=context.version, listener=context.listener)
