"""The metadata cache: when a refresh is due, what it stores, and what it forgets."""

from __future__ import annotations

import uuid
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from triokafka.backoff import Backoff
from triokafka.network.metadata import Cluster, Metadata  # type: ignore[attr-defined]
from triokafka.protocol.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from triokafka.structs import Node, TopicPartition

TP = TopicPartition("t", 0)


def holder(**more: Any) -> Metadata:
    return Metadata(
        **{"max_age": 300.0, "max_idle": 100.0, "backoff": Backoff(1.0, 8.0), "chance": lambda: 0.5, **more}
    )


def answer(
    *leaders: int, epoch: int = 5, name: str = "t", error: int = 0, topic_id: int = 7, brokers: int = 2
) -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(
            error_code=0 if leader >= 0 else 5,
            partition_index=i,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[1, 2],
            isr_nodes=[1],
            offline_replicas=[],
        )
        for i, leader in enumerate(leaders)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=i + 1, host="h", port=9000 + i) for i in range(brokers)],
        cluster_id="c",
        controller_id=1,
        topics=[
            MetadataResponseTopic(error_code=error, name=name, topic_id=uuid.UUID(int=topic_id), partitions=partitions)
        ],
    )


def test_partition_of_a_topic_is_a_value_that_never_changes() -> None:
    assert {TP: "found"}[TopicPartition("t", 0)] == "found"
    assert len({TP, TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)}) == 3
    with pytest.raises(AttributeError):
        TP.partition = 1  # type: ignore[misc]


def test_no_refresh_is_due_before_a_request_for_topics() -> None:
    assert holder().time_to_next_update(0.0) == float("inf")


def test_new_topic_is_requested_at_once_and_a_known_one_is_not() -> None:
    metadata = holder()
    assert metadata.use_topic("t", 10.0)
    assert metadata.time_to_next_update(10.0) == 0
    assert metadata.begin_update(10.0) == ["t"]
    metadata.update(answer(1), ["t"], 10.0)
    assert not metadata.use_topic("t", 11.0)
    assert metadata.time_to_next_update(11.0) == pytest.approx(299.0)


def test_new_pinned_topic_is_requested_without_a_back_off_unless_refreshes_fail() -> None:
    metadata = holder()
    metadata.update(answer(1), None, 10.0)
    metadata.set_topics(["u"])
    assert metadata.time_to_next_update(10.0) == 0
    metadata.failed_update(10.0)
    metadata.set_topics(["u", "v"])
    assert metadata.time_to_next_update(10.0) == 1


def test_refresh_is_due_after_max_age() -> None:
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.begin_update(10.0)
    metadata.update(answer(1), ["t"], 10.0)
    assert metadata.time_to_next_update(309.0) == pytest.approx(1.0)
    assert metadata.time_to_next_update(310.0) == 0


def test_forced_refresh_waits_for_the_back_off() -> None:
    metadata = holder()
    metadata.update(answer(1), None, 10.0)
    metadata.request_update()
    assert metadata.time_to_next_update(10.3) == pytest.approx(0.7)
    assert metadata.time_to_next_update(11.0) == 0


def test_back_off_grows_with_failures_and_ends_with_success() -> None:
    metadata = holder()
    metadata.use_topic("t", 0.0)
    waits = []
    for _ in range(6):
        metadata.failed_update(0.0)
        waits.append(metadata.time_to_next_update(0.0))
    assert waits == [1, 2, 4, 8, 8, 8]
    metadata.update(answer(1), ["t"], 0.0)
    metadata.request_update()
    assert metadata.time_to_next_update(0.0) == 1


def test_version_grows_with_success_only() -> None:
    """A failure is recorded, and changes nothing else."""
    metadata = holder()
    metadata.request_update()
    metadata.failed_update(0.0)
    assert metadata.version == 0
    assert metadata.update_requested
    metadata.begin_update(1.0)
    metadata.update(answer(1), None, 1.0)
    assert metadata.version == 1
    assert not metadata.update_requested


def test_answer_without_brokers_counts_as_failed() -> None:
    metadata = holder()
    metadata.update(answer(1), None, 0.0)
    assert not metadata.update(answer(1, brokers=0), None, 1.0)
    assert metadata.version == 1
    assert metadata.cluster.nodes


def test_snapshot_distinguishes_all_partitions_from_those_with_a_leader() -> None:
    metadata = holder()
    metadata.update(answer(1, -1, 2), None, 0.0)
    topic = metadata.topics["t"]
    assert list(topic.partitions) == [0, 1, 2]
    assert topic.available == (0, 2)
    assert metadata.cluster.leader_for(TopicPartition("t", 1)) == -1
    assert metadata.update_requested  # a leader is missing, so a refresh is requested


def test_leader_whose_address_is_unknown_counts_as_none() -> None:
    metadata = holder()
    metadata.update(answer(9), None, 0.0)
    assert metadata.cluster.leader_for(TP) == -1


def test_older_epoch_never_replaces_a_newer_one() -> None:
    """KIP-320."""
    metadata = holder()
    metadata.update(answer(2, epoch=5), None, 0.0)
    metadata.update(answer(1, epoch=4), None, 1.0)
    assert metadata.cluster.leader_for(TP) == 2
    metadata.update(answer(1, epoch=6), None, 2.0)
    assert metadata.cluster.leader_for(TP) == 1


def test_recreated_topic_starts_with_new_epochs() -> None:
    metadata = holder()
    metadata.update(answer(2, epoch=5), None, 0.0)
    metadata.update(answer(1, epoch=0, topic_id=8), None, 1.0)
    assert metadata.cluster.leader_for(TP) == 1


def test_topic_without_an_id_from_an_older_broker_keeps_its_epochs() -> None:
    """In a mixed cluster the id appears and disappears; the topic is still the same."""
    metadata = holder()
    metadata.update(answer(2, epoch=5, topic_id=0), None, 0.0)
    metadata.update(answer(1, epoch=4, topic_id=7), None, 1.0)
    assert metadata.cluster.leader_for(TP) == 2


def test_leader_epochs_of_old_metadata_versions_are_ignored() -> None:
    """Before version 9 of Metadata they may be outdated (KIP-320)."""
    metadata = holder()
    metadata.update(answer(2, epoch=5), None, 0.0, version=8)
    assert metadata.cluster.leader_epoch_for(TP) == -1
    metadata.update(answer(2, epoch=5), None, 1.0, version=9)
    metadata.update(answer(1, epoch=4), None, 2.0, version=8)
    assert metadata.cluster.leader_for(TP) == 1


def test_leader_named_by_an_error_reply_is_taken_if_it_is_newer() -> None:
    """KIP-951."""
    metadata = holder()
    metadata.update(answer(1, epoch=5), None, 0.0)
    before = metadata.cluster
    assert not metadata.update_leader(TP, 2, 5, None)
    assert not metadata.update_leader(TP, 9, 6, None)
    assert metadata.update_leader(TP, 9, 6, Node(9, "n", 1))
    assert metadata.cluster.leader_for(TP) == 9
    assert before.leader_for(TP) == 1  # a snapshot never changes


def test_large_response_is_applied_in_steps_and_a_leader_set_between_them_stays() -> None:
    metadata = holder()
    metadata.update(answer(1, epoch=5), None, 0.0)
    response = answer(2, epoch=5)
    response.topics += [answer(1, name=f"t{number}").topics[0] for number in range(10_000)]
    before, steps = metadata.cluster, 0
    for _ in metadata.update_in_steps(response, None, 1.0):
        steps += 1
        assert metadata.cluster.topics.keys() == before.topics.keys()
        if steps == 2:
            assert metadata.update_leader(TP, 1, 6, None)
    assert steps > 50
    assert len(metadata.topics) == 10_001 and metadata.version == 2
    assert (metadata.cluster.leader_for(TP), metadata.cluster.leader_epoch_for(TP)) == (1, 6)


def test_topic_of_many_partitions_is_applied_in_steps_and_a_leader_set_between_them_stays() -> None:
    metadata = holder()
    metadata.update(answer(1, epoch=5), None, 0.0)
    response = answer(*[2] * 10_000, epoch=5)
    steps = 0
    for _ in metadata.update_in_steps(response, None, 1.0):
        steps += 1
        assert metadata.cluster.partition_count("t") == 1
        if steps == 40:
            assert metadata.update_leader(TP, 1, 6, None)
    assert steps > 45
    assert metadata.cluster.partition_count("t") == 10_000
    assert (metadata.cluster.leader_for(TP), metadata.cluster.leader_epoch_for(TP)) == (1, 6)
    assert metadata.cluster.leader_for(TopicPartition("t", 9_999)) == 2


def test_unused_topic_is_forgotten() -> None:
    """KIP-526."""
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.use_topic("u", 0.0)
    metadata.update(answer(1), ["t", "u"], 0.0)
    metadata.use_topic("u", 90.0)
    assert metadata.begin_update(150.0) == ["u"]
    assert "t" not in metadata.topics


def test_new_topic_is_requested_alone() -> None:
    """A client that uses many topics, one after the other, requests each of them once (KIP-526)."""
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.update(answer(1, name="t"), metadata.begin_update(0.0), 0.0)
    metadata.use_topic("u", 100.0)
    assert metadata.begin_update(100.0) == ["u"]
    metadata.update(answer(2, name="u"), ["u"], 100.0)
    assert set(metadata.topics) == {"u", "t"}
    assert not metadata.update_requested
    # of both topics, whatever was requested meanwhile
    assert metadata.time_to_next_update(100.0) == pytest.approx(200.0)
    for topic in ("t", "u"):
        metadata.use_topic(topic, 290.0)
    assert metadata.begin_update(300.0) == ["t", "u"]


def test_new_topic_is_requested_with_the_others_when_all_are_due() -> None:
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.update(answer(1, name="t"), metadata.begin_update(0.0), 0.0)
    metadata.use_topic("u", 1.0)
    metadata.request_update()
    assert metadata.begin_update(1.0) == ["t", "u"]
    metadata.failed_update(1.0)
    metadata.use_topic("v", 2.0)
    assert metadata.begin_update(9.0) == ["t", "u", "v"]
    metadata.update(answer(1, name="t"), ["t", "u", "v"], 9.0)
    assert metadata.begin_update(20.0) == ["t", "u", "v"]


def test_new_topic_without_answer_yet_is_requested_again_alone() -> None:
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.update(answer(1, name="t"), metadata.begin_update(0.0), 0.0)
    metadata.use_topic("u", 1.0)
    for now in (1.0, 9.0):
        assert metadata.begin_update(now) == ["u"]
        metadata.update(answer(name="u", error=3), ["u"], now)
        assert metadata.update_requested
    assert list(metadata.topics) == ["t"]


def test_error_code_of_a_topic_is_described_in_words() -> None:
    metadata = holder()
    metadata.use_topic("a b", 0.0)
    metadata.update(answer(name="a b", error=17), metadata.begin_update(0.0), 0.0)
    assert str(metadata.error_for("a b")) == "topic 'a b': the topic name is not allowed, or the topic is internal"


def test_error_of_one_topic_remains_while_another_is_requested() -> None:
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.update(answer(name="t", error=29), metadata.begin_update(0.0), 0.0)
    metadata.use_topic("u", 1.0)
    metadata.update(answer(1, name="u"), metadata.begin_update(1.0), 1.0)
    assert type(metadata.error_for("t")).__name__ == "TopicAuthorizationFailedError"
    metadata.forget_errors(["t"])
    assert metadata.error_for("t") is None


def test_topic_without_partitions_is_invalid() -> None:
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.update(answer(name="t"), metadata.begin_update(0.0), 0.0)
    assert "t" not in metadata.topics
    assert metadata.update_requested


def test_topic_named_while_a_request_is_on_its_way_is_requested_next() -> None:
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.use_topic("u", 0.1)
    metadata.update(answer(1), ["t"], 1.0)
    assert metadata.update_requested
    assert metadata.begin_update(1.0) == ["t", "u"]


def test_refresh_that_is_requested_while_one_is_under_way_follows_it() -> None:
    """The response in flight may be older than what the caller has seen."""
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.begin_update(0.0)
    metadata.request_update()
    metadata.update(answer(1), ["t"], 1.0)
    assert metadata.update_requested
    metadata.begin_update(2.0)
    metadata.update(answer(1), ["t"], 2.0)
    assert not metadata.update_requested


def test_topic_that_the_response_leaves_out_stays_known_and_is_requested_again() -> None:
    metadata = holder()
    for topic in ("t", "u"):
        metadata.use_topic(topic, 0.0)
        metadata.begin_update(0.0)
        metadata.update(answer(1, name=topic), metadata.begin_update(0.0), 0.0)
    assert set(metadata.topics) == {"t", "u"}
    metadata.begin_update(1.0)
    metadata.update(answer(2, epoch=6, name="u"), ["t", "u"], 1.0)
    assert set(metadata.topics) == {"t", "u"}
    assert metadata.update_requested
    metadata.begin_update(2.0)
    metadata.update(answer(1, name="t", error=3), ["t"], 2.0)
    assert set(metadata.topics) == {"u"}  # an authorization error removes it


def test_snapshot_never_changes() -> None:
    metadata = holder()
    metadata.update(answer(1, -1), None, 0.0)
    snapshot = metadata.cluster
    partition = snapshot.partition(TP)
    assert partition is not None
    for frozen, name in ((snapshot, "nodes"), (snapshot.topics["t"], "name"), (partition, "leader")):
        with pytest.raises(FrozenInstanceError):
            setattr(frozen, name, None)
    assert snapshot.nodes[1] == Node(1, "h", 9000)
    assert hash(TP) == hash(TopicPartition("t", 0))
    metadata.update(answer(2, -1, epoch=9), None, 1.0)
    assert snapshot.leader_for(TP) == 1
    assert metadata.cluster is not snapshot


def test_error_of_a_topic_is_reported_and_a_transient_one_requested_again() -> None:
    metadata = holder()
    metadata.update(answer(error=29), None, 0.0)
    assert type(metadata.error_for("t")).__name__ == "TopicAuthorizationFailedError"
    assert not metadata.update_requested
    metadata.update(answer(error=3), None, 1.0)
    assert metadata.update_requested
    assert "t" not in metadata.topics


def test_listeners_receive_every_snapshot() -> None:
    metadata = holder()
    snapshots: list[Cluster] = []
    metadata.add_listener(snapshots.append)
    metadata.update(answer(1), None, 0.0)
    metadata.update_leader(TP, 2, 6, None)
    assert [cluster.leader_for(TP) for cluster in snapshots] == [1, 2]


def test_snapshot_names_the_changed_topics() -> None:
    """A listener with many topics need not compare all of them for each new one."""
    metadata = holder()
    metadata.use_topic("t", 0.0)
    metadata.update(answer(1, name="t"), metadata.begin_update(0.0), 0.0)
    assert metadata.cluster.changed is None
    metadata.use_topic("u", 1.0)
    metadata.use_topic("v", 1.0)
    response = answer(1, name="u")
    response.topics += answer(error=29, name="v").topics
    metadata.update(response, metadata.begin_update(1.0), 1.0)
    assert metadata.cluster.changed == {"u", "v"}
    assert set(metadata.topics) == {"t", "u"}
    metadata.update_leader(TP, 2, 6, None)
    assert metadata.cluster.changed == {"t"}
    metadata.request_update()
    metadata.update(answer(1, name="t"), metadata.begin_update(2.0), 2.0)
    assert metadata.cluster.changed is None


def test_all_topics_are_requested_with_a_null_list() -> None:
    metadata = holder()
    metadata.set_all_topics(True)
    assert metadata.update_requested
    assert metadata.begin_update(0.0) is None
    metadata.set_all_topics(False)
    metadata.set_topics(["a"])
    assert metadata.begin_update(0.0) == ["a"]
