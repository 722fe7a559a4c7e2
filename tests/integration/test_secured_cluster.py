"""Three nodes with SASL_SSL between all of them: certificates and logins are replaced under load without a
lost record.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trustme

import triokafka
from tests.support.secured_cluster import MECHANISM, NODES, SecuredCluster
from triokafka.client.admin import NewTopic, ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
from triokafka.errors import KafkaError, SaslAuthenticationFailedError, TlsAuthenticationError

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

LONGEST_OUTAGE = 30.0
"""Seconds without an acknowledgement, on a busy machine; a leader that stops takes about one."""


class Load:
    """A producer that sends consecutive numbers, and records the acknowledged ones and the longest wait."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.longest = 0.0
        self.done = False

    async def run(self, producer: triokafka.Producer) -> None:
        """Send until ``done``."""
        number = 0
        while not self.done:
            began = trio.current_time()
            await (await producer.send("orders", b"%d" % number))
            self.longest = max(self.longest, trio.current_time() - began)
            self.acknowledged.append(number)
            number += 1
            await trio.sleep(0.005)

    async def more(self) -> None:
        """Wait until more records have been acknowledged."""
        wanted = len(self.acknowledged) + 50
        with trio.fail_after(90):
            while len(self.acknowledged) < wanted:
                await trio.sleep(0.05)


async def test_certificates_and_logins_are_replaced_under_load(tmp_path: Path) -> None:
    users = {"admin": "admin-1", "alice": "alice-1", "node-old": "old-1", "node-new": "new-1"}
    passwords = dict(users)
    cluster = SecuredCluster(tmp_path, users, "node-old")
    cluster.format()
    try:
        async with trio.open_nursery() as nursery:
            for node in cluster.nodes:
                nursery.start_soon(trio.to_thread.run_sync, node.start)
        load, replacement = Load(), trustme.CA()
        options = cluster.client_options("alice", lambda: passwords["alice"])
        admin_options = cluster.client_options("admin", lambda: passwords["admin"])
        async with triokafka.AdminClient(**admin_options) as admin:
            await admin.create_topics([NewTopic("orders", 3, NODES)])
        async with (
            triokafka.Producer(**options, acks="all", delivery_timeout_ms=120_000) as producer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(load.run, producer)
            await load.more()
            # A user's password: sessions continue, and the next login needs the new one.
            async with triokafka.AdminClient(**admin_options) as admin:
                change = UserScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_512, "alice-2")
                await admin.alter_user_scram_credentials([change])
            passwords["alice"] = "alice-2"
            await load.more()
            # Certificates: trust both authorities, replace the certificates, then trust only the new authority.
            cluster.trust_only([cluster.authority, replacement])
            for number in range(1, NODES + 1):
                cluster.replace_certificate(number, replacement)
                await load.more()
            # The nodes' own login, and connections with the old credentials: the nodes are restarted one after the
            # other.
            for number, node in enumerate(cluster.nodes, start=1):
                cluster.write_config(number, "node-new")
                assert await trio.to_thread.run_sync(node.stop) == 0
                await load.more()
                await trio.to_thread.run_sync(node.start)
                await _until_in_sync(admin_options)
                await load.more()
            cluster.trust_only([replacement])
            async with triokafka.AdminClient(**admin_options) as admin:
                await admin.alter_user_scram_credentials([_removal("node-old")])
            await load.more()
            load.done = True
        assert load.longest < LONGEST_OUTAGE
        assert await _read(options, len(load.acknowledged)) >= set(load.acknowledged)
        await _refused(cluster, tmp_path)
    finally:
        cluster.close()
    for number in range(1, NODES + 1):
        assert "Traceback" not in cluster.log_of(number), cluster.log_of(number)[-3000:]


def _removal(user: str) -> UserScramCredentialDeletion:
    return UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_512)


async def _until_in_sync(options: dict[str, object]) -> None:
    with trio.fail_after(120):
        while True:
            try:
                async with triokafka.AdminClient(**options) as admin:  # type: ignore[arg-type]
                    topic = (await admin.describe_topics(["orders"]))["orders"]
                    if all(len(partition.isr) == NODES for partition in topic.partitions):
                        return
            except KafkaError:
                pass  # the node has not started yet
            await trio.sleep(0.2)


async def _read(options: dict[str, object], wanted: int) -> set[int]:
    found: set[int] = set()
    consumer = triokafka.Consumer("orders", auto_offset_reset="earliest", group_id="check", **options)  # type: ignore[arg-type]
    async with consumer:
        with trio.fail_after(60):
            async for record in consumer:
                found.add(int(record.value or b"-1"))
                if len(found) >= wanted:
                    break
    return found


async def _refused(cluster: SecuredCluster, directory: Path) -> None:
    """Check that replaced credentials are refused."""
    with pytest.raises(SaslAuthenticationFailedError):
        async with triokafka.AdminClient(**cluster.client_options("alice", "alice-1")) as admin:
            await admin.list_topics()
    with pytest.raises(SaslAuthenticationFailedError):
        async with triokafka.AdminClient(**cluster.client_options("node-old", "old-1")) as admin:
            await admin.list_topics()
    former = directory / "former.pem"
    former.write_bytes(cluster.authority.cert_pem.bytes())
    options = {**cluster.client_options("admin", "admin-1"), "ssl_cafile": str(former)}
    with pytest.raises(TlsAuthenticationError):
        async with triokafka.AdminClient(**options) as admin:
            await admin.list_topics()
    assert options["sasl_mechanism"] == MECHANISM
