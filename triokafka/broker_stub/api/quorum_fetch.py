"""Fetch (API key 1) on a controller's listener: a replica reads the metadata log (KIP-595).

Versions 4-18. The quorum's protocol needs version 12 and later: epochs, diverging epochs and snapshots are there.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
from triokafka.security.acl import AclOperation


@handles(FetchRequest, versions=range(4, 19), accesses=[cluster(AclOperation.CLUSTER_ACTION)], waits=True)
async def quorum_fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Pass the request to this node of the quorum, which may hold it until there is something to read."""
    quorum = context.controller.quorum()
    return await quorum.fetch(request, version=context.version, listener=context.listener)
