"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, through their encoding in every version."""

from __future__ import annotations

import logging

import pytest

from tests.unit.broker_stub.api.node import Node, batch, memory_world, running_node
from tests.unit.broker_stub.api.test_topic_admin import Denying
from triokafka import errors
from triokafka.protocol.api.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from triokafka.protocol.api.incremental_alter_configs import AlterableConfig as Change
from triokafka.protocol.api.incremental_alter_configs import AlterConfigsResource as ChangedResource
from triokafka.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from triokafka.security.acl import CLUSTER_NAME, AclOperation
from triokafka.structs import TopicPartition

TOPIC, BROKER = 2, 4


def setting(resource_type: int, name: str, key: str, value: str | None, operation: int = 0) -> ChangedResource:
    change = Change(name=key, config_operation=operation, value=value)
    return ChangedResource(resource_type=resource_type, resource_name=name, configs=[change])


async def change(node: Node, *resources: ChangedResource, version: int = 1) -> list[int]:
    response = await node.call(IncrementalAlterConfigsRequest(resources=list(resources)), version)
    assert [(r.resource_type, r.resource_name) for r in response.responses] == [
        (r.resource_type, r.resource_name) for r in resources
    ]
    return [r.error_code for r in response.responses]


async def describe(node: Node, resource_type: int, name: str, key: str) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=[key])
    (result,) = (await node.call(DescribeConfigsRequest(resources=[resource]), 4)).results
    return result


@pytest.mark.parametrize("version", range(1, 5))
async def test_configuration_is_shown_in_every_version(version: int) -> None:
    async with running_node() as node:
        await node.create("t", retention_ms="5")
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None),
                DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=["num.partitions"]),
                DescribeConfigsResource(resource_type=TOPIC, resource_name="nope", configuration_keys=None),
            ],
            include_synonyms=True,
            include_documentation=version >= 3,
        )
        topic, broker, unknown = (await node.call(request, version)).results
        shown = {config.name: config for config in topic.configs}
        assert (topic.error_code, topic.error_message) == (0, "")
        assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("5", 1)
        assert shown["max.message.bytes"].synonyms[-1].source == 5
        assert [(config.name, config.value) for config in broker.configs] == [("num.partitions", "1")]
        assert broker.configs[0].read_only
        if version >= 3:
            assert shown["retention.ms"].config_type == 5 and shown["retention.ms"].documentation
        assert unknown.error_code == errors.UnknownTopicOrPartitionError.code and unknown.configs == []


@pytest.mark.parametrize("version", range(0, 2))
async def test_single_keys_are_changed_in_every_version(version: int) -> None:
    async with running_node() as node:
        await node.create("t", retention_ms="5")
        resources = [setting(TOPIC, "t", "max.message.bytes", "70"), setting(TOPIC, "nope", "retention.ms", "1")]
        assert await change(node, *resources, version=version) == [0, errors.UnknownTopicOrPartitionError.code]
        assert node.broker.image.topic_configs("t") == {"retention.ms": "5", "max.message.bytes": "70"}


@pytest.mark.parametrize("version", range(0, 3))
async def test_whole_configuration_is_replaced_in_every_version(version: int) -> None:
    async with running_node() as node:
        await node.create("t", retention_ms="5")
        resource = AlterConfigsResource(
            resource_type=TOPIC, resource_name="t", configs=[AlterableConfig(name="retention.bytes", value="7")]
        )
        (response,) = (await node.call(AlterConfigsRequest(resources=[resource]), version)).responses
        assert (response.error_code, response.error_message) == (0, None)
        assert node.broker.image.topic_configs("t") == {"retention.bytes": "7"}


async def test_change_reaches_the_log_before_it_is_answered() -> None:
    async with running_node() as node:
        await node.create("t")
        await change(node, setting(TOPIC, "t", "retention.ms", "5"))
        log = node.broker.logs.get(TopicPartition("t", 0))
        assert log is not None and log.config.retention_ms == 5
        await change(node, setting(TOPIC, "t", "retention.ms", None, operation=1))
        assert log.config.retention_ms == 604_800_000


async def test_change_of_the_brokers_default_reaches_every_topic_without_an_own_value() -> None:
    async with running_node() as node:
        await node.create("own", retention_ms="5")
        await node.create("default")
        assert await change(node, setting(BROKER, "", "log.retention.ms", "9")) == [0]
        logs = [node.broker.logs.get(TopicPartition(name, 0)) for name in ("own", "default")]
        assert [log and log.config.retention_ms for log in logs] == [5, 9]
        assert [
            config.config_source for config in (await describe(node, TOPIC, "default", "retention.ms")).configs
        ] == [3]
        assert await change(node, setting(BROKER, "1", "log.retention.ms", "11")) == [0]
        assert [log and log.config.retention_ms for log in logs] == [5, 11]


async def test_negative_retention_time_of_the_brokers_is_no_limit() -> None:
    async with running_node() as node:
        await node.create("t")
        assert await change(node, setting(BROKER, "", "log.retention.ms", "-5")) == [0]
        log = node.broker.logs.get(TopicPartition("t", 0))
        assert log is not None and log.config.retention_ms == -1
        assert [config.value for config in (await describe(node, TOPIC, "t", "retention.ms")).configs] == ["-1"]


async def test_broker_applies_changed_configurations_and_their_removal() -> None:
    """A broker's own value takes precedence over the default of all brokers."""
    async with running_node() as node:
        await node.create("t")
        broker = node.broker

        async def refused() -> bool:
            return (await node.produce("t", batch(b"x" * 500))).error_code == errors.MessageSizeTooLargeError.code

        assert not await refused()
        assert await change(node, setting(BROKER, "", "message.max.bytes", "300")) == [0]
        assert await refused()
        assert await change(node, setting(BROKER, "1", "message.max.bytes", "3000")) == [0]
        assert not await refused()
        assert await change(node, setting(BROKER, "1", "message.max.bytes", None, operation=1)) == [0]
        assert await refused()
        assert await change(node, setting(BROKER, "", "message.max.bytes", None, operation=1)) == [0]
        assert not await refused()
        for name, value in (("log.cleaner.backoff.ms", 99), ("producer.id.expiration.ms", 77), ("max.connections", 55)):
            assert await change(node, setting(BROKER, "", name, str(value))) == [0]
            assert getattr(broker.config, name.replace(".", "_")) == value
        assert broker.logs.producer_expiration_ms == 77
        for name in ("num.partitions", "listeners", "log.dirs", "authorizer.class.name"):
            assert await change(node, setting(BROKER, "1", name, "1")) == [errors.InvalidRequestError.code], name


async def test_broker_refuses_to_alter_another_broker() -> None:
    """As in Kafka, a broker alters only its own configuration, and the controller that of any broker."""
    async with running_node() as node:
        other = str(node.broker.node_id + 1)
        refused = errors.InvalidRequestError.code
        assert await change(node, setting(BROKER, other, "log.cleaner.threads", "2")) == [refused]
        own = AlterConfigsResource(resource_type=BROKER, resource_name=other, configs=[])
        assert (await node.call(AlterConfigsRequest(resources=[own]), 2)).responses[0].error_code == refused
        control = node.broker.gateway
        altered = await control.incremental_alter_configs(
            IncrementalAlterConfigsRequest(resources=[setting(BROKER, other, "log.cleaner.threads", "2")])
        )
        assert [response.error_code for response in altered.responses] == [0]


async def test_throttles_of_kafkas_tools_do_not_disturb_other_options() -> None:
    async with running_node() as node:
        await node.create("t")
        resources = [setting(BROKER, "1", "leader.replication.throttled.rate", "100")]
        assert await change(node, *resources) == [0]
        assert await change(node, setting(BROKER, "1", "log.retention.ms", "9")) == [0]
        log = node.broker.logs.get(TopicPartition("t", 0))
        assert log is not None and log.config.retention_ms == 9


async def test_changes_survive_a_restart() -> None:
    world = memory_world()
    async with running_node(world=world) as node:
        await node.create("t")
        await change(node, setting(BROKER, "", "log.retention.ms", "9"), setting(TOPIC, "t", "segment.ms", "8"))
    async with running_node(world=world) as node:
        log = node.broker.logs.get(TopicPartition("t", 0))
        assert log is not None and (log.config.retention_ms, log.config.segment_ms) == (9, 8)


async def test_denied_topics_and_brokers_fail_alone() -> None:
    denying = Denying([AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS], ["no", CLUSTER_NAME])
    topic, cluster = errors.TopicAuthorizationFailedError.code, errors.ClusterAuthorizationFailedError.code
    async with running_node(authorizer=denying) as node:
        await node.create("no")
        await node.create("yes")
        resources = [
            setting(TOPIC, "no", "retention.ms", "1"),
            setting(BROKER, "1", "log.retention.ms", "1"),
            setting(TOPIC, "yes", "retention.ms", "1"),
        ]
        assert await change(node, *resources) == [topic, cluster, 0]
        assert {key for key in node.broker.image.configs if key[0] == TOPIC} == {(TOPIC, "yes")}
        assert (await describe(node, TOPIC, "no", "retention.ms")).error_code == topic
        assert (await describe(node, BROKER, "1", "num.partitions")).error_code == cluster
        assert (await describe(node, TOPIC, "yes", "retention.ms")).configs[0].value == "1"
        legacy = AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=TOPIC, resource_name="no")])
        assert (await node.call(legacy, 2)).responses[0].error_code == topic


async def test_offsets_topic_keeps_its_partitions_when_the_option_changes() -> None:
    """Groups stay where they are."""
    world = memory_world()
    async with running_node(world=world, offsets_topic_num_partitions=4) as node:
        await node.broker.topic_creation.ensure("__consumer_offsets")
        before = [node.broker.group_coordinator.runtime.partition_for(f"g{number}") for number in range(50)]
    async with running_node(world=world, offsets_topic_num_partitions=9) as node:
        assert [node.broker.group_coordinator.runtime.partition_for(f"g{number}") for number in range(50)] == before


async def test_log_levels_are_configuration_of_the_process() -> None:
    """(KIP-412)"""
    name = "triokafka.broker_stub.controller.controller"
    logger = logging.getLogger(name)
    before = logger.level
    try:
        async with running_node() as node:

            async def alter(*changes: tuple[str, int, str | None], validate_only: bool = False) -> int:
                configs = [
                    Change(name=logger_name, config_operation=operation, value=value)
                    for logger_name, operation, value in changes
                ]
                resource = ChangedResource(resource_type=8, resource_name="1", configs=configs)
                request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
                return (await node.call(request, 1)).responses[0].error_code

            async def levels() -> dict[str, str | None]:
                asked = DescribeConfigsResource(resource_type=8, resource_name="1", configuration_keys=None)
                (result,) = (await node.call(DescribeConfigsRequest(resources=[asked]), 4)).results
                assert result.error_code == 0 and {c.config_source for c in result.configs} == {6}
                return {c.name: c.value for c in result.configs}

            assert await alter((name, 0, "ERROR"), validate_only=True) == 0
            assert (await levels())[name] != "ERROR"
            assert await alter((name, 0, "ERROR")) == 0
            assert (await levels())[name] == "ERROR" and logger.level == logging.ERROR
            assert await alter((name, 0, "DEBUG"), ("no.such", 0, "DEBUG")) == errors.InvalidConfigurationError.code
            assert logger.level == logging.ERROR
            assert await alter((name, 0, "DEBUG"), (name, 0, "INFO")) == errors.InvalidRequestError.code
            assert logger.level == logging.ERROR
            assert await alter((name, 0, "LOUD")) == errors.InvalidConfigurationError.code
            assert await alter((name, 2, "DEBUG")) == errors.InvalidRequestError.code
            assert await alter(("root", 1, None)) == errors.InvalidRequestError.code
            assert await alter((name, 1, None)) == 0 and logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)
