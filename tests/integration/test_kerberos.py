"""GSSAPI between our clients and our broker, with a real KDC (RFC 4752)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from tests.support.kdc import REALM, Kdc, needs_kerberos, running_kdc
from triokafka.blocking import KafkaProducer
from triokafka.errors import (
    ConfigurationError,
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
)
from triokafka.security.kerberos.login import KerberosLogin, KerberosSettings
from triokafka.testing import running_broker
from triokafka.testing.blocking import running_broker as blocking_broker

MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        kdc.keytab("broker", "kafka/127.0.0.1")
        kdc.keytab("alice", "alice", "alice/admin", "eve/x")
        kdc.run("kadmin.local", "-q", "addprinc -pw secret bob")
        yield kdc


def keytab_login(kdc: Kdc, keytab: str, principal: str) -> str:
    path = kdc.directory / f"{keytab}.keytab"
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{path}" principal="{principal}@{REALM}";'


def broker_security(kdc: Kdc, rules: str = "DEFAULT") -> dict[str, Any]:
    return {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "inter_broker_listener_name": "SASL_PLAINTEXT",
        "security": {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": rules,
            "gssapi.sasl.jaas.config": keytab_login(kdc, "broker", "kafka/127.0.0.1"),
        },
    }


def client(bootstrap: str, jaas: str | None, **more: Any) -> dict[str, Any]:
    options = {"bootstrap_servers": bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    return {**options, **({} if jaas is None else {"sasl_jaas_config": jaas}), **more}


async def test_client_logs_in_by_keytab_and_by_ticket_cache(kdc: Kdc) -> None:
    kdc.run("kinit", "bob", stdin="secret\n")
    async with running_broker(**broker_security(kdc)) as running:
        for jaas in (keytab_login(kdc, "alice", "alice"), f"{MODULE} required useTicketCache=true;", None):
            options = client(running.bootstrap_servers, jaas)
            async with triokafka.Producer(**options) as producer:
                await (await producer.send("orders", b"x", partition=0))
            async with triokafka.AdminClient(**options) as admin:
                assert "orders" in [topic.name for topic in await admin.list_topics()]


async def test_client_that_has_logged_in_waits_for_a_new_ticket_cache(kdc: Kdc) -> None:
    """Another program renews the cache. Meanwhile calls time out with the reason."""
    cache, away = kdc.directory / "cache", kdc.directory / "away"
    kdc.run("kinit", "bob", stdin="secret\n")
    async with running_broker(**broker_security(kdc)) as running:
        options = client(running.bootstrap_servers, f"{MODULE} required useTicketCache=true;")
        async with triokafka.AdminClient(**options) as admin:
            await admin.list_topics()
            cache.rename(away)
            with trio.fail_after(60), pytest.raises(KafkaTimeoutError, match=r"Kerberos: no credentials|GSSAPI with"):
                while True:
                    running.cut_connections()
                    with suppress(KafkaConnectionError):
                        await admin.list_topics(timeout_ms=500)
            away.rename(cache)
            with trio.fail_after(60):
                await admin.list_topics()
        cache.rename(away)
        async with triokafka.AdminClient(**options) as admin:
            with trio.fail_after(30), pytest.raises(SaslAuthenticationFailedError):
                await admin.list_topics()
        away.rename(cache)


async def test_rules_map_the_principal_and_a_principal_without_a_rule_is_refused(kdc: Kdc) -> None:
    rules = "RULE:[2:$1.$2](alice\\..*)s/\\.admin$/-boss/L,DEFAULT"
    async with running_broker(
        **broker_security(kdc, rules),
        super_users="User:alice-boss;User:kafka",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ) as running:
        boss = client(running.bootstrap_servers, keytab_login(kdc, "alice", "alice/admin"))
        async with triokafka.AdminClient(**boss) as admin:
            await admin.create_topics([triokafka.NewTopic("orders", 1)])
    async with running_broker(**broker_security(kdc, "RULE:[1:$1]")) as running:
        eve = client(running.bootstrap_servers, keytab_login(kdc, "alice", "eve/x"))
        async with triokafka.AdminClient(**eve) as admin:
            with trio.fail_after(30), pytest.raises(SaslAuthenticationFailedError) as raised:
                await admin.list_topics()
            assert "eve" not in str(raised.value)


async def test_refusals_name_the_reason(kdc: Kdc, tmp_path: Path) -> None:
    async with running_broker(**broker_security(kdc)) as running:
        nowhere = f'{MODULE} required useKeyTab=true keyTab="{tmp_path}/none" principal="alice@{REALM}";'
        for options in (
            client(running.bootstrap_servers, nowhere),
            client(running.bootstrap_servers, keytab_login(kdc, "alice", "alice"), sasl_kerberos_service_name="other"),
        ):
            async with triokafka.AdminClient(**options) as admin:
                with trio.fail_after(30), pytest.raises(SaslAuthenticationFailedError):
                    await admin.list_topics()


def test_incomplete_login_text_is_refused() -> None:
    needs_kerberos()
    for text in (
        f"{MODULE} required useKeyTab=true;",
        f"{MODULE} required;",
        'ScramLoginModule required username="a";',
    ):
        with pytest.raises(ConfigurationError):
            triokafka.AdminClient(**client("localhost:1", text))


def test_login_by_keytab_is_renewed_in_the_last_part_of_its_lifetime(kdc: Kdc) -> None:
    keytab = str(kdc.directory / "alice.keytab")
    login = KerberosLogin(KerberosSettings(principal=f"alice@{REALM}", keytab=keytab))
    first = login.initiate(now=100.0)
    assert 0 < first.lifetime <= 3600
    assert login.initiate(now=100.0 + 0.7 * first.lifetime) is first
    assert login.initiate(now=100.0 + 0.9 * first.lifetime) is not first


def test_login_does_not_use_the_tickets_of_an_earlier_one(kdc: Kdc, tmp_path: Path) -> None:
    """Caches in memory outlive the logins that filled them."""
    keytab = shutil.copy(kdc.directory / "alice.keytab", tmp_path / "changing.keytab")
    for _ in range(20):  # objects that follow each other often have the same id
        login = KerberosLogin(KerberosSettings(principal=f"alice@{REALM}", keytab=str(keytab)))
        login.initiate(now=0.0)
        del login
        with pytest.raises(SaslAuthenticationFailedError):
            KerberosLogin(KerberosSettings(principal=f"alice@{REALM}", keytab=f"{tmp_path}/none")).initiate(now=0.0)
    unnamed = KerberosSettings(keytab=str(keytab))
    assert str(KerberosLogin(unnamed).initiate(now=0.0).name) == f"alice@{REALM}"
    shutil.copy(kdc.directory / "broker.keytab", keytab)
    assert str(KerberosLogin(unnamed).initiate(now=0.0).name) == f"kafka/127.0.0.1@{REALM}"


def test_blocking_client_takes_kafka_pythons_options(kdc: Kdc) -> None:
    kdc.run("kinit", "bob", stdin="secret\n")
    with blocking_broker(**broker_security(kdc)) as running:
        for more in ({"sasl_kerberos_service_name": "kafka"}, {"sasl_kerberos_name": f"kafka/127.0.0.1@{REALM}"}):
            producer = KafkaProducer(**client(running.bootstrap_servers, None, **more))
            producer.send("orders", b"x", partition=0).get(30)
            producer.close()
