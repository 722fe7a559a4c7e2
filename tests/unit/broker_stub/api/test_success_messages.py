"""Error messages of successes are Kafka 4.3's: empty in some responses, null in others. kafkajs passes both on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.odd_requests import request
from tests.unit.broker_stub.api.node import running_node
from triokafka.broker_stub.configured_authorizer import STANDARD_AUTHORIZER
from triokafka.protocol.message import Struct

_OPTIONS: Any = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:test"}
_ACL = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
_ANY_NAME = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
_QUORUM = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
_USER = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"salted"}


def messages(response: Struct) -> Iterator[str | None]:
    for field in type(response).__fields__:
        value = getattr(response, field.name)
        if field.name == "error_message":
            yield value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from messages(item)


@pytest.mark.parametrize(
    ("api", "version", "values", "expected"),
    [
        ("create_acls", 3, {"creations": [_ACL]}, [""]),
        ("delete_acls", 3, {"filters": [{**_ANY_ACL, **_ANY_NAME}]}, [None, None]),
        ("describe_acls", 3, {**_ANY_ACL, **_ANY_NAME}, [""]),
        ("describe_configs", 4, {"resources": [{"resource_type": 4, "resource_name": ""}]}, [""]),
        ("describe_client_quotas", 1, {"components": []}, [""]),
        ("alter_user_scram_credentials", 0, {"deletions": [], "upsertions": [_USER]}, [None]),
        ("describe_quorum", 2, {"topics": _QUORUM}, ["", ""]),
    ],
)
async def test_message_of_a_success_is_empty_or_null_as_in_kafka(
    api: str, version: int, values: dict[str, Any], expected: list[str | None]
) -> None:
    async with running_node(**_OPTIONS) as node:
        await node.call(request("create_acls", {"creations": [_ACL]}), 3)
        response = await node.call(request(api, values), version)
        assert list(messages(response)) == expected
