"""Brokers that refuse requests, respond late or never, with a batch and a micro-batch: transient errors lose and repeat
no row, permanent ones are raised at once (`fetchOffset.numRetries`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.spark.changing_topics import Topic
from tests.spark.engine import StandInQuery, values
from tests.spark.topics import Record
from triokafka.errors import KafkaError, KafkaTimeoutError, TopicAuthorizationFailedError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.reading.topic_reader import TopicReader
from triokafka.testing.blocking import BlockingBroker, BlockingCluster, running_broker, running_cluster

COUNT = 200
QUICK = {
    "fetchOffset.retryIntervalMs": "10", "startingOffsets": "earliest", "kafka.retry.backoff.ms": "10",
    "kafka.retry.backoff.max.ms": "20", "kafka.request.timeout.ms": "300", "kafka.fetch.max.wait.ms": "100",
    "kafka.reconnect.backoff.ms": "10", "kafka.reconnect.backoff.max.ms": "20",
}  # fmt: skip

Harm = Callable[[BlockingBroker, str], object]


def refused(api: str, *errors: str) -> dict[str, Harm]:
    """Return each of the errors twice, for the test's topic."""
    return {
        f"{api}: {error}": lambda broker, topic, error=error: broker.fail_next(api, error, topic=topic, times=2)  # type: ignore[misc]
        for error in errors
    }


PASSES: dict[str, Harm] = {
    # A new topic is not known to all brokers, or has no leader yet.
    **refused("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE"),
    **refused(
        "ListOffsets",
        "NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR", "REPLICA_NOT_AVAILABLE",
    ),
    **refused(
        "Fetch",
        "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID", "KAFKA_STORAGE_ERROR", "REPLICA_NOT_AVAILABLE",
        "UNKNOWN_SERVER_ERROR", "OFFSET_OUT_OF_RANGE",
    ),
    **{
        f"{api}: {name}": lambda broker, topic, api=api, act=act: act(broker, api)  # type: ignore[misc]
        for api in ("Metadata", "ListOffsets", "Fetch")
        for name, act in {
            "no answer": lambda broker, api: broker.drop_replies(api, times=1),
            "late answer": lambda broker, api: broker.delay_replies(api, delay_ms=600, times=1),
            "connection closed before": lambda broker, api: broker.close_on(api, at="before", times=2),
            "connection closed within the answer": lambda broker, api: broker.close_on(api, at="within", times=2),
        }.items()
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def topic(broker: BlockingBroker) -> Iterator[Topic]:
    made = Topic(broker.bootstrap_servers, 2, name=None)
    made.write(Record(b"%d" % value, partition=value % 2) for value in range(COUNT))
    yield made
    broker.reset()


def options(topic: Topic, **more: str) -> dict[str, str]:
    # Its own connections: no metadata of the previous test.
    own = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, "kafka.client.id": topic.name}
    return {**own, **QUICK, **more}


def read(made: TopicReader, plan: Sequence[object]) -> list[int]:
    return sorted(int(value) for task in plan for batch in made.read(task) for value in batch["value"].to_pylist())


@pytest.mark.parametrize("name", PASSES)
def test_transient_errors_lose_no_row_of_a_batch(broker: BlockingBroker, topic: Topic, name: str) -> None:
    made = TopicReader(ReadOptions.parse(options(topic)))
    PASSES[name](broker, topic.name)
    assert read(made, made.partitions()) == list(range(COUNT))


@pytest.mark.parametrize(
    "name",
    # A few of each kind; all of them in the long profile.
    [pytest.param(name, marks=() if place % 4 == 1 else pytest.mark.long) for place, name in enumerate(PASSES)],
)
def test_transient_errors_lose_no_row_of_a_streaming_query(
    broker: BlockingBroker, topic: Topic, tmp_path: Path, name: str
) -> None:
    """The errors also happen during the query, when the metadata are known."""
    asked = StandInQuery(tmp_path, options(topic, maxOffsetsPerTrigger="100"))
    asked.in_batch = lambda number: PASSES[name](broker, topic.name)  # type: ignore[assignment]
    PASSES[name](broker, topic.name)
    asked.start()
    asked.process_all()
    assert values(asked) == list(range(COUNT))
    assert len(asked.batches) == 2


FOR_GOOD: list[tuple[str, str, type[KafkaError]]] = [
    ("Metadata", "TOPIC_AUTHORIZATION_FAILED", TopicAuthorizationFailedError),
    ("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", TopicAuthorizationFailedError),
    ("Fetch", "TOPIC_AUTHORIZATION_FAILED", TopicAuthorizationFailedError),
]


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize(("api", "error", "raised"), FOR_GOOD)
def test_read_of_an_unauthorized_topic_fails_at_once(
    broker: BlockingBroker, topic: Topic, tmp_path: Path, api: str, error: str, raised: type[KafkaError], fails: str
) -> None:
    """An unauthorized read does not count as data loss, and is not retried."""
    given = options(topic, failOnDataLoss=fails)
    broker.fail_next(api, error, topic=topic.name, times=-1)
    made = TopicReader(ReadOptions.parse(given))
    with pytest.raises(raised, match=topic.name):
        read(made, made.partitions())
    asked = StandInQuery(tmp_path, given)
    with pytest.raises(raised, match=topic.name):
        asked.start()
        asked.process_all()
    broker.reset()
    asked.start()
    asked.process_all()
    assert values(asked) == list(range(COUNT))


@pytest.mark.timeout(60)  # half of the time that a task waits for progress
def test_topic_unauthorized_after_planning_fails_its_tasks_at_once(broker: BlockingBroker, topic: Topic) -> None:
    made = TopicReader(ReadOptions.parse(options(topic)))
    plan = made.partitions()
    broker.fail_next("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic=topic.name, times=-1)
    with pytest.raises(TopicAuthorizationFailedError, match=topic.name):
        read(made, plan)


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("error", ["OFFSET_OUT_OF_RANGE", "NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR"])
def test_permanent_error_fails_a_task_after_its_retries(
    broker: BlockingBroker, topic: Topic, error: str, fails: str
) -> None:
    """The result is never short; and a leader that always denies an offset that exists is not data loss."""
    given = options(topic, failOnDataLoss=fails, **{"kafkaConsumer.pollTimeoutMs": "400"})
    made = TopicReader(ReadOptions.parse(given))
    plan = made.partitions()
    broker.fail_next("Fetch", error, topic=topic.name, times=-1)
    with pytest.raises(KafkaTimeoutError, match=r"no progress.*kafkaConsumer\.pollTimeoutMs"):
        read(made, plan)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with running_cluster(3) as running:
        yield running


@pytest.mark.parametrize("act", ["moved", "stopped", "killed"])
def test_a_change_of_leader_loses_no_row(cluster: BlockingCluster, tmp_path: Path, act: str) -> None:
    """In the middle of a task, and between the batches of a query, another broker becomes the leader, with another
    epoch.
    """
    topic = Topic(cluster.bootstrap_servers, 2)
    topic.write(Record(b"%0300d" % value, partition=value % 2) for value in range(4_000))

    def change() -> None:
        for partition in range(2):
            leader = cluster.leader(topic.name, partition)
            if act == "moved":
                cluster.move_leader(topic.name, partition)
            else:
                cluster.restart(leader, clean=act == "stopped", move=True)

    little = {"kafka.prefetch.max.bytes": "65536", "kafka.max.partition.fetch.bytes": "32768", "batchRows": "100"}
    made = TopicReader(ReadOptions.parse(options(topic, **little, maxPartitions="1")))
    (task,) = made.partitions()
    found: list[int] = []
    for number, batch in enumerate(made.read(task)):
        if number == 2:
            change()
        found += map(int, batch["value"].to_pylist())
    assert sorted(found) == list(range(4_000))
    asked = StandInQuery(tmp_path, options(topic, maxOffsetsPerTrigger="1000"))
    asked.in_batch = lambda number: change() if number == 1 else None
    asked.planned = lambda number: change() if number == 3 else None
    asked.start()
    asked.process_all()
    assert values(asked) == list(range(4_000))
    assert len(asked.batches) == 4


def test_missing_topic_is_reported_after_the_retries(broker: BlockingBroker, topic: Topic) -> None:
    broker.fail_next("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=topic.name, times=-1)
    made = TopicReader(ReadOptions.parse(options(topic, **{"fetchOffset.numRetries": "3"})))
    with pytest.raises(KafkaError, match=f"topic '{topic.name}' does not exist"):
        made.partitions()
    broker.reset()
    assert read(made, made.partitions()) == list(range(COUNT))
