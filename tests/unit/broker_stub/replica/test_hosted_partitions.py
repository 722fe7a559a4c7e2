"""Which waiting requests a change of the in-sync set checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.in_sync_replicas import IsrProposal
from triokafka.broker_stub.replica.partition import Partition
from triokafka.structs import TopicPartition

PARTITION = TopicPartition("orders", 0)


class Checks:
    """A purgatory that counts its checks."""

    def __init__(self) -> None:
        self.count = 0

    def check_and_complete(self, key: object) -> int:
        """Count."""
        self.count += 1
        return 0


def unexpected(partition: Partition, proposal: IsrProposal) -> None:
    raise AssertionError(f"{partition} proposes {proposal}")


@pytest.mark.parametrize("rose", [False, True])
def test_changed_in_sync_set_checks_fetches_only_if_the_high_watermark_rose(*, rose: bool) -> None:
    """A fetch of a follower may be of thousands of partitions, and thousands of in-sync sets change with a restart."""
    produces: Any = Checks()
    fetches: Any = Checks()
    deletions: Any = Checks()
    hosted = HostedPartitions(produces, fetches, deletions, None, lambda: 0.0, propose=unexpected)
    partition: Any = SimpleNamespace(
        topic_partition=PARTITION, followers={}, high_watermark=1, advance_high_watermark=lambda now: rose
    )
    hosted.isr_changed(partition)
    assert (produces.count, fetches.count, deletions.count) == (1, int(rose), 1)
