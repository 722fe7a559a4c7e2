"""Random operations on the controller's state, from any level of ``metadata.version`` on.

The committed image always equals the replay of the log.
"""

from __future__ import annotations

import random  # drives which operations follow each other
import uuid
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.in_steps import done
from tests.support.log_replay import replayed_batches
from tests.unit.broker_stub.clusters import CONFIG, creation, wanted
from triokafka.broker_stub.controller import producer_ids
from triokafka.broker_stub.controller.controller_state import ControllerState, StagedChange
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.session_fencing import fence_stale
from triokafka.broker_stub.metadata import EndpointImage, MetadataImage
from triokafka.broker_stub.metadata.features import (
    DEPENDENCIES,
    ELIGIBLE_LEADER_REPLICAS,
    METADATA_VERSION,
    SUPPORTED,
)
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE
from triokafka.broker_stub.metadata.lifecycle_values import BrokerHeartbeat, BrokerRegistration
from triokafka.broker_stub.metadata.records import decode_batches, encode_records
from triokafka.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import FeatureLevelRecord

LEVELS = range(SUPPORTED[METADATA_VERSION][0], SUPPORTED[METADATA_VERSION][1] + 1)
NAMES = st.sampled_from(["a", "a.b", "a_b", "c", "bad name"])
BROKERS = st.integers(1, 4)


class ControllerMachine(RuleBasedStateMachine):
    """``log`` is what would be on disk: one batch for each committed operation."""

    def __init__(self) -> None:
        super().__init__()
        rng = random.Random(5)
        self.state = ControllerState(
            CONFIG,
            pick=rng.randrange,
            new_id=lambda: uuid.UUID(int=rng.getrandbits(128)),
        )
        self.state.epoch = 1
        self.state.brokers.begin(EMPTY_IMAGE, now=0, cluster_id="cluster")
        self.log: list[bytes] = []
        self.staged: list[StagedChange] = []
        self.clock = 0.0
        self.level = LEVELS[0]

    @initialize(level=st.sampled_from(LEVELS))
    def begin(self, level: int) -> None:
        self._do(Outcome([FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)], None))
        self.level = level
        for broker_id in (1, 2):
            self.register(broker_id, 1)
            self.commit()
            self.heartbeat(broker_id, fence=False, stop=False, after=0.0)

    @precondition(lambda self: self.level < LEVELS[-1])
    @rule(levels=st.integers(1, 5))
    def upgrade(self, levels: int) -> None:
        self.level = min(self.level + levels, LEVELS[-1])
        self._do(Outcome([FeatureLevelRecord(name=METADATA_VERSION, feature_level=self.level)], None))
        self.commit()  # the records before have the old level

    @precondition(lambda self: self.level >= DEPENDENCIES[ELIGIBLE_LEADER_REPLICAS, 1][METADATA_VERSION])
    @rule()
    def have_eligible_leaders(self) -> None:
        self._do(Outcome([FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=1)], None))

    def _do(self, outcome: Outcome[Any]) -> Any:
        records: list[Struct] = list(outcome.records)
        if records:
            self.staged.append(done(self.state.stage(records)))
        return outcome.response

    @property
    def image(self) -> MetadataImage:
        return self.state.image

    @rule(name=NAMES, partitions=st.integers(-1, 4), factor=st.integers(-1, 3), retention=st.sampled_from(["5", "x"]))
    def create_topic(self, name: str, partitions: int, factor: int, retention: str) -> None:
        request = creation(wanted(name, partitions, factor, {"retention.ms": retention}))
        self._do(done(self.state.topics.create_topics(self.image, request)))

    @rule(name=NAMES)
    def delete_topic(self, name: str) -> None:
        self._do(done(self.state.topics.delete_topics(self.image, DeleteTopicsRequest(topic_names=[name]))))

    @rule(name=NAMES, count=st.integers(0, 6))
    def grow_topic(self, name: str, count: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        self._do(done(self.state.topics.create_partitions(self.image, CreatePartitionsRequest(topics=[topic]))))

    @rule(
        name=NAMES,
        operation=st.integers(0, 4),
        key=st.sampled_from(["retention.ms", "cleanup.policy", "nope"]),
        value=st.sampled_from(["5", "compact", "delete"]),
    )
    def configure(self, name: str, operation: int, key: str, value: str) -> None:
        change = AlterableConfig(name=key, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self._do(done(self.state.configuration.incremental_alter_configs(self.image, request)))

    @rule(broker_id=BROKERS, incarnation=st.integers(1, 2))
    def register(self, broker_id: int, incarnation: int) -> None:
        registration = BrokerRegistration(
            broker_id=broker_id,
            incarnation_id=uuid.UUID(int=incarnation),
            cluster_id="cluster",
            endpoints=(EndpointImage("PLAINTEXT", "h", 1),),
            features=SUPPORTED,
            directories=(uuid.UUID(int=500 + broker_id),),
        )
        try:
            outcome = self.state.brokers.register(
                self.image, registration, now=self.clock, next_offset=self.state.next_offset
            )
        except Exception as error:
            assert type(error).__name__ == "DuplicateBrokerRegistrationError"
        else:
            self._do(outcome)

    @rule(broker_id=BROKERS, fence=st.booleans(), stop=st.booleans(), after=st.floats(0, 5))
    def heartbeat(self, broker_id: int, fence: bool, stop: bool, after: float) -> None:
        self.clock += after
        broker = self.image.brokers.get(broker_id)
        if broker is not None:
            beat = BrokerHeartbeat(broker_id, broker.broker_epoch, self.image.offset, fence, stop)
            self._do(self.state.brokers.heartbeat(self.image, beat, now=self.clock))

    @rule(after=st.floats(0, 20))
    def fence_silent(self, after: float) -> None:
        self.clock += after
        self._do(fence_stale(self.state.brokers, self.image, now=self.clock))

    @precondition(lambda self: self.image.brokers)
    @rule()
    def allocate_producer_ids(self) -> None:
        broker = self.image.brokers[min(self.image.brokers)]
        before = self.image.producer_ids
        block = self._do(producer_ids.allocate_producer_ids(self.image, broker.broker_id, broker.broker_epoch))
        assert (block.first, self.image.producer_ids) == (before, before + 1000)

    @rule()
    def commit(self) -> None:
        for change in self.staged:
            self.log.append(
                encode_records(
                    change.records,
                    base_offset=change.base_offset,
                    epoch=1,
                    timestamp_ms=0,
                    metadata_version=self.level,
                )
            )
            self.state.commit(change)
        self.staged.clear()

    @rule()
    def fail_append(self) -> None:
        committed = self.state.committed
        self.state.roll_back()
        self.staged.clear()
        assert self.image is committed

    def _replayed(self) -> MetadataImage:
        return replayed_batches(batch for data in self.log for batch in decode_batches(data))[0]

    @invariant()
    def committed_state_is_the_replay_of_the_log(self) -> None:
        assert self._replayed() == self.state.committed

    @invariant()
    def offsets_follow_each_other(self) -> None:
        assert self.image.offset == self.state.committed.offset + sum(len(change.records) for change in self.staged)

    @invariant()
    def partitions_are_sound(self) -> None:
        image = self.image
        assert {topic.topic_id: topic for topic in image.topics.values()} == image.topics_by_id
        for topic, partition in image.partitions():
            assert sorted(topic.partitions) == list(range(len(topic.partitions)))
            # Only the last known leader is left when all members restarted after an unclean stop (KIP-966).
            assert partition.isr or partition.eligible_leader_replicas or partition.last_known_elr
            assert set(partition.isr) <= set(partition.replicas)
            assert len(set(partition.replicas)) == len(partition.replicas)
            assert len(partition.directories) == len(partition.replicas) or not partition.directories  # before level 17
            assert partition.leader == -1 or partition.leader in partition.isr
            assert partition.leader == -1 or not image.brokers[partition.leader].fenced

    @invariant()
    def configuration_belongs_to_topics_that_exist(self) -> None:
        of_topics = [name for kind, name in self.image.configs if kind == ConfigResourceType.TOPIC]
        assert all(name in self.image.topics for name in of_topics)
        assert all(self.image.configs.values())


ControllerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestControllerMachine = ControllerMachine.TestCase
