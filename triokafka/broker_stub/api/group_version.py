"""Check of the feature ``group.version``, which enables the consumer protocol (KIP-848)."""

from __future__ import annotations

from triokafka.broker_stub.metadata.features import GROUP_VERSION
from triokafka.broker_stub.request.context import RequestContext
from triokafka.errors import UnsupportedVersionError


def require_group_version(context: RequestContext) -> None:
    """Raise `UnsupportedVersionError` if ``group.version`` is below 1, as in an older cluster before its upgrade."""
    if context.metadata.image.features.get(GROUP_VERSION, 0) < 1:
        raise UnsupportedVersionError("the feature group.version is below 1: set it to 1 to use the consumer protocol")
