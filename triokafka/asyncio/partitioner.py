"""The partitioner of ``aiokafka.partitioner``."""

from __future__ import annotations

import random
from collections.abc import Sequence

from triokafka.records.kernel import murmur2

__all__ = ["DefaultPartitioner", "murmur2"]


class DefaultPartitioner:
    """By the murmur2 hash of the key as in Java; random without a key.

    As the ``partitioner`` of a producer, it stands for the SDK's own choice, which differs in one point: records
    without key stay on one partition until a batch is full (KIP-480, KIP-794). Derive from it to get random ones.
    """

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """Return the partition for a serialized key."""
        if key is None:
            return random.choice(available or all_partitions)
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]
