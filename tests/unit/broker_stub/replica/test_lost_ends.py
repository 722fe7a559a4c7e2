"""LostEnds: when a replica that lost the end of its log leads in spite of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from triokafka.broker_stub.replica.lost_ends import LostEnds
from triokafka.structs import TopicPartition

KEY = TopicPartition("orders", 0)


def test_replica_leads_as_soon_as_no_other_one_is_eligible_any_more() -> None:
    """The other broker has registered after a kill, and is no eligible leader since then."""
    state = SimpleNamespace(leader=1, replicas=(1, 2), isr=(1,), eligible_leader_replicas=(2,))
    image = SimpleNamespace(partition=lambda topic, number: state, brokers={})
    partition = cast(Any, SimpleNamespace(topic_partition=KEY, log=SimpleNamespace(log_end_offset=5, lost_end=9)))
    ends = LostEnds(1, lambda: cast(Any, image), lambda: False, lambda: 0.0)
    led: list[TopicPartition] = []
    assert ends.yields(partition, cast(Any, state))
    ends.review(led.append)
    assert led == []
    state.eligible_leader_replicas = ()
    ends.review(led.append)
    assert led == [KEY]
    assert not ends.yields(partition, cast(Any, state))
    assert not ends.waits
