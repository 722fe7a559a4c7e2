from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from tests.support.in_steps import done
from tests.unit.broker_stub.clusters import (
    CONFIG,
    broker,
    cluster,
    codes,
    creation,
    replayed,
    replication,
    topic,
    wanted,
)
from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.protocol.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from triokafka.protocol.api.create_topics import CreatableTopic
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from triokafka.protocol.stored.cluster_metadata import ConfigRecord, PartitionRecord, TopicRecord


def grow(name: str, count: int, assignments: Sequence[Sequence[int]] | None = None) -> CreatePartitionsTopic:
    given = None
    if assignments is not None:
        given = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


class TestCreateTopics:
    def test_new_topic_has_its_partitions_its_configuration_and_a_leader(self) -> None:
        image = cluster(brokers=(0, 1, 2))
        outcome = done(replication().create_topics(image, creation(wanted("t", 3, 3, {"retention.ms": "5"}))))
        after = replayed(outcome.records, image)
        made = after.topics["t"]
        assert [partition.leader for partition in made.partitions.values()] == [0, 1, 2]
        for partition in made.partitions.values():
            assert set(partition.isr) == set(partition.replicas) == {0, 1, 2}
            assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
            assert partition.directories == tuple(uuid.UUID(int=2000 + i) for i in partition.replicas)
        assert after.topic_configs("t") == {"retention.ms": "5"}
        assert after.topics_by_id[made.topic_id] is made

    def test_configuration_comes_between_topic_and_partitions(self) -> None:
        records = done(
            replication().create_topics(cluster(), creation(wanted("t", 1, 1, {"retention.ms": "5"})))
        ).records
        assert [type(record) for record in records] == [TopicRecord, ConfigRecord, PartitionRecord]

    def test_answer_tells_id_partitions_factor_and_all_configuration(self) -> None:
        result = done(
            replication().create_topics(cluster(), creation(wanted("t", 2, 1, {"retention.ms": "5"})))
        ).response
        (made,) = result.topics
        assert (made.error_code, made.error_message) == (0, None)
        assert made.topic_id == uuid.UUID(int=1)
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        shown = {config.name: config for config in made.configs or ()}
        assert shown["retention.ms"].value == "5" and shown["retention.ms"].config_source == 1
        assert shown["segment.bytes"].value == "1073741824" and shown["segment.bytes"].config_source == 5
        assert len(shown) > 25

    def test_configuration_that_the_client_may_not_see_is_left_out(self) -> None:
        request = creation(wanted("t"))
        outcome = done(replication().create_topics(cluster(), request, hidden_configs=frozenset({"t"})))
        (made,) = outcome.response.topics
        assert made.error_code == 0 and made.configs == []
        assert made.topic_config_error_code == errors.TopicAuthorizationFailedError.code

    def test_defaults_come_from_the_broker(self) -> None:
        config = BrokerConfig.for_tests(num_partitions=4, default_replication_factor=2)
        image = cluster(brokers=(1, 2))
        outcome = done(replication(config).create_topics(image, creation(wanted("t", -1, -1))))
        made = replayed(outcome.records, image).topics["t"]
        assert len(made.partitions) == 4
        assert all(len(partition.replicas) == 2 for partition in made.partitions.values())

    def test_validate_only_answers_the_same_and_writes_nothing(self) -> None:
        control = replication()
        outcome = done(
            control.create_topics(cluster(), creation(wanted("t", 2), wanted("bad name"), validate_only=True))
        )
        assert outcome.records == []
        assert codes(outcome.response) == [0, errors.InvalidTopicError.code]
        assert outcome.response.topics[0].num_partitions == 2

    def test_manual_assignment_is_taken_as_it_is(self) -> None:
        image = cluster(brokers=(1, 2, 3))
        outcome = done(replication().create_topics(image, creation(wanted("t", assignments={1: (3, 1), 0: (2, 3)}))))
        made = replayed(outcome.records, image).topics["t"]
        assert [made.partitions[i].replicas for i in (0, 1)] == [(2, 3), (3, 1)]
        assert made.partitions[0].leader == 2

    def test_fenced_replicas_are_not_in_sync_and_do_not_lead(self) -> None:
        image = cluster(broker(2, fenced=True))
        outcome = done(replication().create_topics(image, creation(wanted("t", assignments={0: (2, 1)}))))
        partition = replayed(outcome.records, image).topics["t"].partitions[0]
        assert (partition.replicas, partition.isr, partition.leader) == ((2, 1), (1,), 1)

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            (wanted("a b"), errors.InvalidTopicError),
            (wanted(""), errors.InvalidTopicError),
            (wanted("old"), errors.TopicAlreadyExistsError),
            (wanted("o.l"), errors.InvalidTopicError),
            (wanted("__cluster_metadata"), errors.InvalidRequestError),
            (wanted("t", 0), errors.InvalidPartitionsError),
            (wanted("t", -2), errors.InvalidPartitionsError),
            (wanted("t", 1, 0), errors.InvalidReplicationFactorError),
            (wanted("t", 1, -2), errors.InvalidReplicationFactorError),
            (wanted("t", 1, 3), errors.InvalidReplicationFactorError),
            (wanted("t", configs={"retention.mss": "5"}), errors.InvalidConfigurationError),
            (wanted("t", configs={"retention.ms": "soon"}), errors.InvalidConfigurationError),
            (wanted("t", configs={"retention.ms": None}), errors.InvalidConfigurationError),
            (wanted("t", assignments={0: (2,)}), errors.InvalidReplicationAssignmentError),
            (wanted("t", assignments={0: (1, 1)}), errors.InvalidReplicationAssignmentError),
            (wanted("t", assignments={0: ()}), errors.InvalidReplicationAssignmentError),
            (wanted("t", assignments={1: (1,)}), errors.InvalidReplicationAssignmentError),
            (wanted("t", assignments={0: (1,), 1: (1, 9)}), errors.InvalidReplicationAssignmentError),
            (wanted("t", assignments={0: (9,)}), errors.InvalidReplicationAssignmentError),
        ],
    )
    def test_each_error_has_its_code_and_words_and_fails_its_topic_alone(
        self, bad: CreatableTopic, error: type[errors.BrokerResponseError]
    ) -> None:
        image = cluster(topic("old", [1]), topic("o_l", [1], number=8), broker(9, fenced=True))
        outcome = done(replication().create_topics(image, creation(bad, wanted("good"))))
        assert codes(outcome.response) == [error.code, 0]
        assert outcome.response.topics[0].error_message
        assert outcome.response.topics[0].configs == []
        assert set(replayed(outcome.records, image).topics) == {"old", "o_l", "good"}

    @pytest.mark.parametrize("topics", [(wanted("t", 10_001), wanted("a b")), (wanted("t", 6_000), wanted("u", 4_001))])
    def test_request_for_too_many_partitions_is_refused_as_a_whole_and_before_other_checks(
        self, topics: Sequence[CreatableTopic]
    ) -> None:
        steps = replication().create_topics(cluster(), creation(*topics))
        with pytest.raises(errors.PolicyViolationError, match="Excessively large number of partitions per request"):
            next(steps)

    def test_request_that_needs_too_many_records_is_refused_as_a_whole(self) -> None:
        request = creation(wanted("t", 9_990), wanted("u", 10))
        with pytest.raises(errors.PolicyViolationError, match="more than 10000 metadata records"):
            done(replication().create_topics(cluster(), request))

    def test_assignment_beside_counts_is_refused(self) -> None:
        both = wanted("t", assignments={0: (1,)})
        both.num_partitions = 1
        factor = wanted("u", assignments={0: (1,)})
        factor.replication_factor = 1
        outcome = done(replication().create_topics(cluster(), creation(both, factor)))
        assert codes(outcome.response) == [errors.InvalidRequestError.code] * 2

    def test_configuration_key_that_is_there_twice_is_refused(self) -> None:
        twice = wanted("t", configs={"retention.ms": "5"})
        twice.configs *= 2
        assert codes(done(replication().create_topics(cluster(), creation(twice))).response) == [
            errors.InvalidRequestError.code
        ]

    def test_partition_assigned_twice_is_refused(self) -> None:
        twice = wanted("t", assignments={0: (1,)})
        twice.assignments *= 2
        outcome = done(replication().create_topics(cluster(), creation(twice)))
        assert codes(outcome.response) == [errors.InvalidReplicationAssignmentError.code]

    def test_topic_asked_for_twice_is_refused_both_times(self) -> None:
        outcome = done(replication().create_topics(cluster(), creation(wanted("t"), wanted("u"), wanted("t"))))
        assert codes(outcome.response) == [errors.InvalidRequestError.code, 0, errors.InvalidRequestError.code]
        assert [result.name for result in outcome.response.topics] == ["t", "u", "t"]

    def test_topics_of_one_request_collide_with_each_other(self) -> None:
        outcome = done(replication().create_topics(cluster(), creation(wanted("a.b"), wanted("a_b"))))
        assert codes(outcome.response) == [0, errors.InvalidTopicError.code]

    def test_no_live_broker_means_no_topic(self) -> None:
        image = cluster(broker(1, fenced=True), brokers=())
        outcome = done(replication().create_topics(image, creation(wanted("t"))))
        assert codes(outcome.response) == [errors.InvalidReplicationFactorError.code]


class TestCreatePartitions:
    def image(self) -> MetadataImage:
        return cluster(topic("t", [1, 2], [2, 1]), broker(9, fenced=True), brokers=(1, 2, 3))

    def test_topic_grows_and_old_partitions_stay(self) -> None:
        image = self.image()
        before = dict(image.topics["t"].partitions)
        outcome = done(replication().create_partitions(image, CreatePartitionsRequest(topics=[grow("t", 5)])))
        after = replayed(outcome.records, image).topics["t"].partitions
        assert sorted(after) == [0, 1, 2, 3, 4]
        assert all(after[i] == before[i] for i in before)
        assert all(len(after[i].replicas) == 2 for i in after)

    def test_new_partitions_may_be_assigned_by_hand(self) -> None:
        image = self.image()
        outcome = done(replication().create_partitions(image, CreatePartitionsRequest(topics=[grow("t", 3, [(3, 1)])])))
        assert replayed(outcome.records, image).topics["t"].partitions[2].replicas == (3, 1)

    def test_validate_only_writes_nothing(self) -> None:
        request = CreatePartitionsRequest(topics=[grow("t", 3)], validate_only=True)
        outcome = done(replication().create_partitions(self.image(), request))
        assert outcome.records == [] and outcome.response.results[0].error_code == 0

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            (grow("nope", 3), errors.UnknownTopicOrPartitionError),
            (grow("t", 2), errors.InvalidPartitionsError),
            (grow("t", 1), errors.InvalidPartitionsError),
            (grow("t", 20_000), errors.PolicyViolationError),
            (grow("t", 3, []), errors.InvalidReplicationAssignmentError),
            (grow("t", 3, [(1, 2), (2, 1)]), errors.InvalidReplicationAssignmentError),
            (grow("t", 3, [(1,)]), errors.InvalidReplicationAssignmentError),
            (grow("t", 3, [(1, 1)]), errors.InvalidReplicationAssignmentError),
            (grow("t", 3, [(1, 8)]), errors.InvalidReplicationAssignmentError),
            (grow("t", 3, [()]), errors.InvalidReplicationAssignmentError),
        ],
    )
    def test_each_error_has_its_code_and_words(
        self, bad: CreatePartitionsTopic, error: type[errors.BrokerResponseError]
    ) -> None:
        outcome = done(replication().create_partitions(self.image(), CreatePartitionsRequest(topics=[bad])))
        (result,) = outcome.response.results
        assert result.error_code == error.code and result.error_message
        assert outcome.records == []

    def test_topic_asked_for_twice_is_refused_both_times(self) -> None:
        request = CreatePartitionsRequest(topics=[grow("t", 3), grow("t", 4)])
        outcome = done(replication().create_partitions(self.image(), request))
        assert [result.error_code for result in outcome.response.results] == [errors.InvalidRequestError.code] * 2


class TestDeleteTopics:
    IMAGE = cluster(topic("t", [1], configs={"retention.ms": "5"}), topic("a.b", [1], number=8))

    def test_topic_goes_with_its_configuration_and_its_name_is_free(self) -> None:
        outcome = done(replication().delete_topics(self.IMAGE, DeleteTopicsRequest(topic_names=["t", "a.b"])))
        assert [result.error_code for result in outcome.response.responses] == [0, 0]
        after = replayed(outcome.records, self.IMAGE)
        assert not after.topics and not after.topics_by_id and not after.configs and not after.colliding_names
        again = done(replication().create_topics(after, creation(wanted("t"), wanted("a_b"))))
        assert codes(again.response) == [0, 0]

    def test_topic_may_be_named_by_its_id(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=uuid.UUID(int=7))])
        outcome = done(replication().delete_topics(self.IMAGE, request))
        (result,) = outcome.response.responses
        assert (result.name, result.topic_id, result.error_code) == ("t", uuid.UUID(int=7), 0)

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ([DeleteTopicState(name="nope")], errors.UnknownTopicOrPartitionError),
            ([DeleteTopicState(topic_id=uuid.UUID(int=99))], errors.UnknownTopicIdError),
            ([DeleteTopicState()], errors.InvalidRequestError),
            ([DeleteTopicState(name="t", topic_id=uuid.UUID(int=7))], errors.InvalidRequestError),
            ([DeleteTopicState(name="t")] * 2, errors.InvalidRequestError),
            ([DeleteTopicState(topic_id=uuid.UUID(int=7))] * 2, errors.InvalidRequestError),
            ([DeleteTopicState(name="t"), DeleteTopicState(topic_id=uuid.UUID(int=7))], errors.InvalidRequestError),
        ],
    )
    def test_each_error_has_its_code_and_words(
        self, asked: list[DeleteTopicState], error: type[errors.BrokerResponseError]
    ) -> None:
        outcome = done(replication().delete_topics(self.IMAGE, DeleteTopicsRequest(topics=asked)))
        assert [result.error_code for result in outcome.response.responses] == [error.code] * len(asked)
        assert all(result.error_message for result in outcome.response.responses)
        assert outcome.records == []

    def test_unknown_topic_has_the_words_of_apache_kafka(self) -> None:
        asked = [DeleteTopicState(name="nope"), DeleteTopicState(topic_id=uuid.UUID(int=99))]
        outcome = done(replication().delete_topics(self.IMAGE, DeleteTopicsRequest(topics=asked)))
        assert [result.error_message for result in outcome.response.responses] == [
            "This server does not host this topic-partition.",
            "This server does not host this topic ID.",
        ]

    @pytest.mark.parametrize(
        ("version", "error"), [(2, errors.InvalidRequestError), (3, errors.TopicDeletionDisabledError)]
    )
    def test_deletion_can_be_switched_off(self, version: int, error: type[Exception]) -> None:
        control = replication(BrokerConfig.for_tests(delete_topic_enable=False, log_dirs=CONFIG.log_dirs))
        with pytest.raises(error):
            done(control.delete_topics(self.IMAGE, DeleteTopicsRequest(topic_names=["t"]), version=version))
