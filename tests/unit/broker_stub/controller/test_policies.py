"""User-defined policies for topics and configurations (KIP-108, KIP-133)."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import triokafka
from tests.support.in_steps import done
from tests.unit.broker_stub.clusters import cluster, codes, creation, replication, topic, wanted
from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.controller.policies import ConfigChange, Policies, TopicCreation
from triokafka.protocol.api.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from triokafka.protocol.api.incremental_alter_configs import AlterableConfig as Change
from triokafka.protocol.api.incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from triokafka.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from triokafka.testing import running_broker, running_cluster


class FewPartitions:
    """At most three partitions, and no topic of the name "bad"."""

    asked: ClassVar[list[TopicCreation]] = []

    def validate(self, creation: TopicCreation) -> None:
        self.asked.append(creation)
        if creation.topic == "bad":
            raise ValueError("bad is not a name for a topic")
        if (creation.num_partitions or 0) > 3:
            raise errors.PolicyViolationError("at most three partitions")


class NoCompaction:
    """Nothing is compacted."""

    asked: ClassVar[list[ConfigChange]] = []
    options: ClassVar[list[BrokerConfig]] = []

    def configure(self, config: BrokerConfig) -> None:
        self.options.append(config)

    def validate(self, change: ConfigChange) -> None:
        self.asked.append(change)
        if change.configs.get("cleanup.policy") == "compact":
            raise errors.PolicyViolationError("nothing is compacted here")


class WithoutValidate:
    """Is no policy."""


HERE = __name__
CONFIG = BrokerConfig.for_tests(
    create_topic_policy_class_name=f"{HERE}:FewPartitions", alter_config_policy_class_name=f"{HERE}:NoCompaction"
)
VIOLATION = errors.PolicyViolationError.code


def test_policy_is_asked_for_each_topic_and_refuses_it_alone() -> None:
    FewPartitions.asked.clear()
    outcome = done(
        replication(CONFIG).create_topics(
            cluster(),
            creation(
                wanted("fine", 3, configs={"retention.ms": "5"}),
                wanted("many", 4),
                wanted("bad"),
                wanted("by-hand", assignments={0: [1]}),
                wanted("a b"),
            ),
        )
    )
    assert codes(outcome.response) == [0, VIOLATION, VIOLATION, 0, errors.InvalidTopicError.code]
    assert outcome.response.topics[2].error_message == "bad is not a name for a topic"
    assert FewPartitions.asked == [
        TopicCreation("fine", 3, 1, None, {"retention.ms": "5"}),
        TopicCreation("many", 4, 1, None, {}),
        TopicCreation("bad", 1, 1, None, {}),
        TopicCreation("by-hand", None, None, {0: (1,)}, {}),
    ]


def test_policy_sees_the_values_that_are_set_and_refuses_the_resource() -> None:
    NoCompaction.asked.clear()
    control = ConfigurationControl(CONFIG)
    assert NoCompaction.options[-1] is CONFIG
    image = cluster(topic("t", [1], configs={"retention.ms": "5"}))

    def change(name: str, value: str | None, operation: int = 0) -> int:
        resource = ChangedResource(
            resource_type=2, resource_name="t", configs=[Change(name=name, config_operation=operation, value=value)]
        )
        outcome = done(control.incremental_alter_configs(image, IncrementalAlterConfigsRequest(resources=[resource])))
        return outcome.response.responses[0].error_code

    assert change("cleanup.policy", "compact") == VIOLATION
    assert change("cleanup.policy", "delete") == 0
    assert change("retention.ms", None, operation=1) == 0
    assert [dict(asked.configs) for asked in NoCompaction.asked] == [
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "delete"},
        {},
    ]
    whole = AlterConfigsResource(
        resource_type=2, resource_name="t", configs=[AlterableConfig(name="cleanup.policy", value="compact")]
    )
    outcome = done(control.alter_configs(image, AlterConfigsRequest(resources=[whole])))
    assert outcome.response.responses[0].error_code == VIOLATION and not outcome.records


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("org.example.Policy", "must be a Python class, as module:Class"),
        ("no.such.module:Policy", "ModuleNotFoundError"),
        (f"{HERE}:NoSuchClass", "AttributeError"),
        (f"{HERE}:WithoutValidate", "the class has no method validate"),
    ],
)
def test_policy_that_cannot_be_used_is_refused_at_the_start(name: str, words: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=rf"create\.topic\.policy\.class\.name=.*{words}"):
        Policies(BrokerConfig.for_tests(create_topic_policy_class_name=name))


async def test_policies_are_made_once_for_each_node() -> None:
    names: dict[str, Any] = {
        "create_topic_policy_class_name": f"{HERE}:FewPartitions",
        "alter_config_policy_class_name": f"{HERE}:NoCompaction",
    }
    for block, nodes in ((running_broker, 1), (running_cluster, 3)):
        NoCompaction.options.clear()
        async with block(**names) as target:
            assert len(NoCompaction.options) == nodes
            async with triokafka.AdminClient(bootstrap_servers=target.bootstrap_servers) as admin:
                await admin.create_topics([triokafka.NewTopic("t")])
                with pytest.raises(errors.PolicyViolationError, match="nothing is compacted here"):
                    await admin.incremental_alter_configs(
                        {triokafka.ConfigResource.topic("t"): {"cleanup.policy": "compact"}}
                    )
