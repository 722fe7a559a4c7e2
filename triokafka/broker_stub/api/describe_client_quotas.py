"""DescribeClientQuotas (API key 48): list the quotas of users, client ids and IP addresses.

Versions 0-1. v1: flexible.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from operator import itemgetter
from typing import Final

from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import run_within_budget
from triokafka.errors import InvalidRequestError, UnsupportedVersionError
from triokafka.protocol.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from triokafka.quota_precedence import CLIENT_ID, IP, USER
from triokafka.security.acl import AclOperation

_EXACT: Final = 0
_DEFAULT: Final = 1
_SPECIFIED: Final = 2


def _failed(
    request: DescribeClientQuotasRequest, context: RequestContext, code: int, message: str
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


@handles(
    DescribeClientQuotasRequest,
    versions=range(0, 2),
    accesses=[cluster(AclOperation.DESCRIBE_CONFIGS)],
    on_error=_failed,
)
async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Read the quotas from the metadata image."""
    response = await run_within_budget(matching_quotas(context.metadata.image, request))
    context.items = len(response.entries or ())
    return response


def matching_quotas(
    image: MetadataImage, request: DescribeClientQuotasRequest
) -> Generator[int, None, DescribeClientQuotasResponse]:
    """Return the quotas of the entities that match every component of the filter, in steps.

    Raises:
        InvalidRequestError: a component is invalid, or components contradict each other.
        UnsupportedVersionError: a component has an unknown entity type.
    """
    exact, any_name = _conditions(request.components)
    entries: list[tuple[str, EntryData]] = []
    for entity, values in image.client_quotas.items():
        yield 1
        parts = dict(entity)
        if request.strict and len(parts) != len(exact) + len(any_name):
            continue
        if any(kind not in parts for kind in (*exact, *any_name)):
            continue
        if any(parts[kind] != name for kind, name in exact.items()):
            continue
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
        )
        entries.append((str(entity), entry))
    entries.sort(key=itemgetter(0))
    return DescribeClientQuotasResponse(error_message="", entries=[entry for _, entry in entries])


def _conditions(components: Sequence[ComponentData]) -> tuple[dict[str, str | None], list[str]]:
    exact: dict[str, str | None] = {}
    any_name: list[str] = []
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequestError("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise InvalidRequestError(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise UnsupportedVersionError(f"Unsupported entity type {kind}")
        if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise InvalidRequestError(f"Unknown match type {component.match_type}")
        if (component.match is None) is (component.match_type == _EXACT):
            raise InvalidRequestError(f"Entity type {kind}: exact match needs a name, other match types forbid a name")
        if component.match_type == _SPECIFIED:
            any_name.append(kind)
        else:
            exact[kind] = component.match
    kinds = {*exact, *any_name}
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequestError("A filter for IP addresses cannot be combined with users and client ids.")
    return exact, any_name
