"""kafka-python's admin client over the SDK, against a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import kafka
import kafka.admin
import pytest

from triokafka.blocking import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, OffsetSpec
from triokafka.blocking import TopicPartition as Partition
from triokafka.blocking import admin as blocking_admin
from triokafka.blocking.admin import (
    AbortTransactionSpec,
    ConfigResource,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetTimestamp,
    TransactionListing,
    TransactionState,
)
from triokafka.blocking.errors import (
    IllegalStateError,
    InvalidRequestError,
    KafkaConfigurationError,
    NoError,
    OffsetOutOfRangeError,
    SecurityDisabledError,
    TopicAlreadyExistsError,
    TransactionalIdNotFoundError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from triokafka.blocking.structs import TopicPartitionReplica


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    """An admin client."""
    with KafkaAdminClient(bootstrap_servers=bootstrap) as made:
        yield made


@pytest.fixture
def filled(bootstrap: str, topic: str) -> Partition:
    """Return a partition with 10 records, with timestamps from 1000 to 1009 ms."""
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp_ms=1_000 + number)
    return Partition(topic, 0)


def test_calls_accept_and_refuse_the_same_arguments_as_kafka_pythons(
    admin: KafkaAdminClient, filled: Partition
) -> None:
    group = f"group of {filled.topic}"
    without_epoch = OffsetAndMetadata(3, "", None)  # type: ignore[arg-type]
    assert admin.alter_group_offsets(group, {filled: without_epoch}) == {filled: NoError}
    node_id = admin.describe_cluster()["brokers"][0]["broker_id"]
    (moved,) = admin.alter_replica_log_dirs({(filled.topic, 0, node_id): "/nowhere"})
    assert moved == TopicPartitionReplica(filled.topic, 0, node_id)
    with pytest.raises(ValueError, match="int broker_ids"):
        admin.alter_partition_reassignments({filled: ["1"]})
    with pytest.raises(TypeError, match="Unsupported reset target"):
        admin.reset_group_offsets(group, {filled: "earliest"})
    with pytest.raises(TypeError, match="feature_updates must be a dict"):
        admin.update_features([("metadata.version", 19)])


def test_topics_are_created_described_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    created = admin.create_topics(
        [NewTopic(topic, 3, 1, topic_configs={"retention.ms": "5000"})], wait_for_metadata=True
    )
    (described,) = created["topics"]
    assert (described["name"], described["error_code"], described["num_partitions"]) == (topic, 0, 3)
    assert topic in admin.list_topics()
    found, missing = admin.describe_topics([topic, "no-such-topic"])
    assert [partition["partition_index"] for partition in found["partitions"]] == [0, 1, 2]
    assert {partition["leader_id"] for partition in found["partitions"]} == {
        broker["broker_id"] for broker in admin.describe_cluster()["brokers"]
    }
    assert (missing["name"], missing["error_code"]) == ("no-such-topic", 3)
    assert admin.describe_topics([uuid.UUID(found["topic_id"])])[0]["name"] == topic

    answer = admin.create_partitions({topic: NewPartitions(4)})
    assert [(result.name, result.error_code) for result in answer.results] == [(topic, 0)]
    page = admin.describe_topic_partitions([topic], response_partition_limit=3)
    assert page["next_cursor"] == {"topic_name": topic, "partition_index": 3}
    rest = admin.describe_topic_partitions([topic], cursor=page["next_cursor"])
    assert [one["partition_index"] for one in rest["topics"][0]["partitions"]] == [3]

    assert admin.delete_topics([topic])["topics"][0]["error_code"] == 0
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])
    assert admin.delete_topics([topic], raise_errors=False)["topics"][0]["error_code"] == 3


def test_topics_may_be_given_by_name_or_as_dict(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {}})
    both = admin.create_topics({topic: {}, f"{topic}-2": {"num_partitions": 2}}, raise_errors=False)
    assert [one["error_code"] for one in both["topics"]] == [36, 0]
    checked = admin.create_topics({f"{topic}-3": {}}, validate_only=True)
    assert checked["topics"][0]["error_code"] == 0
    assert f"{topic}-3" not in admin.list_topics()
    with pytest.raises(ValueError):
        admin.create_topics([])


def test_configurations_are_altered_and_reset(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic])

    def values() -> dict[str, str]:
        found = admin.describe_configs([ConfigResource("topic", topic)])["topic"][topic]
        return {name: config["value"] for name, config in found.items()}

    assert values() == {}
    assert admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "7000"})]) == {"topic": {topic: "OK"}}
    assert values() == {"retention.ms": "7000"}
    admin.alter_configs([ConfigResource("topic", topic, {"segment.bytes": 1_048_576})], incremental=False)
    assert values() == {"retention.ms": "7000", "segment.bytes": "1048576"}
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": ("delete", None)})])
    assert values() == {"segment.bytes": "1048576"}
    with pytest.raises(ValueError, match="Unrecognized"):
        admin.alter_configs([ConfigResource("topic", topic, {"no.such.config": "1"})])
    wrong = admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "soon"})])
    assert "InvalidConfigurationError" in wrong["topic"][topic]
    admin.reset_configs([ConfigResource("topic", topic)])
    assert values() == {}
    (default,) = admin.describe_configs([ConfigResource("topic", topic, ["retention.ms"])], config_filter="all")[
        "topic"
    ][topic].values()
    assert default["config_source"] == "DEFAULT_CONFIG"


def test_groups_and_their_offsets(admin: KafkaAdminClient, bootstrap: str, filled: Partition, group: str) -> None:
    with KafkaConsumer(
        filled.topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        next(consumer)
        consumer.commit()
        assert group in [one["group_id"] for one in admin.list_groups(states_filter=["stable"])]
        described = admin.describe_groups([group])[group]
        assert (described["group_state"], described["error"]) == ("Stable", None)
        (member,) = described["members"]
        assert member["member_assignment"]["assigned_partitions"] == [{"topic": filled.topic, "partitions": [0]}]
        refused = admin.alter_group_offsets(group, {filled: OffsetAndMetadata(3, "", -1)})
        assert refused == {filled: UnknownMemberIdError}
        assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
        consumer.commit({filled: OffsetAndMetadata(1, "note", -1)})
        consumer.close(autocommit=False)
    assert admin.list_group_offsets(group) == {group: {filled: OffsetAndMetadata(1, "note", -1)}}
    assert admin.alter_group_offsets(group, {filled: OffsetAndMetadata(3, "", -1)}) == {filled: NoError}
    for spec, offset in ((OffsetTimestamp(1_005), 5), (OffsetSpec.EARLIEST, 0), (7, 7), (99, 10)):
        assert admin.reset_group_offsets(group, {filled: spec}) == {filled: {"error": NoError, "offset": offset}}
    other = Partition(filled.topic, 5)
    assert admin.list_group_offsets({group: [filled, other]})[group][other].offset == -1
    assert admin.remove_group_members(group, [MemberToRemove("nobody")]) == {"nobody": UnknownMemberIdError}
    assert admin.delete_group_offsets(group, [filled]) == {filled: NoError}
    assert admin.describe_groups(["no-such-group"])["no-such-group"]["group_state"] == "Dead"


def test_offsets_and_records_of_partitions(admin: KafkaAdminClient, filled: Partition) -> None:
    assert admin.list_partition_offsets({filled: OffsetSpec.LATEST})[filled].offset == 10
    assert admin.list_partition_offsets({filled: 1_004}, isolation_level="read_committed")[filled][:2] == (4, 1_004)
    assert admin.delete_records({filled: 4})[filled]["low_watermark"] == 4
    assert admin.list_partition_offsets({filled: OffsetSpec.EARLIEST})[filled].offset == 4
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({filled: 99})
    with pytest.raises(UnsupportedVersionError):
        admin.list_partition_offsets({filled: OffsetSpec.LATEST_TIERED})
    (producer,) = admin.describe_producers([filled])[filled].active_producers
    assert producer.last_sequence == 9


def test_the_cluster_and_its_brokers(admin: KafkaAdminClient, filled: Partition) -> None:
    cluster = admin.describe_cluster()
    assert cluster["controller_id"] in [broker["broker_id"] for broker in cluster["brokers"]]
    (broker,) = admin.describe_log_dirs({filled.topic: [0]})
    (directory,) = broker["log_dirs"]
    assert directory["topics"][0]["partitions"][0]["partition_size"] > 0
    assert admin.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"] >= 0
    assert "finalized" in admin.describe_features()["metadata.version"]
    answer: Any = admin.elect_leaders(0, {filled.topic: [0]})
    assert answer.replica_election_results[0].partition_result[0].error_code == 84


class ClientUnderTest(NamedTuple):
    """One of the two clients, the module with its types, and the topic and group of its calls."""

    admin: Any
    types: Any
    topic: str
    group: str

    def configs(self, names: Any) -> list[Any]:
        return [self.types.ConfigResource("TOPIC", self.topic, names)]


def without_ids(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in topic.items() if name != "topic_id"} for topic in answer["topics"]]


def without_eligible_leaders(answer: dict[str, Any]) -> dict[str, Any]:
    """kafka-python returns an empty list instead of null."""
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            assert not partition.pop("eligible_leader_replicas")
            assert not partition.pop("last_known_elr")
    return answer


def without_free_bytes(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for broker in answer:
        for directory in broker["log_dirs"]:
            assert directory.pop("usable_bytes") > 0
    return answer


def names_of(answer: dict[Any, Any]) -> dict[Any, str]:
    return {item: error.__name__ for item, error in answer.items()}


def without_operations(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Brokers return authorized operations also for a missing topic; the SDK then has only an error."""
    return [{**topic, "authorized_operations": None} for topic in topics]


ANSWERS: dict[str, Callable[[ClientUnderTest], Any]] = {
    "describe_cluster": lambda under_test: under_test.admin.describe_cluster(),
    "describe_topics": lambda under_test: under_test.admin.describe_topics([under_test.topic]),
    "a topic that does not exist": lambda under_test: without_operations(
        under_test.admin.describe_topics(["no-such-topic"])
    ),
    "describe_topic_partitions": lambda under_test: without_eligible_leaders(
        under_test.admin.describe_topic_partitions([under_test.topic], 1)
    ),
    "describe_configs": lambda under_test: under_test.admin.describe_configs(
        under_test.configs(None), config_filter="all"
    ),
    "describe_features": lambda under_test: under_test.admin.describe_features(),
    "describe_log_dirs": lambda under_test: without_free_bytes(
        under_test.admin.describe_log_dirs({under_test.topic: [0]})
    ),
    "describe_groups": lambda under_test: under_test.admin.describe_groups([under_test.group]),
    "list_groups": lambda under_test: [
        one for one in under_test.admin.list_groups() if one["group_id"] == under_test.group
    ],
    "list_group_offsets": lambda under_test: under_test.admin.list_group_offsets(under_test.group),
    "list_partition_offsets": lambda under_test: under_test.admin.list_partition_offsets(
        {Partition(under_test.topic, 0): -1, Partition(under_test.topic, 1): 1_003}
    ),
    "create_topics": lambda under_test: without_ids(
        under_test.admin.create_topics({f"{under_test.topic}-2": {"num_partitions": 2}}, validate_only=True)
    ),
    "delete_topics": lambda under_test: [
        topic["error_code"] for topic in under_test.admin.delete_topics(["no-such-topic"], raise_errors=False)["topics"]
    ],
    "delete_groups": lambda under_test: under_test.admin.delete_groups([under_test.group, "no-such-group"]),
    "delete_records": lambda under_test: under_test.admin.delete_records({Partition(under_test.topic, 0): 3}),
    "alter_configs": lambda under_test: under_test.admin.alter_configs(
        under_test.configs({"retention.ms": "7"}), validate_only=True
    ),
    "reset_configs": lambda under_test: under_test.admin.reset_configs(
        under_test.configs({"retention.ms": None}), incremental=False
    ),
    "list_partition_reassignments": lambda under_test: under_test.admin.list_partition_reassignments(),
    "alter_group_offsets": lambda under_test: names_of(
        under_test.admin.alter_group_offsets(
            under_test.group, {Partition(under_test.topic, 0): OffsetAndMetadata(1, "", -1)}
        )
    ),
    "delete_group_offsets": lambda under_test: names_of(
        under_test.admin.delete_group_offsets(under_test.group, [Partition(under_test.topic, 0)])
    ),
    "remove_group_members": lambda under_test: names_of(
        under_test.admin.remove_group_members(under_test.group, [under_test.types.MemberToRemove(member_id="nobody")])
    ),
}


def test_results_equal_those_of_kafka_python(bootstrap: str, topic: str, group: str) -> None:
    with (
        kafka.KafkaAdminClient(bootstrap_servers=bootstrap) as theirs,
        KafkaAdminClient(bootstrap_servers=bootstrap) as ours,
        KafkaProducer(bootstrap_servers=bootstrap) as producer,
        KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer,
    ):
        theirs.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
        consumer.subscribe([topic])
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1_000 + number)
        producer.flush()
        while not consumer.poll(timeout_ms=100):
            pass
        consumer.commit()
        for call, ask in ANSWERS.items():
            expected = ask(ClientUnderTest(theirs, kafka.admin, topic, group))
            assert ask(ClientUnderTest(ours, blocking_admin, topic, group)) == expected, call


def test_transactions_are_listed_described_and_aborted(
    admin: KafkaAdminClient, bootstrap: str, topic: str, filled: Partition
) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()
        (described,) = admin.describe_transactions([topic]).values()
        assert (described.state, described.topic_partitions) == (TransactionState.ONGOING, {filled})
        listed = admin.list_transactions(
            [described.coordinator_id], [described.producer_id], ["Ongoing", TransactionState.EMPTY]
        )
        assert listed == {
            described.coordinator_id: [TransactionListing(topic, described.producer_id, TransactionState.ONGOING)]
        }
        with kafka.KafkaAdminClient(bootstrap_servers=bootstrap) as theirs:
            assert theirs.describe_transactions([topic]) == {topic: described}
            assert theirs.list_transactions(producer_id_filters=[described.producer_id]) == listed
        with pytest.raises(InvalidRequestError):
            admin.list_transactions(state_filters=["Sleeping"])
        hanging = admin.find_hanging_transactions(max_transaction_timeout_ms=-300_000)
        assert topic in [one["transactional_id"] for one in hanging]
        assert topic not in [one["transactional_id"] for one in admin.find_hanging_transactions()]
        assert admin.list_partition_offsets({filled: OffsetSpec.LATEST}, "read_committed")[filled].offset == 10
        admin.abort_transaction(AbortTransactionSpec(filled, described.producer_id, described.producer_epoch))
        assert admin.list_partition_offsets({filled: OffsetSpec.LATEST}, "read_committed")[filled].offset == 12
        producer.abort_transaction()
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions(["nobody"])


def test_unsupported_calls_and_missing_items_raise_descriptive_errors(admin: KafkaAdminClient) -> None:
    for call in (admin.api_versions, lambda: admin.get_broker_version_data(1)):
        with pytest.raises(UnsupportedVersionError, match="does not expose"):
            call()
    orders = blocking_admin.ResourcePattern(blocking_admin.ResourceType.TOPIC, "orders")
    acl = blocking_admin.ACL(
        "User:a", "*", blocking_admin.ACLOperation.READ, blocking_admin.ACLPermissionType.ALLOW, orders
    )
    assert admin.create_acls([acl]) == {"succeeded": [], "failed": [SecurityDisabledError]}


def test_a_closed_or_misconfigured_admin_client_refuses(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.close()
    admin.close()
    with pytest.raises(IllegalStateError):
        admin.list_topics()
    with pytest.raises(KafkaConfigurationError):
        KafkaAdminClient(bootstrap_servers=bootstrap, no_such_name=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda admin: admin.describe_configs("topic"), r"config_resources must be an iterable of ConfigResource"),
        (lambda admin: admin.describe_configs(["topic"]), r"config_resources\[0\] must be ConfigResource, not str"),
        (lambda admin: admin.alter_configs([5]), r"config_resources\[0\] must be ConfigResource, not int"),
        (lambda admin: admin.create_topics(5), r"new_topics must be an iterable of NewTopic or str or a mapping"),
        (lambda admin: admin.create_topics([5]), r"new_topics\[0\] must be NewTopic or str, not int"),
        (lambda admin: admin.create_topics([NewTopic("t", "3", 1)]), r"num_partitions must be int, not str '3'"),  # type: ignore[arg-type]
        (lambda admin: admin.delete_topics("orders"), r"topics must be an iterable of str or UUID, not str"),
        (lambda admin: admin.create_partitions({"t": "3"}), r"partitions\['t'\] must be int or NewPartitions"),
        (lambda admin: admin.delete_records({"t": 3}), r"a key of records_to_delete must be TopicPartition"),
        (lambda admin: admin.delete_groups("g"), r"group_ids must be an iterable of str, not str"),
        (lambda admin: admin.describe_groups([5]), r"group_ids\[0\] must be str, not int"),
    ],
)
def test_wrong_types_of_arguments_raise_at_once(
    admin: KafkaAdminClient, call: Callable[[KafkaAdminClient], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call(admin)
