"""TLS and SASL between the SDK's clients and the broker, and the message of each refusal."""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

import triokafka
from triokafka.client.admin.users import UserScramCredentialUpsertion
from triokafka.errors import (
    AuthenticationError,
    ConfigurationError,
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    SecurityProtocolMismatchError,
    TlsAuthenticationError,
    UnsupportedSaslMechanismError,
)
from triokafka.security.sasl.mechanism import MECHANISMS
from triokafka.security.sasl.oauthbearer import unsecured_token
from triokafka.security.scram_credentials import ScramMechanism
from triokafka.structs import Node
from triokafka.testing import running_broker
from triokafka.testing.broker import RunningBroker
from triokafka.world.system import RealWorld

USERS = {"alice": 'secret, of "alice"', "bob=b": "other"}


@asynccontextmanager
async def broker(*, tls: bool, sasl: bool, **options: Any) -> AsyncIterator[RunningBroker]:
    async with running_broker(tls=tls, users=USERS if sasl else {}, **options) as running:
        yield running


async def round_trip(options: dict[str, Any], value: bytes = b"value") -> None:
    async with triokafka.Producer(**options) as producer:
        await (await producer.send("orders", value, partition=0))
    async with triokafka.Consumer("orders", auto_offset_reset="earliest", **options) as consumer:
        with trio.fail_after(30):
            async for record in consumer:
                assert record.value == value
                break


async def refusal(options: dict[str, Any]) -> Exception:
    with trio.fail_after(20), pytest.raises(AuthenticationError) as raised:
        async with triokafka.AdminClient(**options) as admin:
            await admin.list_topics()
    return raised.value


@pytest.mark.parametrize("tls", [False, True])
async def test_records_of_all_sizes_go_through_every_mechanism(tls: bool) -> None:
    async with broker(tls=tls, sasl=True) as running:
        for mechanism, size in zip(MECHANISMS, (0, 1, 20_000, 900_000), strict=True):
            for user in USERS:
                options = running.client_options(user, mechanism=mechanism)
                async with triokafka.Producer(**options, max_request_size=2 << 20) as producer:
                    meta = await (await producer.send("orders", bytes(size), partition=0))
                async for value in _read(options, meta.offset):
                    assert value == bytes(size)


async def _read(options: dict[str, Any], offset: int) -> AsyncIterator[bytes | None]:
    async with triokafka.Consumer(**options) as consumer:
        partition = triokafka.TopicPartition("orders", 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        with trio.fail_after(30):
            async for record in consumer:
                yield record.value
                return


async def test_tls_alone_needs_no_login() -> None:
    async with broker(tls=True, sasl=False) as running:
        await round_trip(running.client_options())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_wrong_password_and_unknown_user_get_the_same_error(mechanism: str) -> None:
    async with broker(tls=False, sasl=True) as running:
        good = running.client_options(mechanism=mechanism)
        wrong = await refusal({**good, "sasl_password": "guess"})
        unknown = await refusal({**good, "sasl_username": "mallory"})
        assert type(wrong) is type(unknown) is SaslAuthenticationFailedError
        assert str(wrong) == str(unknown)
        assert "guess" not in str(wrong)


async def test_refused_login_is_one_line_in_the_log_and_one_error(caplog: pytest.LogCaptureFixture) -> None:
    async with broker(tls=False, sasl=True) as running:
        caplog.clear()
        options = {**running.client_options(mechanism="SCRAM-SHA-512"), "sasl_password": "guess"}
        with trio.fail_after(20), pytest.raises(SaslAuthenticationFailedError):
            async with triokafka.Producer(**options) as producer:
                await producer.send("orders", b"x", partition=0)
        lines = [one for one in caplog.records if one.levelname == "ERROR"]
        assert [(one.name, one.exc_info) for one in lines] == [("triokafka.client.producer.producer", None)]
        assert "guess" not in caplog.text


async def test_only_the_owner_can_read_the_metadata_log(tmp_path: Path) -> None:
    """The log contains SCRAM keys and passwords of key stores. Topics have the usual file mode, as in Kafka."""
    data = str(tmp_path / "data")
    async with (
        running_broker(world=RealWorld(), log_dirs=(data,)) as running,
        triokafka.AdminClient(**running.client_options()) as admin,
    ):
        await admin.create_topics([triokafka.NewTopic("orders", 1)])
    modes = {path: path.stat().st_mode & 0o777 for path in Path(data).rglob("*") if path.is_file()}
    usual = 0o644 & ~_umask()
    secret = {path.name: mode for path, mode in modes.items() if path.parent.name == "__cluster_metadata-0"}
    assert "00000000000000000000.log" in secret
    assert {name: mode for name, mode in secret.items() if mode != 0o600} == {"quorum-state": usual}
    assert modes[tmp_path / "data" / "orders-0" / "00000000000000000000.log"] == usual


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


async def test_failed_login_is_final_for_the_client_and_delayed_by_the_broker() -> None:
    async with broker(tls=False, sasl=True, connection_failed_authentication_delay_ms=300) as running:
        options = {**running.client_options(), "sasl_password": "guess"}
        async with triokafka.AdminClient(**options) as admin:
            began = time.monotonic()
            for _ in range(3):
                with pytest.raises(SaslAuthenticationFailedError):
                    await admin.list_topics()
            assert time.monotonic() - began > 0.3
            assert running.broker.sockets.connection_count <= 1


async def test_error_about_a_disabled_mechanism_lists_the_enabled_ones() -> None:
    async with broker(tls=False, sasl=True) as running:
        broker_security = dict(running.config.security or {})
        broker_security["sasl.enabled.mechanisms"] = "PLAIN"
        options = running.client_options()
    async with broker(tls=False, sasl=True, security=broker_security) as running:
        error = await refusal({**options, "bootstrap_servers": running.bootstrap_servers})
        assert isinstance(error, UnsupportedSaslMechanismError)
        assert "it offers PLAIN" in str(error)


async def test_new_user_in_the_clusters_metadata_can_log_in_at_once() -> None:
    """KIP-554."""
    async with broker(tls=True, sasl=True) as running:
        options = {**running.client_options(), "sasl_username": "carol", "sasl_password": "her own"}
        assert isinstance(await refusal(options), SaslAuthenticationFailedError)
        change = UserScramCredentialUpsertion("carol", ScramMechanism.SCRAM_SHA_256, "her own")
        async with triokafka.AdminClient(**running.client_options("alice")) as admin:
            await admin.alter_user_scram_credentials([change])
        await round_trip(options)


async def test_expired_token_is_refused() -> None:
    async with broker(tls=False, sasl=True) as running:
        options = running.client_options(mechanism="OAUTHBEARER")
        del options["sasl_jaas_config"]
        expired = unsecured_token({"sub": "alice", "exp": 1})
        error = await refusal({**options, "sasl_oauth_token_provider": lambda: expired})
        assert isinstance(error, SaslAuthenticationFailedError)

        async def fresh() -> str:
            return unsecured_token({"sub": "alice", "exp": 1 << 40})

        await round_trip({**options, "sasl_oauth_token_provider": fresh})


class CountedLogins(triokafka.Hooks):
    """Counts a client's requests to log in, two for each login with SCRAM, and its lost connections to brokers."""

    def __init__(self) -> None:
        self.count = 0
        self.lost: list[Exception] = []

    def on_request(self, node: Node, api: str, version: int, size: int) -> None:
        self.count += api == "SaslAuthenticate"

    def on_disconnect(self, node: Node, error: Exception) -> None:
        if node.node_id >= 0:  # the bootstrap connection is closed on purpose
            self.lost.append(error)


async def test_client_authenticates_again_without_losing_requests() -> None:
    """KIP-368."""
    security = {"connections.max.reauth.ms": "3000"}
    async with broker(tls=True, sasl=True) as first:
        texts = {**(first.config.security or {}), **security}
        options = first.client_options("alice")
        keep = first._security  # keeps the certificates of the options alive
    async with broker(tls=True, sasl=True, security=texts) as running:
        assert keep is not None
        options |= {"bootstrap_servers": running.bootstrap_servers}
        logins = CountedLogins()
        async with triokafka.Producer(**options, linger_ms=0, hooks=[logins]) as producer:
            offsets = []
            with trio.fail_after(60):
                while logins.count < 8:  # two for each of the first two connections, and for two renewals
                    offsets.append((await (await producer.send("orders", b"x", partition=0))).offset)
                    await trio.sleep(0.01)
            assert not logins.lost
        assert offsets == list(range(len(offsets)))


async def test_expired_session_is_closed() -> None:
    from triokafka.protocol.api.metadata import MetadataRequest

    async with broker(tls=False, sasl=True) as first:
        texts = {**(first.config.security or {}), "connections.max.reauth.ms": "1000"}
    async with broker(tls=False, sasl=True, security=texts) as running:
        from tests.support.sasl_talk import SaslTalk

        async with SaslTalk(running.bootstrap_servers) as talk:
            lifetime = await talk.log_in("alice", USERS["alice"])
            assert 0 < lifetime <= 1000
            answers = 0
            with trio.fail_after(60):
                while await talk.ask(MetadataRequest(topics=[]), 9) is not None:
                    answers += 1
            assert answers > 0


async def test_unknown_authority_and_wrong_host_name_are_refused() -> None:
    async with broker(tls=True, sasl=False) as running:
        options = running.client_options()
        foreign = trustme.CA().cert_pem.bytes().decode()
        error = await refusal({**options, "ssl_cafile": foreign})
        assert isinstance(error, TlsAuthenticationError)
    authority = trustme.CA()
    other = authority.issue_cert("kafka.example.org")
    texts = {
        "ssl.keystore.key": other.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": other.cert_chain_pems[0].bytes().decode(),
    }
    async with broker(tls=True, sasl=False, security=texts) as running:
        options = {
            "bootstrap_servers": running.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": authority.cert_pem.bytes().decode(),
        }
        error = await refusal(options)
        assert isinstance(error, TlsAuthenticationError)
        assert "not valid for '127.0.0.1'" in str(error)
        await round_trip({**options, "ssl_check_hostname": False})


async def test_listener_that_requires_a_certificate_maps_it_to_a_principal() -> None:
    authority, clients = trustme.CA(), trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    client = clients.issue_cert("app@example.org", common_name="orders-app", organization_name="Shop")
    texts = {
        "ssl.keystore.key": server.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": server.cert_chain_pems[0].bytes().decode(),
        "ssl.truststore.certificates": clients.cert_pem.bytes().decode(),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/U,DEFAULT",
    }
    async with broker(tls=True, sasl=False, security=texts) as running:
        options: dict[str, Any] = {
            "bootstrap_servers": running.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": authority.cert_pem.bytes().decode(),
        }
        error = await refusal(options)
        assert isinstance(error, TlsAuthenticationError)
        assert "certificate required" in str(error)
        own: dict[str, Any] = {
            "ssl_certfile": client.cert_chain_pems[0].bytes().decode(),
            "ssl_keyfile": client.private_key_pem.bytes().decode(),
        }
        async with triokafka.AdminClient(**options, **own) as admin:
            await admin.list_topics()
            principals = {connection.principal for connection in running.broker.sockets._connections}
            assert "User:ORDERS-APP" in principals


async def test_certificate_without_a_rule_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("app@example.org", common_name="app")
    texts = {
        "ssl.keystore.key": server.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": server.cert_chain_pems[0].bytes().decode(),
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^OU=([^,]+)$/$1/",
    }
    context = ssl.create_default_context()
    authority.configure_trust(context)
    client.configure_cert(context)
    async with broker(tls=True, sasl=False, security=texts) as running:
        host, port = running.bootstrap_servers.split(":")
        stream = await trio.open_ssl_over_tcp_stream(host, int(port), ssl_context=context)
        with trio.fail_after(30), contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some(1) == b""
    assert "no rule of ssl.principal.mapping.rules applies to 'CN=app," in caplog.text


async def test_callers_own_ssl_context_is_used_unchanged() -> None:
    async with broker(tls=True, sasl=False) as running:
        options = running.client_options()
        context = ssl.create_default_context(cadata=options.pop("ssl_cafile"))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        await round_trip({**options, "ssl_context": context})


WRONG = [
    ("PLAINTEXT", "SSL", SecurityProtocolMismatchError, "without TLS"),
    ("PLAINTEXT", "SASL_PLAINTEXT", IllegalSaslStateError, "has no SASL"),
    ("SSL", "PLAINTEXT", SecurityProtocolMismatchError, "expects TLS"),
    ("SASL_PLAINTEXT", "PLAINTEXT", SecurityProtocolMismatchError, "expects SASL"),
    ("SASL_SSL", "SSL", SecurityProtocolMismatchError, "expects SASL"),
    ("SASL_SSL", "PLAINTEXT", SecurityProtocolMismatchError, "expects TLS"),
]


@pytest.mark.parametrize(("listener", "client", "kind", "words"), WRONG)
async def test_wrong_security_protocol_is_named(listener: str, client: str, kind: type[Exception], words: str) -> None:
    async with broker(tls=listener.endswith("SSL"), sasl=listener.startswith("SASL")) as running:
        options = {
            **running.client_options(),
            "security_protocol": client,
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": "x",
        }
        error = await refusal(options)
        assert isinstance(error, kind)
        assert words in str(error)


async def test_blocking_clients_take_kafka_pythons_names() -> None:
    from triokafka.blocking import KafkaConsumer, KafkaProducer

    async with broker(tls=True, sasl=True) as running:
        context = ssl.create_default_context(cadata=running.client_options()["ssl_cafile"])
        options: dict[str, Any] = {
            "bootstrap_servers": running.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_context": context,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "alice",
            "sasl_plain_password": USERS["alice"],
        }

        def program() -> bytes:
            with KafkaProducer(**options) as producer:
                producer.send("orders", b"blocking").get(30)
            with KafkaConsumer("orders", auto_offset_reset="earliest", **options) as consumer:
                return bytes(next(iter(consumer)).value)

        assert await trio.to_thread.run_sync(program) == b"blocking"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"security_protocol": "SSL", "ssl_cafile": "/nowhere/ca.pem"}, "ssl_cafile: /nowhere/ca.pem cannot be read"),
        ({"security_protocol": "SSL", "ssl_ciphers": "rot13"}, "OpenSSL knows none of these"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "a"}, "needs sasl_password"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "needs sasl_oauth_token_provider"),
        ({"sasl_mechanism": "CRAM-MD5"}, "'SCRAM-SHA-512'"),
    ],
)
async def test_incomplete_options_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace("(", r"\(")):
        async with triokafka.Producer(**options):
            pass
