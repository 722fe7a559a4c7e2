"""An admin client, and commands, that connect to the controllers of a cluster instead of its brokers (KIP-919)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import triokafka
from triokafka import TopicPartition
from triokafka.cli.app import run
from triokafka.client.admin import ConfigResource, QuotaEntity
from triokafka.errors import (
    ConfigurationError,
    MismatchedEndpointTypeError,
    UnsupportedEndpointTypeError,
    UnsupportedVersionError,
)
from triokafka.testing import RunningCluster, running_cluster
from triokafka.testing.blocking import running_cluster as blocking_cluster

PATIENCE = 60


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[RunningCluster, list[str]]]:
    """Run three nodes; yield the addresses of their controllers."""
    async with running_cluster(nodes=3) as running:
        async with triokafka.AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
            quorum = await admin.describe_metadata_quorum()
        yield running, [node.address for voter in sorted(quorum.nodes) for node in quorum.nodes[voter]]


async def test_the_active_controller_describes_and_changes_the_cluster(
    cluster: tuple[RunningCluster, list[str]],
) -> None:
    running, controllers = cluster
    with trio.fail_after(PATIENCE):
        for address in controllers:  # one of them is enough
            async with triokafka.AdminClient(bootstrap_controllers=address) as admin:
                described = await admin.describe_cluster()
                assert [node.address for node in described.nodes] == controllers
                assert described.controller is not None
                assert described.controller.node_id == running.active_controller
                assert (await admin.describe_metadata_quorum()).leader_id == running.active_controller
        async with triokafka.AdminClient(bootstrap_controllers=controllers) as admin:
            assert "metadata.version" in (await admin.describe_features()).finalized
            for number in (1, 2, 3):  # the active controller changes them all
                await admin.incremental_alter_configs({ConfigResource.broker(number): {"log.cleaner.threads": "2"}})
            await admin.alter_client_quotas({QuotaEntity.of(user="alice"): {"producer_byte_rate": 1000.0}})
            assert await admin.list_partition_reassignments() == {}
            await admin.create_topics([triokafka.NewTopic("orders", 2)])
        async with triokafka.AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
            for number in (1, 2, 3):
                resource = ConfigResource.broker(number)
                assert (await admin.describe_configs([resource]))[resource]["log.cleaner.threads"].value == "2"
            assert len((await admin.describe_topics(["orders"]))["orders"].partitions) == 2


async def test_calls_continue_when_the_active_controller_dies(cluster: tuple[RunningCluster, list[str]]) -> None:
    running, controllers = cluster
    with trio.fail_after(PATIENCE):
        async with triokafka.AdminClient(bootstrap_controllers=controllers) as admin:
            before = running.active_controller
            await admin.describe_metadata_quorum()
            await running.kill(before)
            assert (await admin.describe_metadata_quorum()).leader_id not in (-1, before)


async def test_calls_that_need_brokers_are_refused_at_once(cluster: tuple[RunningCluster, list[str]]) -> None:
    running, controllers = cluster
    with trio.fail_after(PATIENCE):
        async with triokafka.AdminClient(bootstrap_controllers=controllers, default_api_timeout_ms=600_000) as admin:
            with pytest.raises(UnsupportedEndpointTypeError, match="needs brokers"):
                (await admin.list_offsets({TopicPartition("orders", 0): -1}))[TopicPartition("orders", 0)]
            with pytest.raises(UnsupportedEndpointTypeError, match="needs brokers"):
                (await admin.describe_groups(["billing"]))["billing"]
            with pytest.raises(UnsupportedVersionError):
                await admin.list_topics()
        brokers = running.bootstrap_servers
        async with triokafka.AdminClient(bootstrap_controllers=brokers, default_api_timeout_ms=600_000) as admin:
            with pytest.raises(MismatchedEndpointTypeError):
                await admin.describe_cluster()


def test_brokers_and_controllers_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="exclude each other"):
        triokafka.AdminClient(bootstrap_controllers="localhost:9093", bootstrap_servers="localhost:9092")
    assert run(["quorum", "describe", "--bootstrap-controller", "localhost:1", "-b", "localhost:2"]) == 2


def test_commands_reach_a_cluster_through_its_controllers(capfd: pytest.CaptureFixture[str]) -> None:
    def printed(*arguments: str) -> Any:
        capfd.readouterr()
        assert run([*arguments, "--json"]) == 0
        return json.loads(capfd.readouterr().out)

    with blocking_cluster(nodes=3) as running:
        quorum = printed("quorum", "describe", "-b", running.bootstrap_servers)
        ((controller,), *_) = quorum["nodes"].values()
        there = ("--bootstrap-controller", controller)
        assert printed("quorum", "describe", *there)["leader_id"] == quorum["leader_id"]
        nodes = printed("nodes", "list", *there)
        assert [(node["id"], node["endpoint_type"]) for node in nodes] == [(n, "controller") for n in (1, 2, 3)]
        assert printed("features", "describe", *there)["metadata.version"]["finalized"]
        node = ("--entity-type", "brokers", "--entity-name", "2")
        assert run(["configs", "alter", *node, "--add-config", "log.cleaner.threads=2", *there]) == 0
        ((entry,), *_) = [described["configs"] for described in printed("configs", "describe", *node, *there)]
        assert (entry["name"], entry["value"]) == ("log.cleaner.threads", "2")
        for command in ("reassign list", "nodes list", "nodes cluster-id"):
            assert run([*command.split(), *there]) == 0
