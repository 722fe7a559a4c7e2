"""Replication throttles, and consumers that read from followers (KIP-392)."""

from __future__ import annotations

import pytest

from tests.unit.broker_stub.replica.logs import NODE, append, leader
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.replica.replica_selector import RACK_AWARE, RackAwareSelector
from triokafka.broker_stub.replica.replication_quota import ReplicationQuota
from triokafka.errors import ConfigurationError
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def image(rate: str, replicas: str, *, broker: str = str(NODE)) -> MetadataImage:
    return MetadataImage(
        configs={
            (int(ConfigResourceType.BROKER), broker): {"leader.replication.throttled.rate": rate},
            (int(ConfigResourceType.TOPIC), "t"): {"leader.replication.throttled.replicas": replicas},
        }
    )


def quota(rate: str = "100", replicas: str = f"0:{NODE}, 1:7", *, broker: str = str(NODE)) -> ReplicationQuota:
    found = ReplicationQuota("leader", NODE)
    found.configure(image(rate, replicas, broker=broker))
    return found


def test_listed_replicas_of_this_broker_are_throttled() -> None:
    found = quota()
    assert found.applies_to(T0) and not found.applies_to(T1)
    assert not found.applies_to(TopicPartition("u", 0))
    assert quota(replicas="*").applies_to(T1)
    assert quota(broker="").applies_to(T0), "the rate of all brokers"


def test_a_throttle_ends_when_the_average_has_fallen() -> None:
    found = quota()
    found.record(T1, 10_000, 0.0)
    assert not found.holds_back(T0, 0.0), "other replicas do not count"
    found.record(T0, 100, 0.0)
    assert not found.holds_back(T0, 0.0), "a second's bytes may come at once"
    found.record(T0, 300, 0.5)
    assert found.holds_back(T0, 0.5) and not found.holds_back(T1, 0.5)
    assert found.holds_back(T0, 2.9)
    assert not found.holds_back(T0, 3.1)


@pytest.mark.parametrize("size", [10, 250, 5_000])
def test_throttled_replicas_get_their_rate_without_jumps(size: int) -> None:
    """Fetches of any size: in every ten seconds within a tenth of the limit, or one fetch."""
    found, sent = quota(), list[tuple[float, int]]()
    for step in range(6_000):
        now = step / 10
        if not found.holds_back(T0, now):
            found.record(T0, size, now)
            sent.append((now, size))
    assert sum(size for _, size in sent) == pytest.approx(600 * 100, rel=0.1)
    for begin in range(20, 590):
        within = sum(size for at, size in sent if begin <= at < begin + 10)
        assert within <= 1.1 * 1_000 + size


def test_another_rate_holds_at_once() -> None:
    found = quota(rate="10")
    found.record(T0, 100_000, 0.0)
    assert found.holds_back(T0, 60.0)
    found.configure(image("1000000", f"0:{NODE}"))
    assert not found.holds_back(T0, 60.0)


def test_without_a_rate_or_replicas_nothing_is_limited() -> None:
    assert not quota(rate="").is_limited
    assert not quota(replicas="").is_limited
    assert not ReplicationQuota("follower", NODE).is_limited


def test_a_consumer_is_sent_to_an_in_sync_follower_in_its_rack_that_has_the_offset() -> None:
    partition = leader(replicas=(NODE, 2, 3, 4), isr=(NODE, 2, 3))
    append(partition, b"1", b"2")
    select = RackAwareSelector("a", {2: "b", 3: "b", 4: "c"}.get)
    assert select(partition, 0, "b") is None, "no follower has fetched"
    partition.follower_fetched(2, 1, 1.0, log_start_offset=0)
    partition.follower_fetched(3, 2, 1.0, log_start_offset=1)
    partition.follower_fetched(4, 2, 1.0, log_start_offset=0)
    assert select(partition, 0, "b") == 2
    assert select(partition, 2, "b") == 3
    assert select(partition, 1, "a") is None, "the leader is in that rack"
    assert select(partition, 1, "c") is None, "not in sync"


def test_an_unknown_selector_is_refused() -> None:
    assert BrokerConfig.for_tests(replica_selector_class=RACK_AWARE).replica_selector_class == RACK_AWARE
    with pytest.raises(ConfigurationError, match=r"replica\.selector\.class"):
        BrokerConfig.for_tests(replica_selector_class="com.example.Mine")


def test_lists_of_changed_topics_are_read_and_others_stay() -> None:
    found, topic = quota(), (int(ConfigResourceType.TOPIC), "t")
    after = image("100", f"1:{NODE}")
    found.configure(after, [])
    assert found.applies_to(T0) and not found.applies_to(T1)
    found.configure(after, [topic])
    assert found.applies_to(T1) and not found.applies_to(T0)
    found.configure(MetadataImage(configs={key: after.configs[key] for key in after.configs if key != topic}), [topic])
    assert not found.is_limited
