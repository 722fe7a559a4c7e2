"""Options of groups reach their coordinator."""

from __future__ import annotations

from dataclasses import fields

from tests.unit.broker_stub.clusters import cluster
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.coordinators.group_coordinator_config import group_settings
from triokafka.broker_stub.node import Node
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.stored.cluster_metadata import ConfigRecord
from triokafka.world.system import RealWorld

CLASSES = "org.apache.kafka.coordinator.group.assignor"


def coordinator_config(**properties: str) -> GroupCoordinatorConfig:
    """The configuration that the coordinator of a broker with these options uses."""
    config = BrokerConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()})
    return Node(config, world=RealWorld()).broker.group_coordinator.config


async def test_defaults_of_the_coordinator_are_those_of_the_broker() -> None:
    default, ours = coordinator_config(), GroupCoordinatorConfig()
    shown = {field.name for field in fields(ours)} & {field.name for field in fields(BrokerConfig)}
    assert len(shown) > 10
    for name in shown - {"group_consumer_assignment_interval_ms"}:  # one second there, and none without a configuration
        assert getattr(default, name) == getattr(ours, name), name


async def test_options_of_the_consumer_protocol_are_passed_on() -> None:
    config = coordinator_config(
        group_consumer_assignors=f"{CLASSES}.RangeAssignor,uniform",
        group_consumer_migration_policy="Upgrade",
        group_consumer_regex_refresh_interval_ms="20000",
        group_consumer_session_timeout_ms="50000",
        group_consumer_heartbeat_interval_ms="6000",
        group_consumer_max_size="7",
    )
    assert config.group_consumer_assignors == ("range", "uniform")
    assert config.group_consumer_migration_policy == "upgrade"
    assert config.group_consumer_regex_refresh_interval_ms == 20_000
    assert config.group_consumer_session_timeout_ms == 50_000
    assert config.group_consumer_heartbeat_interval_ms == 6_000
    assert config.group_consumer_max_size == 7


def test_assignment_interval_changes_while_the_broker_runs_and_a_groups_own_is_stronger() -> None:
    broker, group = ConfigResourceType.BROKER, ConfigResourceType.GROUP
    name = "consumer.assignment.interval.ms"
    records = [
        ConfigRecord(resource_type=broker, resource_name="", name=f"group.{name}", value="1"),
        ConfigRecord(resource_type=broker, resource_name="2", name=f"group.{name}", value="2"),
        ConfigRecord(resource_type=group, resource_name="g", name=name, value="3"),
        ConfigRecord(resource_type=group, resource_name="h", name="consumer.session.timeout.ms", value="46000"),
    ]
    image = cluster(*records)

    def settings(node_id: int, group_id: str) -> dict[str, str]:
        return dict(group_settings(node_id, lambda: image, group_id))

    assert settings(1, "other") == {name: "1"}
    assert settings(2, "other") == {name: "2"}
    assert settings(2, "g") == {name: "3"}
    assert settings(1, "h") == {"consumer.session.timeout.ms": "46000", name: "1"}
    assert dict(group_settings(1, cluster, "other")) == {}
