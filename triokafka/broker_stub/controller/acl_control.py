"""Changes of ACLs: CreateAcls and DeleteAcls as decisions over the image. Pure. The nodes' authorizers enforce them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.controller.outcome import MAX_RECORDS_PER_OPERATION, Outcome, Steps, check_size
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.metadata.security_records import acl_record
from triokafka.errors import BrokerResponseError, InvalidRequestError, PolicyViolationError
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import RemoveAccessControlEntryRecord
from triokafka.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)

if TYPE_CHECKING:
    from triokafka.protocol.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
    from triokafka.protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse

_STEP: Final = 500
"""ACLs that are compared with a filter before other tasks run."""
_MOST_MATCHES: Final = 100_000
"""ACLs in the answer to one request, in which an ACL is as often as filters match it."""


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, *, new_id: Callable[[], uuid.UUID]
) -> Steps[CreateAclsResponse]:
    """Add ACLs; each succeeds or fails independently, and one that exists already succeeds without a record.

    Raises:
        PolicyViolationError: the request needs too many records.
    """
    from triokafka.protocol.api.create_acls import AclCreationResult, CreateAclsResponse

    records: list[Struct] = []
    results: list[AclCreationResult] = []
    added: set[AclBinding] = set()
    for creation in request.creations:
        failure = ItemError()
        acl = _binding(creation)
        try:
            _check(acl)
        except BrokerResponseError as error:
            failure = ItemError.of(error)
        else:
            if acl not in image.acls and acl not in added:
                added.add(acl)
                check_size(records, 1)
                records.append(acl_record(new_id(), acl))
        # As Kafka, whose messages without an error are empty in some responses and null in others.
        results.append(AclCreationResult(error_code=failure.code, error_message=failure.message or ""))
        yield 1
    return Outcome(records, CreateAclsResponse(results=results))


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Steps[DeleteAclsResponse]:
    """Remove the ACLs that match any filter; the answer has those of each filter.

    Raises:
        InvalidRequestError: the request would remove too many ACLs.
        PolicyViolationError: too many filters match the same ACLs.
    """
    from triokafka.protocol.api.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsResponse

    removed: dict[uuid.UUID, DeleteAclsMatchingAcl] = {}
    results: list[DeleteAclsFilterResult] = []
    matches = 0
    for wanted in request.filters:
        acl_filter = _filter(wanted)
        if acl_filter.is_unknown:
            failure = ItemError.of(InvalidRequestError("Unknown patternFilter or entryFilter."))
            results.append(DeleteAclsFilterResult(error_code=failure.code, error_message=failure.message))
            continue
        matching: list[DeleteAclsMatchingAcl] = []
        for at, (acl, acl_id) in enumerate(image.acls.items(), 1):
            if acl_filter.matches(acl):
                found = removed.get(acl_id)
                if found is None:
                    found = removed[acl_id] = DeleteAclsMatchingAcl(error_message=None, **acl._asdict())
                    if len(removed) > MAX_RECORDS_PER_OPERATION:
                        raise InvalidRequestError(
                            f"Cannot remove more than {MAX_RECORDS_PER_OPERATION} acls in a single delete operation."
                        )
                matching.append(found)
            if at % _STEP == 0:
                yield _STEP
        matches += len(matching)
        if matches > _MOST_MATCHES:
            raise PolicyViolationError(
                f"The filters match the same ACLs more than {_MOST_MATCHES} times; send fewer filters at once."
            )
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
        yield 1
    records: list[Struct] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed]
    return Outcome(records, DeleteAclsResponse(filter_results=results))


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding(
        ResourceType(creation.resource_type),
        creation.resource_name,
        AclPatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        AclPermissionType(creation.permission_type),
    )


def _filter(wanted: DeleteAclsFilter) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType(wanted.resource_type_filter),
        wanted.resource_name_filter,
        AclPatternType(wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        AclOperation(wanted.operation),
        AclPermissionType(wanted.permission_type),
    )


def _check(acl: AclBinding) -> None:
    """Check a new ACL, in Kafka's order. Raises `InvalidRequestError`."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise InvalidRequestError("Invalid empty resource name")
    if acl.resource_type <= ResourceType.ANY:
        raise InvalidRequestError(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        raise InvalidRequestError(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation <= AclOperation.ANY:
        raise InvalidRequestError(f"Invalid operation {acl.operation.name}")
    if acl.permission_type not in (AclPermissionType.ALLOW, AclPermissionType.DENY):
        raise InvalidRequestError(f"Invalid permissionType {acl.permission_type.name}")
    if ":" not in acl.principal:
        raise InvalidRequestError(f"Could not parse principal from `{acl.principal}`: write it as Type:name")
