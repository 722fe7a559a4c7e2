"""Topics and the cluster: creating, growing, describing, deleting, and how each is refused."""

from __future__ import annotations

from tests.conformance.catalogue import Case, scenario
from tests.conformance.driver import NotOffered


@scenario
def created(case: Case) -> None:
    """A topic is created with its partitions, which have a leader, replicas and in-sync replicas."""
    topic = case.topic(partitions=3)
    (node,) = case.client.describe_cluster().nodes
    found = case.client.describe_topic(topic)
    assert sorted(found.partitions) == [0, 1, 2]
    for partition in found.partitions.values():
        assert (partition.leader, partition.replicas, partition.isr) == (node, (node,), (node,))
    assert not found.internal
    assert topic in case.client.topics()


@scenario
def created_with_defaults(case: Case) -> None:
    """Partitions and replicas of -1 mean the broker's defaults (KIP-464)."""
    topic = case.name()
    case.client.create_topic(topic, -1, -1)
    case.until(lambda: len(case.client.describe_topic(topic).partitions) == 1)
    assert len(case.client.describe_topic(topic).partitions[0].replicas) == 1


@scenario
def created_several(case: Case) -> None:
    """Several topics in one request have an answer each."""
    existing, fresh, bad = case.topic(), case.name(), "bad name"
    assert case.client.create_topics([existing, fresh, bad]) == {existing: 36, fresh: 0, bad: 17}
    case.until(lambda: fresh in case.client.topics())


@scenario
def created_twice(case: Case) -> None:
    """A topic that exists is not created again: TOPIC_ALREADY_EXISTS (36)."""
    topic = case.topic()
    assert case.refusal(lambda: case.client.create_topic(topic)) == 36


@scenario
def created_without_partitions(case: Case) -> None:
    """A topic with no partitions is refused with INVALID_PARTITIONS (37)."""
    topic = case.name()
    assert case.refusal(lambda: case.client.create_topic(topic, 0)) in (37, None)
    assert topic not in case.client.topics()


@scenario
def created_with_too_many_replicas(case: Case) -> None:
    """More replicas than brokers are refused with INVALID_REPLICATION_FACTOR (38)."""
    topic = case.name()
    assert case.refusal(lambda: case.client.create_topic(topic, 1, 5)) == 38
    assert topic not in case.client.topics()


@scenario
def created_with_bad_names(case: Case) -> None:
    """Names that are empty, too long, dots only or with other letters: INVALID_TOPIC_EXCEPTION (17)."""
    for name in (".", "..", "a b", "ä", "x" * 250, "a/b"):
        assert case.refusal(lambda name=name: case.client.create_topic(name)) == 17, name


@scenario
def created_with_colliding_name(case: Case) -> None:
    """A name that differs from another only in . and _ is refused with INVALID_TOPIC_EXCEPTION (17)."""
    stem = case.name()
    case.client.create_topic(f"{stem}.x")
    case.until(lambda: f"{stem}.x" in case.client.topics())
    assert case.refusal(lambda: case.client.create_topic(f"{stem}_x")) == 17


@scenario
def created_with_longest_name(case: Case) -> None:
    """A name may have 249 letters."""
    name = case.name().ljust(249, "x")
    case.client.create_topic(name)
    case.until(lambda: name in case.client.topics())


@scenario
def created_with_configs(case: Case) -> None:
    """Configs that are given at creation are the topic's."""
    topic = case.topic(retention_ms=12345, cleanup_policy="compact,delete")
    found = case.client.describe_configs("topic", topic)
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("12345", "compact,delete")


@scenario
def created_with_bad_config(case: Case) -> None:
    """An unknown key or a bad value at creation is refused with INVALID_CONFIG (40)."""
    topic = case.name()
    for key, value in (("no.such.key", "1"), ("retention.ms", "soon"), ("cleanup.policy", "burn")):
        configs = {key: value}
        assert case.refusal(lambda configs=configs: case.client.create_topic(topic, configs=configs)) == 40, key
    assert topic not in case.client.topics()


@scenario
def created_with_assignment(case: Case) -> None:
    """A topic is created with replicas that were chosen by hand."""
    (node,) = case.client.describe_cluster().nodes
    topic = case.name()
    case.client.create_topic(topic, 2, assignment=[[node], [node]])
    case.until(lambda: len(case.client.describe_topic(topic).partitions) == 2)
    assert {p.replicas for p in case.client.describe_topic(topic).partitions.values()} == {(node,)}


@scenario
def created_on_unknown_broker(case: Case) -> None:
    """Replicas on a broker that does not exist are refused with INVALID_REPLICA_ASSIGNMENT (39)."""
    topic = case.name()
    assert case.refusal(lambda: case.client.create_topic(topic, 1, assignment=[[4711]])) == 39


@scenario
def only_validated(case: Case) -> None:
    """validate.only answers as creation would, and creates nothing."""
    topic, existing = case.name(), case.topic()
    case.client.create_topic(topic, validate_only=True)
    assert case.refusal(lambda: case.client.create_topic(existing, validate_only=True)) == 36
    assert topic not in case.client.topics()


@scenario
def deleted(case: Case) -> None:
    """A deleted topic is gone from the list, and cannot be deleted again."""
    topic = case.topic()
    case.client.delete_topic(topic)
    case.until(lambda: topic not in case.client.topics())
    assert case.refusal(lambda: case.client.delete_topic(topic)) == 3


@scenario
def deleted_unknown(case: Case) -> None:
    """A topic that does not exist is not deleted: UNKNOWN_TOPIC_OR_PARTITION (3)."""
    topic = case.name()
    assert case.refusal(lambda: case.client.delete_topic(topic)) == 3


@scenario
def deleted_several(case: Case) -> None:
    """Several deletions in one request have an answer each."""
    one, two, unknown = case.topic(), case.topic(), case.name()
    assert case.client.delete_topics([one, unknown, two]) == {one: 0, unknown: 3, two: 0}
    case.until(lambda: not {one, two} & case.client.topics())


@scenario
def grown(case: Case) -> None:
    """Partitions that are added are empty and usable, and the old ones keep their records."""
    topic = case.topic(partitions=1)
    case.fill(topic, 5)
    case.client.create_partitions(topic, 3)
    case.until(lambda: len(case.client.describe_topic(topic).partitions) == 3)
    case.fill(topic, 2, partition=2)
    assert sorted((r.partition, r.offset) for r in case.read(topic, 7, partitions=3)) == [
        *((0, offset) for offset in range(5)),
        (2, 0),
        (2, 1),
    ]


@scenario
def shrunk(case: Case) -> None:
    """A topic does not lose partitions: INVALID_PARTITIONS (37), also for as many as there are."""
    topic = case.topic(partitions=3)
    assert case.refusal(lambda: case.client.create_partitions(topic, 2)) == 37
    assert case.refusal(lambda: case.client.create_partitions(topic, 3)) == 37


@scenario
def grown_unknown(case: Case) -> None:
    """A topic that does not exist does not grow: UNKNOWN_TOPIC_OR_PARTITION (3)."""
    topic = case.name()
    assert case.refusal(lambda: case.client.create_partitions(topic, 2)) == 3


@scenario
def grown_with_assignment(case: Case) -> None:
    """New partitions take replicas chosen by hand; a wrong number of them: INVALID_REPLICA_ASSIGNMENT (39)."""
    (node,) = case.client.describe_cluster().nodes
    topic = case.topic()
    assert case.refusal(lambda: case.client.create_partitions(topic, 3, [[node]])) == 39
    case.client.create_partitions(topic, 3, [[node], [node]])
    case.until(lambda: len(case.client.describe_topic(topic).partitions) == 3)


@scenario
def growing_only_validated(case: Case) -> None:
    """Growing with validate.only answers, and adds nothing."""
    topic = case.topic()
    case.client.create_partitions(topic, 4, validate_only=True)
    assert case.refusal(lambda: case.client.create_partitions(topic, 1, validate_only=True)) == 37
    assert len(case.client.describe_topic(topic).partitions) == 1


@scenario
def described_unknown(case: Case) -> None:
    """A topic that does not exist is not described: UNKNOWN_TOPIC_OR_PARTITION (3)."""
    topic = case.name()
    if case.client.name == "aiokafka":
        raise NotOffered("aiokafka cannot describe a topic without creating it")
    assert case.refusal(lambda: case.client.describe_topic(topic)) == 3


@scenario
def described_by_id(case: Case) -> None:
    """A topic is described by its id, which is another one when it is made anew (KIP-516)."""
    topic = case.topic(partitions=2)
    first = case.client.describe_topic(topic).id or ""
    assert set(case.client.describe_topic_by_id(first).partitions) == {0, 1}
    case.client.delete_topic(topic)
    case.until(lambda: topic not in case.client.topics())
    case.client.create_topic(topic)
    case.until(lambda: case.client.describe_topic(topic).id not in (None, first))
    assert case.refusal(lambda: case.client.describe_topic_by_id(first)) == 100


@scenario
def deleted_by_id(case: Case) -> None:
    """A topic is deleted by its id; an unknown id is refused with UNKNOWN_TOPIC_ID (100)."""
    topic = case.topic()
    topic_id = case.client.describe_topic(topic).id or ""
    case.client.delete_topic_by_id(topic_id)
    case.until(lambda: topic not in case.client.topics())
    assert case.refusal(lambda: case.client.delete_topic_by_id(topic_id)) == 100


@scenario
def cluster_described(case: Case) -> None:
    """The cluster has an id, and a controller that is one of its nodes."""
    found = case.client.describe_cluster()
    assert found.id
    assert found.controller in found.nodes


@scenario
def offsets_topic_is_internal(case: Case) -> None:
    """The topic of committed offsets is there and internal."""
    topic, group = case.topic(), case.name()
    consumer = case.client.consumer(group)
    consumer.assign(topic, {0: 0})
    consumer.commit({(topic, 0): (0, "")})
    found = case.client.describe_topic("__consumer_offsets")
    assert found.internal is not False
    assert found.partitions
