"""Envelope (API key 58): a broker forwards a client's request to the active controller (KIP-590).

Version 0.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.envelope import EnvelopeRequest, EnvelopeResponse
from triokafka.security.acl import AclOperation


@handles(EnvelopeRequest, versions=range(0, 1), accesses=[cluster(AclOperation.CLUSTER_ACTION)])
async def envelope(request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
    """Answer the request inside, in the name of the client and with its permissions."""
    return await context.controller.answer_envelope(request, context)
