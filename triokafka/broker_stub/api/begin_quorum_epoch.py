"""BeginQuorumEpoch (API key 53): a new leader of the metadata quorum reports its epoch (KIP-595).

Versions 0-1.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from triokafka.security.acl import AclOperation


@handles(BeginQuorumEpochRequest, versions=range(0, 2), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def begin_quorum_epoch(request: BeginQuorumEpochRequest, context: RequestContext) -> BeginQuorumEpochResponse:
    """Pass the request to this node of the quorum."""
    context.yield_slot()
    quorum = context.controller.quorum()
    return await quorum.begin_quorum_epoch(request, version=context.version, listener=context.listener)
