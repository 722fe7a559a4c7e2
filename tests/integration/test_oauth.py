"""OAUTHBEARER with an identity provider: the clients' tokens, and their validation by the broker."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

import triokafka
from tests.support.token_server import AUDIENCE, CLIENTS, ISSUER, TokenServer, token_server
from triokafka.asyncio import AIOKafkaProducer
from triokafka.blocking import KafkaAdminClient
from triokafka.errors import (
    AuthenticationError,
    ConfigurationError,
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
)
from triokafka.security.sasl.oauthbearer import unsecured_token
from triokafka.testing import running_broker
from triokafka.testing.broker import RunningBroker

LISTENER: dict[str, Any] = {
    "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
    "inter_broker_listener_name": "SASL_PLAINTEXT",
}


@pytest.fixture
def provider() -> Iterator[TokenServer]:
    with token_server() as server:
        yield server


def broker_texts(provider: TokenServer, **more: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.client.credentials.client.id": "alice",
        "sasl.oauthbearer.client.credentials.client.secret": CLIENTS["alice"],
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"{provider.jwks_url},{provider.token_url}",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@asynccontextmanager
async def broker(provider: TokenServer, **more: str) -> AsyncIterator[RunningBroker]:
    async with running_broker(security=broker_texts(provider, **more), **LISTENER) as running:
        yield running


def with_endpoint(running: RunningBroker, provider: TokenServer, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": running.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": provider.token_url,
        "sasl_oauthbearer_allowed_urls": provider.token_url,
        "sasl_oauthbearer_client_credentials_client_id": "alice",
        "sasl_oauthbearer_client_credentials_client_secret": CLIENTS["alice"],
        **more,
    }


def with_token(running: RunningBroker, token: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": running.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": lambda: token,
    }


async def topics(options: dict[str, Any]) -> set[str]:
    with trio.fail_after(60):
        async with triokafka.AdminClient(**options) as admin:
            return {topic.name for topic in await admin.list_topics()}


async def refusal(options: dict[str, Any]) -> str:
    with pytest.raises(AuthenticationError) as raised:
        await topics(options)
    assert isinstance(raised.value, SaslAuthenticationFailedError)
    return str(raised.value)


async def test_clients_use_the_token_endpoint_and_share_its_token(provider: TokenServer) -> None:
    async with broker(provider) as running:
        options = with_endpoint(running, provider, sasl_oauthbearer_scope="read write")
        async with triokafka.Producer(**options) as producer:
            await (await producer.send("orders", b"value", partition=0))
        async with triokafka.Consumer("orders", auto_offset_reset="earliest", **options) as consumer:
            with trio.fail_after(60):
                async for record in consumer:
                    assert record.value == b"value"
                    break
    assert [form["grant_type"] for form in provider.requests] == ["client_credentials"] * len(provider.requests)
    assert [form["scope"] for form in provider.requests] == ["read write"] * 2  # one token for each client


async def test_jaas_options_name_the_client_and_its_extensions(provider: TokenServer) -> None:
    async with broker(provider) as running:
        jaas = (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
            f' clientId="alice" clientSecret="{CLIENTS["alice"]}" scope="s" extension_logicalCluster="lkc-1";'
        )
        options = with_endpoint(running, provider, sasl_jaas_config=jaas)
        del options["sasl_oauthbearer_client_credentials_client_id"]
        del options["sasl_oauthbearer_client_credentials_client_secret"]
        assert await topics(options) == set()
        assert provider.requests[-1]["scope"] == "s"
        bad = jaas.replace("extension_logicalCluster", "extension_auth")
        with pytest.raises(ConfigurationError, match="'auth' is not a name of a SASL extension"):
            triokafka.AdminClient(**{**options, "sasl_jaas_config": bad})


async def test_special_characters_of_a_secret_are_encoded_on_request(provider: TokenServer) -> None:
    async with broker(provider) as running:
        for user in CLIENTS:
            options = with_endpoint(
                running,
                provider,
                sasl_oauthbearer_client_credentials_client_id=lambda user=user: user,
                sasl_oauthbearer_client_credentials_client_secret=lambda user=user: CLIENTS[user],
            )
            assert await topics(options) == set()


@pytest.mark.parametrize("kind", [RSAKey, ECKey])
@pytest.mark.parametrize("grant", ["ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever"])
async def test_a_signed_assertion_replaces_the_secret(
    provider: TokenServer, kind: type[RSAKey] | type[ECKey], grant: str, tmp_path: Path
) -> None:
    """RFC 7523."""
    key: RSAKey | ECKey = RSAKey.generate_key(2048) if kind is RSAKey else ECKey.generate_key("P-256")
    key_file, template = tmp_path / "key.pem", tmp_path / "template.json"
    key_file.write_bytes(key.as_pem(private=True, password="pass phrase"))
    template.write_text(json.dumps({"header": {"kid": "k"}, "payload": {"tenant": "t"}}))
    provider.assertion_keys = [key]
    async with broker(provider) as running:
        options = with_endpoint(
            running,
            provider,
            sasl_oauthbearer_jwt_retriever_class=f"org.apache.kafka.common.security.oauthbearer.{grant}",
            sasl_oauthbearer_assertion_algorithm="RS256" if kind is RSAKey else "ES256",
            sasl_oauthbearer_assertion_private_key_file=str(key_file),
            sasl_oauthbearer_assertion_private_key_passphrase="pass phrase",
            sasl_oauthbearer_assertion_template_file=str(template),
            sasl_oauthbearer_assertion_claim_iss="alice",
            sasl_oauthbearer_assertion_claim_sub="alice",
            sasl_oauthbearer_assertion_claim_aud="token endpoint",
            sasl_oauthbearer_assertion_claim_jti_include=True,
            sasl_oauthbearer_allowed_files=f"{key_file},{template}",
        )
        assert await topics(options) == set()
        sent = provider.requests[-1]
        token = jwt.decode(sent.get("client_assertion") or sent["assertion"], key, algorithms=["RS256", "ES256"])
        assert token.header["kid"] == "k" and token.claims["tenant"] == "t"
        assert {"jti", "iat", "exp", "nbf"} <= {*token.claims} and token.claims["aud"] == "token endpoint"
        wrong = {**options, "sasl_oauthbearer_assertion_private_key_passphrase": "guess"}
        error = await refusal(wrong)
        assert str(key_file) in error and "passphrase" in error and "guess" not in error
        with pytest.raises(ConfigurationError, match="is not allowed"):
            triokafka.AdminClient(**{**options, "sasl_oauthbearer_allowed_files": str(key_file)})


async def test_a_file_holds_the_token_and_is_read_for_every_login(provider: TokenServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(provider.token() + "\n")
    async with broker(provider) as running:
        url = f"file://{file}"
        options = with_endpoint(
            running, provider, sasl_oauthbearer_token_endpoint_url=url, sasl_oauthbearer_allowed_urls=url
        )
        assert await topics(options) == set()
        file.write_text(provider.token(exp=int(time.time()) - 60))
        assert "expired 6" in await refusal(options)
        file.unlink()
        assert "cannot be read" in await refusal(options)


async def test_an_object_of_the_caller_signs_tokens_with_extensions(provider: TokenServer) -> None:
    """Amazon's signer for MSK does the same; the extensions go to the broker, which ignores them."""

    class Signer:
        calls = 0

        async def token(self) -> str:
            Signer.calls += 1
            return provider.token()

        def extensions(self) -> dict[str, str]:
            return {"region": "eu-central-1"}

    async with broker(provider) as running:
        assert await topics(with_token(running, "") | {"sasl_oauth_token_provider": Signer()}) == set()
        assert Signer.calls >= 1
        error = await refusal(with_token(running, provider.token(exp=int(time.time()) - 90)))
        assert "returned a token that expired 9" in error


def hmac_token(claims: dict[str, Any], key: bytes) -> str:
    """Return a token signed with HS256, encoded by hand because the library refuses a public key as a secret."""
    parts = ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "HS256", "kid": "first"}, claims)
    )
    signature = hmac.digest(key, parts.encode(), "sha256")
    return f"{parts}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def other_signature(token: str) -> str:
    head, body, signature = token.split(".")
    raw = bytearray(base64.urlsafe_b64decode(signature + "=="))
    raw[5] ^= 1
    return f"{head}.{body}.{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"


async def test_the_broker_refuses_every_invalid_token_with_the_same_response(provider: TokenServer) -> None:
    now = int(time.time())
    claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600}
    foreign = TokenServer()
    tokens = {
        "none": unsecured_token(claims),
        "hmac with the public key": hmac_token(claims, provider.key.as_pem(private=False)),
        "another key": foreign.token(),
        "a changed signature": other_signature(provider.token()),
        "another issuer": provider.token(iss="https://evil.example"),
        "another audience": provider.token(aud=["somebody"]),
        "no audience": provider.token(aud=None),
        "no time of issue": provider.token(iat=None),
        "no principal": provider.token(sub=None),
        "no expiry": provider.token(exp=None),
        "not yet valid": provider.token(nbf=now + 600),
        "endless": provider.token(exp=1e300),
        "scopes twice": provider.token(scope=["a", "a"]),
        "no token": "a.b",
    }
    async with broker(provider) as running:
        for name, token in tokens.items():
            assert '{"status":"invalid_token"}' in await refusal(with_token(running, token)), name
        assert await topics(with_token(running, provider.token(aud=["x", AUDIENCE], scope=["a", "b"]))) == set()
        # Within the clock skew of 30 seconds.
        # checked by the client's own clock
        assert "expired" in await refusal(with_token(running, provider.token(exp=now - 10)))


async def test_a_new_key_is_loaded_after_the_first_token_that_names_it(provider: TokenServer) -> None:
    async with broker(provider) as running:
        assert await topics(with_token(running, provider.token())) == set()
        asked = provider.jwks_requests
        provider.publish("second", ECKey)
        await refusal(with_token(running, provider.token()))  # refused, as by Apache Kafka, and the keys are reloaded
        with trio.fail_after(60):
            while provider.jwks_requests == asked:
                await trio.sleep(0.02)
            while True:
                try:
                    assert await topics(with_token(running, provider.token())) == set()
                    break
                except SaslAuthenticationFailedError:
                    await trio.sleep(0.02)
        for number in range(5):  # unknown ids do not make the broker request the keys again and again
            provider.key = RSAKey.generate_key(2048, {"kid": f"invented-{number}"})
            await refusal(with_token(running, provider.token()))
        assert provider.jwks_requests < asked + 5


async def test_a_broker_without_keys_does_not_start(provider: TokenServer) -> None:
    provider.fails = [500, 404]
    with pytest.raises(ConfigurationError, match="answered 404"):
        async with broker(provider):
            pass
    assert provider.jwks_requests == 2  # the first failure was retried once
    provider.published = []
    with pytest.raises(ConfigurationError, match="none of the 0 keys"):
        async with broker(provider):
            pass
    with pytest.raises(ConfigurationError, match=r"is not allowed.*allowed\.urls"):
        async with broker(provider, org_apache_kafka_sasl_oauthbearer_allowed_urls="http://other"):
            pass
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    texts = {"sasl_oauthbearer_jwks_endpoint_url": "", "sasl_server_callback_handler_class": handler}
    with pytest.raises(ConfigurationError, match=r"needs sasl\.oauthbearer\.jwks\.endpoint\.url"):
        async with broker(provider, **texts):
            pass


async def test_the_token_request_is_repeated_only_after_a_transient_failure(provider: TokenServer) -> None:
    async with broker(provider) as running:
        asked = len(provider.requests)
        provider.fails = [503, 500]
        assert await topics(with_endpoint(running, provider)) == set()
        assert len(provider.requests) == asked + 3
        wrong = with_endpoint(running, provider, sasl_oauthbearer_client_credentials_client_secret="guess")
        error = await refusal(wrong)
        assert "answered 401: invalid_client: no such client" in error and "guess" not in error
        assert len(provider.requests) == asked + 4
        provider.fails = [302]
        assert "answered 302" in await refusal(with_endpoint(running, provider))
        for answer, words in (
            (b"no json", "is not JSON"),
            (b"{}", "no access_token"),
            (b'{"access_token": "x"}', "not a JWT"),
        ):
            provider.answer = answer
            assert words in await refusal(with_endpoint(running, provider))


async def test_the_client_re_authenticates_before_its_session_ends_with_the_token(provider: TokenServer) -> None:
    """KIP-368: the token is valid for three seconds, and the broker closes connections that outlive it."""
    provider.lifetime = 3
    async with broker(provider, connections_max_reauth_ms="60000") as running:
        options = with_endpoint(
            running, provider, sasl_login_refresh_min_period_seconds=0, sasl_login_refresh_buffer_seconds=0
        )
        before = len(provider.requests)
        async with triokafka.Producer(**options) as producer:
            offsets = []
            with trio.fail_after(60):
                while len(provider.requests) < before + 3:
                    offsets.append((await (await producer.send("orders", b"value", partition=0))).offset)
                    await trio.sleep(0.05)
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("source", ["file", "function"])
async def test_a_client_that_has_logged_in_waits_for_its_next_token(
    provider: TokenServer, source: str, tmp_path: Path
) -> None:
    """Without a valid token calls time out with the reason, and work again once there is one."""
    file = tmp_path / "token"
    expired = provider.token(exp=1)
    async with broker(provider) as running:
        options = with_token(running, "")
        if source == "file":
            del options["sasl_oauth_token_provider"]
            options["sasl_oauthbearer_token_endpoint_url"] = options["sasl_oauthbearer_allowed_urls"] = file.as_uri()
        else:
            options["sasl_oauth_token_provider"] = file.read_text
        file.write_text(expired)
        assert "expired" in await refusal(options)
        provider.lifetime = 3
        file.write_text(provider.token())
        async with triokafka.AdminClient(**options) as admin:
            await admin.list_topics()
            for bad in (lambda: file.write_text(expired), file.unlink):
                bad()
                assert re.search("no token|token_provider", await _timeout(running, admin))
                file.write_text(provider.token())
                with trio.fail_after(60):
                    await admin.list_topics()


async def _timeout(running: RunningBroker, admin: triokafka.AdminClient) -> str:
    """Cut the connections until a call times out, and return its text; before, the client may have a valid token."""
    with trio.fail_after(60):
        while True:
            running.cut_connections()
            try:
                await admin.list_topics(timeout_ms=500)
            except KafkaTimeoutError as error:
                return str(error)
            except KafkaConnectionError:
                pass


async def test_a_running_client_that_its_provider_refuses_has_failed(provider: TokenServer) -> None:
    secrets = [CLIENTS["alice"], "guess"]
    async with broker(provider) as running:
        options = with_endpoint(running, provider, sasl_oauthbearer_client_credentials_client_secret=lambda: secrets[0])
        provider.lifetime = -30  # the client accepts no such token
        assert "expired" in await refusal(options)
        provider.lifetime = 1
        async with triokafka.AdminClient(**options) as admin:
            await admin.list_topics()
            del secrets[0]
            with trio.fail_after(60), pytest.raises(SaslAuthenticationFailedError, match="no such client"):
                while True:
                    running.cut_connections()
                    with suppress(KafkaConnectionError):
                        await admin.list_topics(timeout_ms=5_000)


async def test_the_event_loop_runs_during_a_slow_token_request(provider: TokenServer) -> None:
    import threading

    thinking = threading.Event()
    asked = threading.Event()

    def wait() -> None:
        asked.set()
        thinking.wait(60)

    async with broker(provider) as running:
        provider.wait = wait
        done = trio.Event()

        async def use() -> None:
            await topics(with_endpoint(running, provider))
            done.set()

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(use)
                while not asked.is_set():
                    await trio.sleep(0.01)
                assert not done.is_set()  # this task runs meanwhile
                thinking.set()
        assert done.is_set()


async def test_tls_to_the_provider_trusts_the_store_in_the_jaas_configuration(tmp_path: Path) -> None:
    authority = trustme.CA()
    trust = tmp_path / "provider.pem"
    authority.cert_pem.write_to_path(str(trust))
    with token_server(authority.issue_cert("127.0.0.1")) as provider:
        jaas = f'OAuthBearerLoginModule required ssl.truststore.location="{trust}";'
        async with broker(provider, sasl_jaas_config=jaas) as running:
            options = with_endpoint(running, provider)
            assert await topics({**options, "sasl_jaas_config": jaas}) == set()
            assert "unable to get local issuer certificate" in await refusal(options)
            assert "ssl.truststore.location: /missing cannot be read" in await refusal(
                {**options, "sasl_jaas_config": jaas.replace(str(trust), "/missing")}
            )


async def test_the_proxy_from_the_environment_is_used(provider: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider plays the proxy, and receives the whole URL."""
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with broker(provider) as running:
        url = "http://login.invalid/token"
        monkeypatch.setenv("HTTP_PROXY", provider.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        options = with_endpoint(
            running, provider, sasl_oauthbearer_token_endpoint_url=url, sasl_oauthbearer_allowed_urls=url
        )
        assert await topics(options) == set()
        monkeypatch.setenv("NO_PROXY", "login.invalid")
        options["sasl_login_retry_backoff_max_ms"] = options["sasl_login_retry_backoff_ms"] = 0
        assert "login.invalid/token cannot be reached" in await refusal(options)


async def test_clients_of_every_interface_share_one_token(provider: TokenServer) -> None:
    """The blocking and the asyncio clients of a process run on one event loop."""
    async with broker(provider) as running:
        before = len(provider.requests)
        tokens = triokafka.token_endpoint(
            sasl_oauthbearer_token_endpoint_url=provider.token_url,
            sasl_oauthbearer_allowed_urls=provider.token_url,
            sasl_oauthbearer_client_credentials_client_id="alice",
            sasl_oauthbearer_client_credentials_client_secret=CLIENTS["alice"],
        )
        options: dict[str, Any] = {
            "bootstrap_servers": running.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": tokens,
        }

        async def with_asyncio() -> None:
            async with AIOKafkaProducer(**options) as producer:
                await producer.send_and_wait("orders", b"x")

        def in_a_thread() -> list[str]:
            asyncio.run(with_asyncio())
            admin = KafkaAdminClient(**options)
            try:
                return list(admin.list_topics())
            finally:
                admin.close()

        with trio.fail_after(60):
            assert await trio.to_thread.run_sync(in_a_thread) == ["orders"]
        assert len(provider.requests) == before + 1
        assert provider.token_url in repr(tokens)
    with pytest.raises(
        ConfigurationError, match="needs sasl_oauth_token_provider or sasl_oauthbearer_token_endpoint_url"
    ):
        triokafka.token_endpoint()
    with pytest.raises(ConfigurationError, match="sasl_oauthbearer_scop"):
        triokafka.token_endpoint(sasl_oauthbearer_scop="x")
