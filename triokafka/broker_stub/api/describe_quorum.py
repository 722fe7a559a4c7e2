"""DescribeQuorum (API key 55): the state of the metadata quorum (KIP-595).

Versions 0-2. v1: last fetch and last caught-up timestamps (KIP-836). v2: directory ids and addresses of the voters
(KIP-853).
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from triokafka.security.acl import AclOperation


@handles(DescribeQuorumRequest, versions=range(0, 3), accesses=[cluster(AclOperation.DESCRIBE)])
async def describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Ask the active controller, which leads the quorum."""
    return await context.gateway_without_slot().send(request)
