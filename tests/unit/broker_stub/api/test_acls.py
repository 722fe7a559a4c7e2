"""DescribeAcls, CreateAcls and DeleteAcls over the cluster's metadata."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker_stub.api.node import Node, memory_world, running_node
from triokafka import errors
from triokafka.broker_stub.configured_authorizer import STANDARD_AUTHORIZER
from triokafka.broker_stub.request.registry import CloseConnectionError
from triokafka.protocol.api.create_acls import AclCreation, CreateAclsRequest
from triokafka.protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from triokafka.protocol.api.describe_acls import DescribeAclsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic

TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, DESCRIBE, DENY, ALLOW = 3, 8, 2, 3
INVALID = errors.InvalidRequestError.code
_OPTIONS: Any = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:test"}


def creation(**changes: Any) -> AclCreation:
    values: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**{**values, **changes})


async def create(node: Node, *creations: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    response = await node.call(CreateAclsRequest(creations=list(creations)), version)
    return [(result.error_code, result.error_message) for result in response.results]


_ALL: dict[str, Any] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


async def described(node: Node, version: int = 3, **wanted: Any) -> set[tuple[int, str, int, str, int]]:
    response = await node.call(DescribeAclsRequest(**{**_ALL, **wanted}), version)
    assert response.error_code == 0
    return {
        (resource.resource_type, resource.resource_name, resource.pattern_type, acl.principal, acl.operation)
        for resource in response.resources
        for acl in resource.acls
    }


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_created_acls_are_described_by_filter(version: int) -> None:
    async with running_node(**_OPTIONS) as node:
        made = [
            creation(),
            creation(resource_name="ord", resource_pattern_type=PREFIXED, principal="User:bob"),
            creation(resource_name="*", principal="User:carol"),
            creation(resource_type=GROUP, resource_name="orders"),
        ]
        assert await create(node, *made, version=version) == [(0, "")] * 4
        literal = (TOPIC, "orders", LITERAL, "User:alice", READ)
        prefixed = (TOPIC, "ord", PREFIXED, "User:bob", READ)
        wildcard = (TOPIC, "*", LITERAL, "User:carol", READ)
        of_group = (GROUP, "orders", LITERAL, "User:alice", READ)
        everything = {literal, prefixed, wildcard, of_group}
        assert await described(node, version) == everything
        topics: dict[str, Any] = {"resource_type_filter": TOPIC, "resource_name_filter": "orders"}
        assert await described(node, version, **topics) == {literal}
        assert await described(node, version, **topics, pattern_type_filter=MATCH) == everything - {of_group}
        assert await described(node, version, pattern_type_filter=PREFIXED) == {prefixed}
        assert await described(node, version, principal_filter="User:alice") == {literal, of_group}
        assert await described(node, version, host_filter="10.0.0.1") == set()
        assert await described(node, version, permission_type=DENY) == set()


async def test_acl_that_exists_is_not_written_twice() -> None:
    async with running_node(**_OPTIONS) as node:
        assert await create(node, creation(), creation()) == [(0, "")] * 2
        offset = node.broker.image.offset
        assert await create(node, creation()) == [(0, "")]
        assert node.broker.image.offset == offset
        assert len(node.broker.image.acls) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_type": CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": MATCH}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"principal": "alice"}, "Could not parse principal from `alice`: write it as Type:name"),
    ],
)
async def test_invalid_acl_is_refused_and_the_others_are_created(change: dict[str, Any], message: str) -> None:
    async with running_node(**_OPTIONS) as node:
        assert await create(node, creation(**change), creation()) == [(INVALID, message), (0, "")]
        assert await described(node) == {(TOPIC, "orders", LITERAL, "User:alice", READ)}


async def test_deleted_acls_are_in_the_answer_of_every_filter_that_matched() -> None:
    async with running_node(**_OPTIONS) as node:
        await create(node, creation(), creation(principal="User:bob"), creation(resource_type=GROUP))

        def wanted(**changes: Any) -> DeleteAclsFilter:
            return DeleteAclsFilter(**{**_ALL, "resource_type_filter": TOPIC, **changes})

        filters = [
            wanted(principal_filter="User:bob"),
            wanted(),
            wanted(resource_name_filter="none"),
            wanted(operation=99),
        ]
        response = await node.call(DeleteAclsRequest(filters=filters), 3)
        found = [(one.error_code, [acl.principal for acl in one.matching_acls]) for one in response.filter_results]
        assert found == [(0, ["User:bob"]), (0, ["User:alice", "User:bob"]), (0, []), (INVALID, [])]
        assert await described(node) == {(GROUP, "orders", LITERAL, "User:alice", READ)}


async def test_acls_take_effect_at_once_and_survive_a_restart() -> None:
    world = memory_world()
    options: Any = {**_OPTIONS, "super_users": ""}
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    async with running_node(world=world, **_OPTIONS) as node:
        await node.create("orders")
        await create(node, creation(principal="User:test", operation=DESCRIBE))
        await node.process.controller.take_snapshot()
    async with running_node(world=world, **options) as node:
        assert [topic.error_code for topic in (await node.call(asked, 9)).topics] == [0]
        assert [code for code, _ in await create(node, creation())] == [errors.ClusterAuthorizationFailedError.code]
        assert (await node.call(DescribeAclsRequest(operation=1), 3)).error_code == 31


async def test_node_without_the_standard_authorizer_says_so() -> None:
    async with running_node() as node:
        response = await node.call(DescribeAclsRequest(resource_type_filter=ANY, operation=1, permission_type=1), 3)
        assert response.error_code == errors.SecurityDisabledError.code
        assert await create(node, creation()) == [(response.error_code, "No Authorizer is configured.")]


async def test_unknown_element_closes_the_connection() -> None:
    async with running_node(**_OPTIONS) as node:
        for request in (
            CreateAclsRequest(creations=[creation(operation=0)]),
            DeleteAclsRequest(filters=[DeleteAclsFilter()]),
            DescribeAclsRequest(),
        ):
            with pytest.raises(CloseConnectionError):
                await node.send(request, 3)
