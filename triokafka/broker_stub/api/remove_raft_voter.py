"""RemoveRaftVoter (API key 81): remove a voter from the metadata quorum (KIP-853).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from triokafka.security.acl import AclOperation


@handles(RemoveRaftVoterRequest, versions=range(0, 1), accesses=[cluster(AclOperation.ALTER)])
async def remove_raft_voter(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
    """Pass the request to the quorum's leader, which is the active controller."""
    return await context.gateway_without_slot().send(request)
