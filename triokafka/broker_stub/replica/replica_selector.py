"""The choice of a replica for a consumer to read from (KIP-392, ``replica.selector.class``). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from triokafka.broker_stub.replica.partition import Partition

ReplicaSelector = Callable[[Partition, int, str], int | None]
"""Returns the broker that a consumer in a rack should read a partition from at an offset; None for the leader."""

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class RackAwareSelector:
    """Selects an in-sync follower in the consumer's rack that has the offset; the leader if it is in that rack.

    Args:
        own_rack: the rack of this broker.
        rack_of: returns the rack of another broker that is up; None when it has none or is down.
    """

    def __init__(self, own_rack: str | None, rack_of: Callable[[int], str | None]) -> None:
        self._own_rack = own_rack
        self._rack_of = rack_of

    def __call__(self, partition: Partition, offset: int, rack: str) -> int | None:
        """See `ReplicaSelector`. Chooses the follower with the highest log end offset."""
        if rack == self._own_rack:
            return None
        candidates: Mapping[int, int] = {
            replica: follower.log_end_offset
            for replica, follower in partition.followers.items()
            if replica in partition.in_sync_replicas
            and follower.log_start_offset <= offset <= follower.log_end_offset
            and self._rack_of(replica) == rack
        }
        return max(candidates, key=lambda replica: (candidates[replica], -replica), default=None)
