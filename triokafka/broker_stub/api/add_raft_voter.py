"""AddRaftVoter (API key 80): add a voter to the metadata quorum (KIP-853).

Versions 0-1. v1: an answer before the change is committed (KIP-1186).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from triokafka.security.acl import AclOperation


@handles(AddRaftVoterRequest, versions=range(0, 2), accesses=[cluster(AclOperation.ALTER)])
async def add_raft_voter(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    """Pass the request to the quorum's leader, which is the active controller."""
    return await context.gateway_without_slot().send(request)
