"""ApiVersions (API key 18): the APIs that this broker serves with their versions, and the features of the cluster.

Versions 0-4. v1: throttle time. v3: flexible body (the response header stays inflexible), the client's software name
and version, features. v4: also supported features whose lowest version is 0. The dispatcher itself answers a request in
an unknown version, with a response in version 0 (KIP-511).
"""

from __future__ import annotations

import re
from typing import Final

from triokafka.broker_stub.metadata.features import SERVED
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.errors import InvalidRequestError
from triokafka.protocol.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from triokafka.protocol.configuration import ConfigResourceType

_TELEMETRY: Final = (71, 72)
"""APIs that only a cluster with subscriptions for client metrics advertises, so that others get no useless request."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, versions=range(0, 5))
async def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Answer from the table of APIs and the metadata image."""
    if context.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise InvalidRequestError(f"{text!r} is not a software name or version")
        if not context.forwarded:
            context.services.telemetry.note_software(
                context.peer, request.client_software_name, request.client_software_version
            )
    pushes = any(kind == ConfigResourceType.CLIENT_METRICS for kind, _ in context.metadata.image.configs)
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=versions.start, max_version=versions.stop - 1)
            for key, versions in sorted(context.services.advertised.items())
            if pushes or key not in _TELEMETRY
        ]
    )
    if context.version >= 3:
        # Clients before v4 reject a feature whose lowest version is 0 (KAFKA-17011).
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(SERVED.items())
            if low > 0 or context.version >= 4
        ]
        cache = context.metadata
        response.finalized_features_epoch = cache.image.offset
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(cache.finalized_features.items())
        ]
    return response
