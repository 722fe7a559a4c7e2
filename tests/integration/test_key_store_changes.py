"""Certificates that change while a broker runs: through their files, and by dynamic configuration (KIP-226)."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

import triokafka
from triokafka.client.admin import ConfigResource, ConfigResourceType
from triokafka.errors import InvalidRequestError, TlsAuthenticationError
from triokafka.testing import running_broker
from triokafka.testing.broker import RunningBroker
from triokafka.world.system import RealWorld

HOSTS = ("127.0.0.1", "localhost")
LOCATION = "listener.name.ssl.ssl.keystore.location"


class Certificates:
    """PEM stores of one authority in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = trustme.CA()
        self.trust = directory / "authority.pem"
        self.trust.write_bytes(self.authority.cert_pem.bytes())

    def store(self, name: str, *hosts: str, common_name: str = "broker", by: trustme.CA | None = None) -> str:
        issued = (by or self.authority).issue_cert(
            *(hosts or HOSTS), common_name=common_name, organization_name="o", organization_unit_name="u"
        )
        path = self._directory / name
        path.write_bytes(issued.private_key_pem.bytes() + b"".join(one.bytes() for one in issued.cert_chain_pems))
        return str(path)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@asynccontextmanager
async def broker(certificates: Certificates, store: str) -> AsyncIterator[tuple[RunningBroker, dict[str, Any]]]:
    async with running_broker(
        world=RealWorld(),
        log_dirs=(str(certificates.trust.parent / "data"),),
        listeners=("SSL://127.0.0.1:0",),
        inter_broker_listener_name="SSL",
        security={"ssl.keystore.location": store, "ssl.truststore.location": str(certificates.trust)},
    ) as running:
        options = {"bootstrap_servers": running.bootstrap_servers, "security_protocol": "SSL"}
        yield running, {**options, "ssl_cafile": str(certificates.trust)}


async def served(options: dict[str, Any], authority: Path) -> int:
    """Return the serial number of the certificate that a new connection receives."""
    host, _, port = options["bootstrap_servers"].rpartition(":")
    context = ssl.create_default_context(cafile=str(authority))
    stream = await trio.open_ssl_over_tcp_stream(host, int(port), ssl_context=context)
    await stream.do_handshake()
    found = stream.getpeercert()
    await trio.aclose_forcefully(stream)
    return int(found["serialNumber"], 16)


async def test_new_connections_use_a_changed_file_and_old_ones_continue(certificates: Certificates) -> None:
    store = certificates.store("broker.pem")
    async with broker(certificates, store) as (_, options), triokafka.Producer(**options) as producer:
        await (await producer.send("orders", b"before", partition=0))
        before = await served(options, certificates.trust)
        certificates.store("broker.pem")
        os.utime(store, (1, 1))  # a different modification time, however fast the test is
        assert await served(options, certificates.trust) != before
        await (await producer.send("orders", b"after", partition=0))
        now = await served(options, certificates.trust)
        Path(store).write_text("damaged")
        os.utime(store, (2, 2))
        assert await served(options, certificates.trust) == now


async def test_dynamic_configuration_changes_the_store_of_a_listener(certificates: Certificates) -> None:
    async with broker(certificates, certificates.store("first.pem")) as (running, options):
        this = ConfigResource(ConfigResourceType.BROKER, str(running.config.node_id))
        before = await served(options, certificates.trust)
        async with triokafka.AdminClient(**options) as admin:
            await admin.incremental_alter_configs({this: {LOCATION: certificates.store("second.pem")}})
            with trio.fail_after(20):
                while await served(options, certificates.trust) == before:
                    await trio.sleep(0.01)
            await admin.list_topics()
            entries = (await admin.describe_configs([this]))[this]
            assert entries[LOCATION].value == certificates.store("second.pem")


async def test_stores_that_cannot_be_used_are_refused(certificates: Certificates) -> None:
    """The rules are Kafka's: the same subject, all alternative names, accepted by the other nodes, per listener."""
    async with broker(certificates, certificates.store("first.pem")) as (running, options):
        this = ConfigResource(ConfigResourceType.BROKER, str(running.config.node_id))
        everyone = ConfigResource(ConfigResourceType.BROKER, "")
        before = await served(options, certificates.trust)
        good = certificates.store("good.pem")
        async with triokafka.AdminClient(**options) as admin:
            for resource, name, value, words in (
                (this, LOCATION, "/nowhere.pem", "cannot be read"),
                (this, LOCATION, certificates.store("other.pem", common_name="other"), "DistinguishedName"),
                (this, LOCATION, certificates.store("fewer.pem", HOSTS[0]), "SubjectAltNames"),
                (this, LOCATION, certificates.store("foreign.pem", by=trustme.CA()), "nodes would refuse"),
                (this, "ssl.keystore.location", good, "using the listener prefix"),
                (everyone, LOCATION, good, "broker id must be specified"),
            ):
                with pytest.raises(InvalidRequestError, match=words):
                    await admin.incremental_alter_configs({resource: {name: value}})
            with pytest.raises(InvalidRequestError, match="DistinguishedName"):
                await admin.alter_configs({this: {LOCATION: certificates.store("other.pem", common_name="other")}})
        assert await served(options, certificates.trust) == before


async def test_controller_listener_follows_the_configuration_of_its_node(certificates: Certificates) -> None:
    first = certificates.store("first.pem")
    async with running_broker(
        world=RealWorld(),
        log_dirs=(str(certificates.trust.parent / "data"),),
        listeners=("PLAINTEXT://127.0.0.1:0", "CONTROLLER://127.0.0.1:0"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "CONTROLLER:SSL"),
        security={"ssl.keystore.location": first, "ssl.truststore.location": str(certificates.trust)},
    ) as running:
        registered = running.broker.image.controllers.get(running.config.node_id)
        with trio.fail_after(20):
            while registered is None:
                await trio.sleep(0.01)
                registered = running.broker.image.controllers.get(running.config.node_id)
        (listener,) = registered.end_points
        options = {"bootstrap_servers": f"{listener.host}:{listener.port}"}
        before = await served(options, certificates.trust)
        this = ConfigResource(ConfigResourceType.BROKER, str(running.config.node_id))
        name = "listener.name.controller.ssl.keystore.location"
        async with triokafka.AdminClient(**running.client_options()) as admin:
            await admin.incremental_alter_configs({this: {name: certificates.store("second.pem")}})
        with trio.fail_after(20):
            while await served(options, certificates.trust) == before:
                await trio.sleep(0.01)


async def test_client_uses_a_changed_authority_for_new_connections(certificates: Certificates, tmp_path: Path) -> None:
    store = certificates.store("broker.pem")
    authority = tmp_path / "client-authority.pem"
    authority.write_bytes(trustme.CA().cert_pem.bytes())
    os.utime(authority, (1, 1))
    async with broker(certificates, store) as (_, options):
        own = {**options, "ssl_cafile": str(authority)}
        async with triokafka.AdminClient(**own) as admin:
            with pytest.raises(TlsAuthenticationError):
                await admin.list_topics()
        async with triokafka.AdminClient(**own) as admin:
            authority.write_bytes(certificates.authority.cert_pem.bytes())
            await admin.list_topics()
