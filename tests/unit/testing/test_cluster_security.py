"""TLS and users of a test's cluster."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import SaslAuthenticationFailedError, SecurityProtocolMismatchError
from triokafka.testing import running_cluster
from triokafka.testing.blocking import running_cluster as blocking_cluster

USERS = {"alice": "secret", "bob": "other"}


async def round_trip(options: dict[str, Any], **more: Any) -> None:
    async with triokafka.Producer(**options, **more, acks="all") as producer:
        await (await producer.send("orders", b"two coffees", partition=0))
    async with triokafka.Consumer(
        "orders", auto_offset_reset="earliest", group_id="bar", **options, **more
    ) as consumer:
        with trio.fail_after(60):
            async for record in consumer:
                assert record.value == b"two coffees"
                break


async def test_secured_cluster_replicates_and_serves_its_users() -> None:
    async with running_cluster(nodes=3, tls=True, users=USERS, min_insync_replicas=3) as cluster:
        await cluster.create_topic("orders", partitions=1)
        await round_trip(cluster.client_options("bob", mechanism="SCRAM-SHA-512"))
        with pytest.raises(SaslAuthenticationFailedError):
            await round_trip({**cluster.client_options(), "sasl_password": "guess"})
        with pytest.raises(SecurityProtocolMismatchError):
            await round_trip({"bootstrap_servers": cluster.bootstrap_servers})


@pytest.mark.parametrize("users", [{}, USERS], ids=["tls", "tls and users"])
@simulated
async def test_secured_cluster_runs_on_the_hosts_of_a_simulation(users: dict[str, str]) -> None:
    simulation = current_simulation()
    async with running_cluster(nodes=2, simulation=simulation, tls=True, users=users) as cluster:
        await cluster.create_topic("orders", partitions=1)
        await round_trip(cluster.client_options(), world=simulation.host("client").world)


def test_cluster_in_a_thread_gives_the_options_of_a_client() -> None:
    with blocking_cluster(nodes=1, users=USERS) as cluster:
        options = cluster.client_options("bob", mechanism="PLAIN")
        assert options == {
            "bootstrap_servers": cluster.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "bob",
            "sasl_password": "other",
        }
