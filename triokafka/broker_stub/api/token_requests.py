"""The rule about which connections may ask for delegation tokens (KIP-48)."""

from __future__ import annotations

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.request.context import RequestContext


def allows_token_requests(context: RequestContext) -> bool:
    """Whether the client has authenticated, and not with a token: otherwise tokens could be renewed forever.

    A request that a broker forwards was checked there.
    """
    if context.token_authenticated:
        return False
    if context.forwarded:
        return True
    protocol = context.config.security_protocol_of(context.listener)
    return not (protocol == "PLAINTEXT" or (protocol == "SSL" and context.principal == ANONYMOUS))
