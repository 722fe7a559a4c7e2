"""ACLs and SCRAM users through the admin clients: the SDK's, the blocking one, and confluent-kafka's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from triokafka import errors
from triokafka.blocking.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from triokafka.blocking.errors import NoError
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.configured_authorizer import STANDARD_AUTHORIZER
from triokafka.broker_stub.node import Node
from triokafka.client import admin as types
from triokafka.security.acl import ResourceType
from triokafka.testing import running_broker

TOPIC = ResourceType.TOPIC
ANONYMOUS = "User:ANONYMOUS"
READ = types.AclBinding(
    TOPIC,
    "orders",
    types.AclPatternType.LITERAL,
    "User:alice",
    "*",
    types.AclOperation.READ,
    types.AclPermissionType.ALLOW,
)


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    """Run a broker with the standard authorizer, where every unauthenticated client is a super user."""
    options: dict[str, Any] = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": ANONYMOUS}
    async with running_broker(**options) as broker:
        yield broker.bootstrap_servers


async def test_sdk_creates_describes_and_deletes_acls(bootstrap: str) -> None:
    prefixed = READ._replace(resource_name="ord", pattern_type=types.AclPatternType.PREFIXED, principal="User:bob")
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_acls([READ, prefixed, READ])
        assert set(await admin.describe_acls()) == {READ, prefixed}
        match = types.AclBindingFilter(TOPIC, "orders", types.AclPatternType.MATCH)
        assert set(await admin.describe_acls(match)) == {READ, prefixed}
        assert await admin.describe_acls(types.AclBindingFilter(principal="User:alice")) == [READ]
        with pytest.raises(errors.InvalidRequestError, match="only valid name for the CLUSTER"):
            await admin.create_acls([READ._replace(resource_type=ResourceType.CLUSTER)])
        by_alice = types.AclBindingFilter(principal="User:alice")
        assert await admin.delete_acls([by_alice, match]) == {by_alice: [READ], match: [READ, prefixed]}
        assert await admin.describe_acls() == []


async def test_sdk_sets_describes_and_removes_users(bootstrap: str) -> None:
    sha_256, sha_512 = types.ScramMechanism
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        upsertion = types.UserScramCredentialUpsertion("alice", sha_256, "s3cret", iterations=8192)
        assert "s3cret" not in repr(upsertion)
        await admin.alter_user_scram_credentials(
            [upsertion, types.UserScramCredentialUpsertion("bob", sha_512, b"other")]
        )
        assert dict(await admin.describe_user_scram_credentials()) == {"alice": {sha_256: 8192}, "bob": {sha_512: 4096}}
        found = await admin.describe_user_scram_credentials(["bob", "carol"])
        assert found["bob"] == {sha_512: 4096}
        with pytest.raises(errors.ResourceNotFoundError):
            found["carol"]
        await admin.alter_user_scram_credentials([types.UserScramCredentialDeletion("alice", sha_256)])
        with pytest.raises(errors.ResourceNotFoundError, match="alice"):
            await admin.alter_user_scram_credentials([types.UserScramCredentialDeletion("alice", sha_256)])
        with pytest.raises(ValueError, match="two alterations"):
            await admin.alter_user_scram_credentials([upsertion, upsertion])


async def test_blocking_client_has_kafka_pythons_calls(bootstrap: str) -> None:
    pattern = ResourcePattern(TOPIC, "orders")
    acl = ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    every = ACLFilter(
        None, None, ACLOperation.ANY, ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )  # fmt: skip
    wrong = ACL(
        "User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.CLUSTER, "x")
    )

    def work() -> None:
        with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
            assert admin.create_acls([acl]) == {"succeeded": [acl], "failed": []}
            assert admin.create_acls([wrong]) == {"succeeded": [], "failed": [errors.InvalidRequestError]}
            assert admin.describe_acls(every) == ([acl], NoError)
            assert admin.delete_acls([every]) == [(every, [acl], NoError)]
            assert admin.describe_acls(every)[0] == []
            upsertion = UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "s3cret")
            assert admin.alter_user_scram_credentials([upsertion]) == {"alice": None}
            infos = [{"mechanism": ScramMechanism.SCRAM_SHA_256, "iterations": 4096}]
            assert admin.describe_user_scram_credentials() == {"alice": {"error": None, "credential_infos": infos}}
            deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
            message = str(admin.alter_user_scram_credentials([deletion])["bob"])
            assert "does not exist" in message and not message.startswith("the user")  # the broker's own message

    await trio.to_thread.run_sync(work)


async def test_kafka_python_manages_acls_and_users(bootstrap: str) -> None:
    kafka_admin = pytest.importorskip("kafka.admin")

    def work() -> None:
        admin = kafka_admin.KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            pattern = kafka_admin.ResourcePattern(kafka_admin.ResourceType.TOPIC, "orders")
            acl = kafka_admin.ACL(
                "User:alice", "*", kafka_admin.ACLOperation.READ, kafka_admin.ACLPermissionType.ALLOW, pattern
            )
            assert admin.create_acls([acl])["succeeded"] == [acl]
            every = kafka_admin.ACLFilter(
                None, None, kafka_admin.ACLOperation.ANY, kafka_admin.ACLPermissionType.ANY,
                kafka_admin.ResourcePatternFilter(
                    kafka_admin.ResourceType.ANY, None, kafka_admin.ACLResourcePatternType.ANY
                ),
            )  # fmt: skip
            assert admin.describe_acls(every)[0] == [acl]
            assert admin.delete_acls([every])[0][1] == [acl]
        finally:
            admin.close()

    await trio.to_thread.run_sync(work)


async def test_confluent_kafka_manages_acls_and_users(bootstrap: str) -> None:
    confluent = pytest.importorskip("confluent_kafka.admin")

    def work() -> None:
        admin = confluent.AdminClient({"bootstrap.servers": bootstrap})
        acl = confluent.AclBinding(
            confluent.ResourceType.TOPIC, "orders", confluent.ResourcePatternType.PREFIXED, "User:alice", "*",
            confluent.AclOperation.WRITE, confluent.AclPermissionType.ALLOW,
        )  # fmt: skip
        admin.create_acls([acl])[acl].result(30)
        every = confluent.AclBindingFilter(
            confluent.ResourceType.ANY, None, confluent.ResourcePatternType.ANY, None, None,
            confluent.AclOperation.ANY, confluent.AclPermissionType.ANY,
        )  # fmt: skip
        assert admin.describe_acls(every).result(30) == [acl]
        assert admin.delete_acls([every])[every].result(30) == [acl]
        info = confluent.ScramCredentialInfo(confluent.ScramMechanism.SCRAM_SHA_512, 5000)
        upsertion = confluent.UserScramCredentialUpsertion("alice", info, b"s3cret")
        admin.alter_user_scram_credentials([upsertion])["alice"].result(30)
        (found,) = admin.describe_user_scram_credentials(["alice"])["alice"].result(30).scram_credential_infos
        assert (found.mechanism, found.iterations) == (confluent.ScramMechanism.SCRAM_SHA_512, 5000)

    await trio.to_thread.run_sync(work)


async def test_scram_user_logs_in_and_gets_the_permissions_of_its_acls(tmp_path: Path) -> None:
    """The principal of a SCRAM login reaches the authorizer and the quotas; a new password takes effect at once."""
    config = BrokerConfig.from_properties(
        {
            "node.id": "1",
            "log.dirs": str(tmp_path),
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": ANONYMOUS,
        }
    )
    sha_256 = types.ScramMechanism.SCRAM_SHA_256
    write = READ._replace(operation=types.AclOperation.WRITE)
    async with Node(config) as node:
        plain, sasl = node.addresses.split(",")
        login: dict[str, Any] = {
            "bootstrap_servers": sasl,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
        }
        async with triokafka.AdminClient(bootstrap_servers=plain) as admin:
            await admin.create_topics([triokafka.NewTopic("orders", 1), triokafka.NewTopic("secret", 1)])
            await admin.alter_user_scram_credentials(
                [types.UserScramCredentialUpsertion("alice", sha_256, "first password")]
            )
            await admin.create_acls([write])
            async with triokafka.Producer(**login, sasl_password="first password") as producer:
                await (await producer.send("orders", b"allowed", partition=0))
                with pytest.raises(errors.TopicAuthorizationFailedError):
                    await (await producer.send("secret", b"denied", partition=0))
                await admin.create_acls([write._replace(permission_type=types.AclPermissionType.DENY)])
                with pytest.raises(errors.TopicAuthorizationFailedError):
                    await (await producer.send("orders", b"denied", partition=0))
            async with triokafka.AdminClient(**login, sasl_password="first password") as alices:
                assert [topic.name for topic in await alices.list_topics()] == ["orders"]  # WRITE implies DESCRIBE
                with pytest.raises(errors.ClusterAuthorizationFailedError):
                    await alices.describe_acls()
            await admin.alter_user_scram_credentials(
                [types.UserScramCredentialUpsertion("alice", sha_256, "second password")]
            )
            with pytest.raises(errors.AuthenticationError):
                async with triokafka.AdminClient(**login, sasl_password="first password") as alices:
                    await alices.list_topics()
            async with triokafka.AdminClient(**login, sasl_password="second password") as alices:
                await alices.list_topics()
