"""UpdateRaftVoter (API key 82): a voter of the metadata quorum updates its entry (KIP-853).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from triokafka.security.acl import AclOperation


@handles(UpdateRaftVoterRequest, versions=range(0, 1), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def update_raft_voter(request: UpdateRaftVoterRequest, context: RequestContext) -> UpdateRaftVoterResponse:
    """Pass the request to this node of the quorum."""
    context.yield_slot()
    quorum = context.controller.quorum()
    return await quorum.update_voter(request, version=context.version, listener=context.listener)
