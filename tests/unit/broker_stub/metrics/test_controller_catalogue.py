"""The metrics of a controller."""

from __future__ import annotations

from typing import Any

from tests.unit.broker_stub.clusters import broker, cluster, replayed, topic
from triokafka.broker_stub.controller.controller_metrics import ElectionCounts, count_partitions
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metrics.prometheus import as_prometheus_text
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord
from triokafka.testing import running_broker


def change(image: MetadataImage, counts: ElectionCounts, **fields: Any) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay(PartitionChangeRecord(partition_id=0, topic_id=image.topics["t"].topic_id, **fields))
    after = delta.image(image.offset + 1, 1)
    counts.metadata_changed(delta, after)
    return after


def test_elections_from_outside_the_in_sync_set_are_counted() -> None:
    counts = ElectionCounts()
    image = cluster(topic("t", [1, 2, 3]), brokers=(1, 2, 3))
    image = change(image, counts, leader=2)
    assert (counts.unclean, counts.from_eligible_replicas) == (0, 0)
    image = change(image, counts, leader=-1, isr=[], eligible_leader_replicas=[3])
    image = change(image, counts, leader=3, isr=[3])
    assert (counts.unclean, counts.from_eligible_replicas) == (0, 1)
    image = change(image, counts, leader=1, isr=[1])
    assert (counts.unclean, counts.from_eligible_replicas) == (1, 1)


def test_partitions_without_a_leader_or_with_another_than_the_preferred_one_are_counted() -> None:
    image = cluster(topic("t", [1, 2], [2, 1], leader=1), broker(2, fenced=True), brokers=(1,))
    image = replayed(topic("u", [2], leader=-1, number=8), image)
    assert count_partitions(image) == (3, 1, 2)


async def test_node_that_controls_shows_the_controllers_metrics() -> None:
    async with running_broker() as target:
        text = as_prometheus_text(target.broker.metrics())
    lines = text.splitlines()
    for line in (
        "kafka_controller_kafkacontroller_activecontrollercount 1",
        "kafka_controller_kafkacontroller_activebrokercount 1",
        "kafka_controller_kafkacontroller_fencedbrokercount 0",
        "kafka_controller_kafkacontroller_offlinepartitionscount 0",
        "kafka_controller_controllerstats_uncleanleaderelections_total 0",
        "kafka_server_raft_metrics_number_of_voters 1",
        "kafka_server_metadataloader_currentcontrollerid 1",
    ):
        assert line in lines
    assert any(line.startswith("kafka_controller_controllereventmanager_eventqueuetimems_count ") for line in lines)
