"""OAUTHBEARER with an identity provider in both directions: Java's clients with our broker, ours with Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.interop import jvm
from tests.interop.test_security import TOPICS, properties
from tests.support.token_server import AUDIENCE, CLIENTS, ISSUER, TokenServer, token_server
from triokafka.blocking import KafkaAdminClient
from triokafka.cli.cluster.free_ports import free_ports
from triokafka.errors import SaslAuthenticationFailedError
from triokafka.security.sasl.oauthbearer import unsecured_token
from triokafka.testing.blocking import running_broker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module")
def provider() -> Iterator[TokenServer]:
    with token_server() as server, pytest.MonkeyPatch.context() as patch:
        urls = f"{server.token_url},{server.jwks_url}"
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}")
        yield server


def broker_texts(provider: TokenServer) -> dict[str, str]:
    return {
        "sasl.oauthbearer.jwks.endpoint.url": provider.jwks_url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }


def test_java_logs_in_to_our_broker_with_tokens_of_a_provider(provider: TokenServer, tmp_path: Path) -> None:
    texts = {
        **broker_texts(provider),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": provider.jwks_url,
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "connections.max.reauth.ms": "2000",
    }
    listener: dict[str, Any] = {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "inter_broker_listener_name": "SASL_PLAINTEXT",
    }
    with running_broker(security=texts, **listener) as broker:

        def command(secret: str) -> str:
            return properties(
                tmp_path / "client.properties",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauthbearer_token_endpoint_url=provider.token_url,
                sasl_oauthbearer_client_credentials_client_id="alice",
                sasl_oauthbearer_client_credentials_client_secret=secret,
                sasl_login_callback_handler_class=f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
                sasl_jaas_config=f'{LOGIN_MODULE} required extension_logicalCluster="lkc";',
            )

        arguments = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", command(CLIENTS["alice"]))
        jvm.run_java(TOPICS, *arguments, "--create", "--topic", "of-java")
        foreign = TokenServer()
        provider.key, good = foreign.key, provider.key
        try:
            with pytest.raises(AssertionError, match="SaslAuthenticationException"):
                jvm.run_java(TOPICS, *arguments, "--list")
        finally:
            provider.key = good


@pytest.mark.parametrize("grant", ["ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever"])
def test_assertions_equal_those_of_java(
    provider: TokenServer, grant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token request with a signed assertion has the same fields, and the same claims with the same types."""
    key = RSAKey.generate_key(2048)
    key_file, template = tmp_path / "key.pem", tmp_path / "template.json"
    key_file.write_bytes(key.as_pem(private=True))
    template.write_text('{"header": {"kid": "k"}, "payload": {"tenant": "t", "sub": "of the template"}}')
    monkeypatch.setattr(provider, "assertion_keys", [key])
    names = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    java_options = f"{names}.urls={provider.token_url} {names}.files={key_file},{template}"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", java_options)
    texts = {
        **broker_texts(provider),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": provider.jwks_url,
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    }
    settings = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": provider.token_url,
        "sasl_oauthbearer_jwt_retriever_class": f"{PACKAGE}.{grant}",
        "sasl_oauthbearer_scope": "read write",
        "sasl_oauthbearer_client_credentials_client_id": "the client",
        "sasl_oauthbearer_assertion_private_key_file": str(key_file),
        "sasl_oauthbearer_assertion_template_file": str(template),
        "sasl_oauthbearer_assertion_claim_iss": "issuer",
        "sasl_oauthbearer_assertion_claim_sub": "alice",
        "sasl_oauthbearer_assertion_claim_aud": "token endpoint",
    }
    listener: dict[str, Any] = {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "inter_broker_listener_name": "SASL_PLAINTEXT",
    }
    with running_broker(security=texts, **listener) as broker:
        file = properties(
            tmp_path / "client.properties",
            **settings,
            sasl_login_callback_handler_class=f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
            sasl_jaas_config=f"{LOGIN_MODULE} required;",
            sasl_oauthbearer_assertion_claim_jti_include="true",
        )
        jvm.run_java(TOPICS, "--bootstrap-server", broker.bootstrap_servers, "--command-config", file, "--list")
        of_java = provider.requests[-1]
        topics(
            broker.bootstrap_servers,
            **{name: value for name, value in settings.items() if name not in ("security_protocol", "sasl_mechanism")},
            sasl_oauthbearer_assertion_claim_jti_include=True,
            sasl_oauthbearer_allowed_urls=provider.token_url,
            sasl_oauthbearer_allowed_files=f"{key_file},{template}",
        )
        ours = provider.requests[-1]
    assertion = "assertion" if grant.startswith("JwtBearer") else "client_assertion"
    tokens = [jwt.decode(form.pop(assertion), key, algorithms=["RS256"]) for form in (of_java, ours)]
    assert of_java == ours
    assert tokens[0].header == tokens[1].header
    kinds = [
        {
            name: value if isinstance(value, str) and name != "jti" else type(value)
            for name, value in token.claims.items()
        }
        for token in tokens
    ]
    assert kinds[0] == kinds[1]
    for claims in (token.claims for token in tokens):
        assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]) == (300, 60)


@pytest.fixture(scope="module")
def kafka(provider: TokenServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    plaintext, sasl, controller = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{plaintext},TOKENS://127.0.0.1:{sasl}"
    prefix = "listener_name_tokens_oauthbearer"
    settings = {
        "controller_quorum_voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised_listeners": listeners,
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TOKENS:SASL_PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "connections_max_reauth_ms": "2000",
        f"{prefix}_sasl_jaas_config": f"{LOGIN_MODULE} required;",
        f"{prefix}_sasl_server_callback_handler_class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        **{name.replace(".", "_"): value for name, value in broker_texts(provider).items()},
    }
    directory = tmp_path_factory.mktemp("oauth")
    with jvm.apache_kafka(directory, port=plaintext, **settings):
        yield f"127.0.0.1:{sasl}"


def topics(kafka: str, **options: Any) -> list[str]:
    admin = KafkaAdminClient(
        bootstrap_servers=kafka, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", **options
    )
    try:
        return list(admin.list_topics())
    finally:
        admin.close()


def test_our_client_logs_in_to_apache_kafka_with_tokens_of_a_provider(kafka: str, provider: TokenServer) -> None:
    assert (
        topics(
            kafka,
            sasl_oauthbearer_token_endpoint_url=provider.token_url,
            sasl_oauthbearer_allowed_urls=provider.token_url,
            sasl_jaas_config=f'{LOGIN_MODULE} required clientId="alice" clientSecret="{CLIENTS["alice"]}";',
        )
        == []
    )


def test_apache_kafka_takes_and_refuses_the_same_tokens_as_our_broker(kafka: str, provider: TokenServer) -> None:
    now = int(time.time())
    tokens = {
        "good": provider.token(),
        "several audiences": provider.token(aud=["other", AUDIENCE], scope=["a", "b"]),
        "issued later": provider.token(iat=now + 300),
        "none": unsecured_token({"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600}),
        "another key": TokenServer().token(),
        "another issuer": provider.token(iss="https://evil.example"),
        "another audience": provider.token(aud="somebody"),
        "no audience": provider.token(aud=None),
        "no time of issue": provider.token(iat=None),
        "no principal": provider.token(sub=None),
        "blank principal": provider.token(sub=" "),
        "scopes twice": provider.token(scope=["a", "a"]),
        "not yet valid": provider.token(nbf=now + 300),
        "expires before its issue": provider.token(iat=now + 300, exp=now + 200),
    }
    texts = {
        **broker_texts(provider),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": provider.jwks_url,
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    }
    listener: dict[str, Any] = {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "inter_broker_listener_name": "SASL_PLAINTEXT",
    }

    def decisions(servers: str) -> dict[str, str]:
        found = {}
        for name, token in tokens.items():
            try:
                topics(servers, sasl_oauth_token_provider=lambda token=token: token)
                found[name] = "taken"
            except SaslAuthenticationFailedError as error:
                found[name] = str(error).partition("OAUTHBEARER: ")[2]
        return found

    with running_broker(security=texts, **listener) as broker:
        ours = decisions(broker.bootstrap_servers)
    assert decisions(kafka) == ours
    assert [name for name, result in ours.items() if result == "taken"] == ["good", "several audiences", "issued later"]
