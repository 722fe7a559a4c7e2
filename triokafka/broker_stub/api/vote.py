"""Vote (API key 52): a candidate of the metadata quorum asks this voter for its vote (KIP-595).

Versions 0-2.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.vote import VoteRequest, VoteResponse
from triokafka.security.acl import AclOperation


@handles(VoteRequest, versions=range(0, 3), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def vote(request: VoteRequest, context: RequestContext) -> VoteResponse:
    """Pass the request to this node of the quorum."""
    context.yield_slot()
    quorum = context.controller.quorum()
    return await quorum.vote(request, version=context.version, listener=context.listener)
