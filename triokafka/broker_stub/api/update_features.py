"""UpdateFeatures (API key 57): change the levels of features (KIP-584, KIP-778, KIP-1022).

Versions 0-2. v1: upgrade types and validate-only requests. v2: no per-feature results.
"""

from __future__ import annotations

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from triokafka.security.acl import AclOperation


@handles(UpdateFeaturesRequest, versions=range(0, 3), accesses=[cluster(AclOperation.ALTER)])
async def update_features(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Forward the request to the controller."""
    return await context.gateway_without_slot().send(request)
