"""Delegation tokens from creation to login, renewal and expiry (KIP-48, KIP-373)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import triokafka
from tests.support.tool import Tool
from triokafka import errors
from triokafka.client.admin import AclBinding, AclOperation, AclPatternType, AclPermissionType, ResourceType
from triokafka.security.secret import reveal
from triokafka.testing import running_broker, running_cluster
from triokafka.testing.broker import RunningBroker
from triokafka.testing.security import BrokerSecurity

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = {"admin": "a", "alice": "b", "bob": "c", "eve": "d"}


@asynccontextmanager
async def broker(**options: Any) -> AsyncIterator[RunningBroker]:
    settings: dict[str, Any] = {
        "delegation_token_secret_key": "a key",
        "authorizer_class_name": STANDARD,
        "super_users": "User:admin",
    }
    async with running_broker(users=USERS, **{**settings, **options}) as running:
        yield running


def options_of(running: RunningBroker, user: str) -> dict[str, Any]:
    return running.client_options(user, mechanism="SCRAM-SHA-512")


def with_token(running: RunningBroker, token: Any, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    options = options_of(running, "alice")
    for name in ("sasl_username", "sasl_password", "sasl_mechanism"):
        del options[name]
    return {**options, **token.login_options(mechanism)}


def allow(principal: str, operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, name, AclPatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_client_acts_as_the_owner_of_its_token_until_it_is_removed(mechanism: str) -> None:
    async with broker() as running:
        async with triokafka.AdminClient(**options_of(running, "admin")) as admin:
            await admin.create_topics([triokafka.NewTopic("orders", 1)])
            await admin.create_acls([allow("User:alice", AclOperation.WRITE, ResourceType.TOPIC, "orders")])
        async with triokafka.AdminClient(**options_of(running, "alice")) as alice:
            token = await alice.create_delegation_token(renewers=["User:bob"])
            assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
            assert reveal(token.password) not in repr(token)
            async with triokafka.Producer(**with_token(running, token, mechanism)) as producer:
                await (await producer.send("orders", b"x", partition=0))
            async with triokafka.AdminClient(**with_token(running, token, mechanism)) as other:
                with pytest.raises(errors.DelegationTokenRequestNotAllowedError):
                    await other.create_delegation_token()
                with pytest.raises(errors.DelegationTokenRequestNotAllowedError):
                    await other.renew_delegation_token(token.hmac)
                with pytest.raises(errors.DelegationTokenRequestNotAllowedError):
                    await other.describe_delegation_tokens()
            await alice.expire_delegation_token(token.hmac)
            assert await alice.describe_delegation_tokens() == []
        async with triokafka.AdminClient(**with_token(running, token, mechanism)) as late:
            with pytest.raises(errors.SaslAuthenticationFailedError):
                await late.list_topics()


async def test_session_ends_with_its_token() -> None:
    """KIP-368: the client cannot log in again with an expired token, and later requests of the session are refused."""
    async with (
        broker(delegation_token_expiry_check_interval_ms=100) as running,
        triokafka.AdminClient(**options_of(running, "alice")) as alice,
    ):
        token = await alice.create_delegation_token(max_lifetime_ms=700)
        async with triokafka.AdminClient(**with_token(running, token)) as other:
            await other.list_topics()
            with trio.fail_after(20), pytest.raises(errors.KafkaError):
                while True:
                    await other.list_topics(timeout_ms=3000)
                    await trio.sleep(0.05)
        with trio.fail_after(20):
            while await alice.describe_delegation_tokens():
                await trio.sleep(0.02)


async def test_tokens_of_others_need_permission() -> None:
    async with broker() as running:
        async with triokafka.AdminClient(**options_of(running, "bob")) as bob:
            with pytest.raises(errors.DelegationTokenAuthorizationFailedError):
                await bob.create_delegation_token(owner="User:alice")
            async with triokafka.AdminClient(**options_of(running, "admin")) as admin:
                create = allow("User:bob", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:alice")
                await admin.create_acls([create])
            token = await bob.create_delegation_token(owner="User:alice")
            assert (token.owner, token.requester) == ("User:alice", "User:bob")
            assert await bob.describe_delegation_tokens() == [], "a requester is neither owner nor renewer"
            with pytest.raises(errors.DelegationTokenOwnerMismatchError):
                await bob.renew_delegation_token(token.hmac)
            async with triokafka.AdminClient(**options_of(running, "admin")) as admin:
                grants = [
                    allow("User:bob", AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice"),
                    allow("User:eve", AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id),
                ]
                assert await admin.describe_delegation_tokens(["User:alice"]) == [token]
                await admin.create_acls(grants)
            assert await bob.describe_delegation_tokens() == [token]
            assert await bob.describe_delegation_tokens(["User:bob"]) == []
        async with triokafka.AdminClient(**options_of(running, "eve")) as eve:
            assert await eve.describe_delegation_tokens() == [token]
        async with triokafka.AdminClient(**options_of(running, "alice")) as alice:
            assert await alice.renew_delegation_token(token.hmac) >= token.expiry_timestamp_ms


async def test_brokers_without_a_key_have_no_tokens() -> None:
    async with (
        broker(delegation_token_secret_key=None) as running,
        triokafka.AdminClient(**options_of(running, "alice")) as alice,
    ):
        with pytest.raises(errors.DelegationTokenAuthDisabledError):
            await alice.create_delegation_token()
        with pytest.raises(errors.DelegationTokenAuthDisabledError):
            await alice.describe_delegation_tokens()


async def test_unauthenticated_clients_get_no_tokens() -> None:
    async with (
        running_broker(delegation_token_secret_key="a key") as running,
        triokafka.AdminClient(**running.client_options()) as anonymous,
    ):
        with pytest.raises(errors.DelegationTokenRequestNotAllowedError):
            await anonymous.create_delegation_token()


def test_command_line_creates_renews_expires_and_describes(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from triokafka.testing.blocking import running_broker as blocking_broker

    with blocking_broker(users=USERS, delegation_token_secret_key="a key") as running:
        config = tmp_path / "alice.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            'sasl.jaas.config=ScramLoginModule required username="alice" password="b";\n'
        )
        tool = Tool(running.bootstrap_servers, capfdbinary, monkeypatch)

        def tokens(*arguments: str) -> str:
            return tool.ok("delegation-tokens", *arguments, "--command-config", str(config))

        (created,) = json.loads(tokens("create", "--renewer-principal", "User:bob", "--json"))
        assert created["owner"] == "User:alice" and created["renewers"] == ["User:bob"]
        text = tokens("describe", "--owner-principal", "User:bob")
        assert f"Token {created['token_id']}\n  HMAC: {created['hmac']}\n  owner: User:alice\n" in text
        secret = tmp_path / "secret"
        secret.write_text(created["hmac"] + "\n")
        assert tokens("renew", "--hmac", f"@{secret}", "--renew-time-period", "60000").startswith(
            "The token expires at"
        )
        assert tokens("expire", "--hmac", created["hmac"]) == "The token is removed.\n"
        assert json.loads(tokens("describe", "--json")) == []


async def test_every_broker_of_a_cluster_forwards_requests_and_takes_logins() -> None:
    """The Envelope carries the caller's principal, and whether it used a token (KIP-590)."""
    security = BrokerSecurity(tls=False, users={"broker": "x", "alice": "b"})
    async with running_cluster(
        3, controllers=1, delegation_token_secret_key="a key", **security.broker_options()
    ) as cluster:
        seen = []
        for broker in cluster.brokers:
            options = {**security.client_options("alice", "PLAIN"), "bootstrap_servers": broker.bootstrap_servers}
            async with triokafka.AdminClient(**options) as alice:
                seen.append(await alice.create_delegation_token())
                assert (seen[-1].owner, seen[-1].requester) == ("User:alice", "User:alice")
                with trio.fail_after(30):  # every broker has its own metadata image
                    while seen[-1] not in await alice.describe_delegation_tokens():
                        await trio.sleep(0.01)
                assert await alice.renew_delegation_token(seen[0].hmac) >= seen[0].expiry_timestamp_ms
