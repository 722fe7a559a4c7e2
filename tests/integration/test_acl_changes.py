"""An ACL denies one operation to a running group: the member raises the error, and later members continue
without it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio

import triokafka
from triokafka import errors
from triokafka.broker_stub.configured_authorizer import STANDARD_AUTHORIZER
from triokafka.client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)
from triokafka.testing import running_broker

PATIENCE = 60
USERS = {"admin": "admin secret", "alice": "secret"}


class Case(NamedTuple):
    """A denied operation, and the error that the consumer raises."""

    resource: ResourceType
    name: str
    operation: AclOperation
    error: type[Exception]


CASES = (
    Case(ResourceType.TOPIC, "orders", AclOperation.READ, errors.TopicAuthorizationFailedError),
    Case(ResourceType.TOPIC, "orders", AclOperation.DESCRIBE, errors.TopicAuthorizationFailedError),
    Case(ResourceType.GROUP, "billing", AclOperation.READ, errors.GroupAuthorizationFailedError),
)


@asynccontextmanager
async def guarded_broker() -> AsyncIterator[Any]:
    """Run a broker where alice may do everything."""
    async with running_broker(
        users=USERS,
        authorizer_class_name=STANDARD_AUTHORIZER,
        super_users="User:admin",
        allow_everyone_if_no_acl_found=True,
        group_initial_rebalance_delay_ms=0,
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_heartbeat_interval_ms=100,
        group_min_session_timeout_ms=500,
        group_consumer_min_session_timeout_ms=500,
        group_consumer_session_timeout_ms=1000,
    ) as broker:
        yield broker


async def read_until(consumer: triokafka.Consumer, value: bytes) -> None:
    with trio.fail_after(PATIENCE):
        while True:
            for records in (await consumer.poll(timeout_ms=200)).values():
                if value in [record.value for record in records]:
                    return


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.resource.name}-{case.operation.name}")
async def test_denied_group_member_names_the_resource_and_another_member_continues(case: Case, protocol: str) -> None:
    async with guarded_broker() as broker:
        alice = broker.client_options("alice", mechanism="PLAIN")
        group: dict[str, Any] = {
            **alice,
            "group_id": "billing",
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            "metadata_max_age_ms": 300,
        }
        if protocol == "classic":
            # A member without READ on the group is not allowed to leave it either.
            group |= {"heartbeat_interval_ms": 100, "session_timeout_ms": 1000, "max_poll_interval_ms": 1000}
        allow = AclBinding(
            case.resource, case.name, AclPatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW
        )
        deny = allow._replace(principal="User:alice", operation=case.operation, permission_type=AclPermissionType.DENY)
        async with (
            triokafka.AdminClient(**broker.client_options("admin", mechanism="PLAIN")) as admin,
            triokafka.Producer(**broker.client_options("admin", mechanism="PLAIN")) as producer,
        ):
            await (await producer.send("orders", b"first"))
            await admin.create_acls([allow])
            consumer = triokafka.Consumer("orders", **group)
            with pytest.raises(case.error) as raised:
                async with consumer:
                    await read_until(consumer, b"first")
                    await admin.create_acls([deny])
                    with trio.fail_after(PATIENCE):
                        while True:
                            await consumer.poll(timeout_ms=200)
            assert case.name in str(raised.value)
            await admin.delete_acls([AclBindingFilter(principal="User:alice")])
            await (await producer.send("orders", b"second"))
            async with triokafka.Consumer("orders", **group) as other:
                await read_until(other, b"second")
