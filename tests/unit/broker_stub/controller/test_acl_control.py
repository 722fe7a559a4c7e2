"""The limits of DeleteAcls."""

from __future__ import annotations

import uuid

import pytest

from triokafka.broker_stub.controller.acl_control import delete_acls
from triokafka.broker_stub.controller.outcome import MAX_RECORDS_PER_OPERATION, Outcome
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.errors import InvalidRequestError, PolicyViolationError
from triokafka.protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from triokafka.security.acl import AclBinding, AclOperation, AclPatternType, AclPermissionType, ResourceType

ANY = 1


def image(count: int) -> MetadataImage:
    rest = ResourceType.TOPIC, AclPatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
    acls = {AclBinding(rest[0], f"t-{number}", *rest[1:]): uuid.UUID(int=number + 1) for number in range(count)}
    return MetadataImage(acls=acls)


def deletion(before: MetadataImage, filters: int) -> Outcome[DeleteAclsResponse]:
    every = DeleteAclsFilter(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    steps = delete_acls(before, DeleteAclsRequest(filters=[every] * filters))
    try:
        while True:
            next(steps)
    except StopIteration as end:
        found: Outcome[DeleteAclsResponse] = end.value
        return found


def test_as_many_acls_are_deleted_at_once_as_one_change_may_have_records() -> None:
    records, response = deletion(image(MAX_RECORDS_PER_OPERATION), 1)
    assert len(records) == len(response.filter_results[0].matching_acls) == MAX_RECORDS_PER_OPERATION
    with pytest.raises(InvalidRequestError, match="Cannot remove more than 10000 acls in a single delete operation"):
        deletion(image(MAX_RECORDS_PER_OPERATION + 1), 1)


def test_many_filters_cannot_inflate_the_answer() -> None:
    """A request of 100 kB with nine thousand filters, of which each matches every ACL, would have millions."""
    _, response = deletion(image(1_000), 100)
    assert sum(len(one.matching_acls) for one in response.filter_results) == 100_000
    with pytest.raises(PolicyViolationError, match="send fewer filters"):
        deletion(image(1_000), 101)
