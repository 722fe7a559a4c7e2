"""Choice of the partition for a record without an explicit one. Pure: randomness is an argument."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.records.kernel import murmur2
from triokafka.structs import Buffer

_LARGEST_CACHED_KEY: Final = 64
_MOST_CACHED_KEYS: Final = 16_384


class KeyHash:
    """``murmur2`` without the sign bit, cached for short keys, because real streams repeat keys."""

    def __init__(self) -> None:
        self._known: dict[Buffer, int] = {}

    def __call__(self, key: Buffer) -> int:
        if type(key) is not bytes or len(key) > _LARGEST_CACHED_KEY:
            return murmur2(key) & 0x7FFFFFFF
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_CACHED_KEYS:
                self._known.clear()
            found = self._known[key] = murmur2(key) & 0x7FFFFFFF
        return found


class Partitioner(ABC):
    """The plug-in interface (option ``partitioner``). Called for every record without an explicit partition."""

    def configure(self, config: Mapping[str, Any]) -> None:  # noqa: B027 - not every partitioner has something to set
        """Receive the producer's options and ``plugin_options`` once, at construction."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        """Return one of ``partitions``. ``key`` and ``value`` are serialized; ``available`` partitions have a leader.

        The method must not block. ``send`` raises its errors.
        """

    def on_new_batch(self, topic: str, partition: int) -> None:  # noqa: B027 - not every partitioner cares
        """Note that a batch was opened for this partition: a sticky partitioner may now choose another."""

    def close(self) -> None:  # noqa: B027
        """Called when the producer's block is left."""


class RecordPartitioner:
    """Chooses a record's partition by the user's partitioner, or by the hash of the key."""

    def __init__(self, custom: Partitioner | None, *, ignore_keys: bool) -> None:
        self._custom = custom
        self._ignore_keys = ignore_keys
        self._key_hash = KeyHash()

    def choose(
        self, topic: str, key: Buffer | None, value: Buffer | None, partitions: range, available: Sequence[int]
    ) -> int | None:
        """Return the partition; None for the sticky one. Raises `ValueError` for a partition that does not exist."""
        if self._custom is not None:
            chosen = self._custom.partition(topic, key, value, partitions, available)
            if chosen not in partitions:
                raise ValueError(
                    f"the partitioner {self._custom!r} chose partition {chosen!r} of {topic!r},"
                    f" which has {len(partitions)} partitions"
                )
            return chosen
        if key is None or self._ignore_keys:
            return None
        return self._key_hash(key) % len(partitions)


class StickyPartitioner:
    """Chooses the partition of a topic for records without key (KIP-794).

    A partition stays ``current`` for one turn: until it has received ``batch_size`` bytes, in any number of batches.
    The choice happens when a batch is opened, never per record, so a turn may end early or late; the partition's next
    turn corrects the difference. On average a turn is ``batch_size`` bytes, so partitions of a slow broker, whose
    batches fill up, receive no more than the others. ``queues`` are the topic's, by partition. ``chance`` returns
    uniform random numbers in [0, 1).
    """

    __slots__ = (
        "_accumulator",
        "_available",
        "_chance",
        "_filled_before",
        "_leaders",
        "_queues",
        "_surplus",
        "current",
    )

    def __init__(self, queues: Sequence[PartitionQueue], accumulator: Accumulator, chance: Callable[[], float]) -> None:
        self.current = -1
        self._queues = queues
        self._accumulator = accumulator
        self._chance = chance
        self._filled_before = 0
        self._available: tuple[int, ...] = ()
        self._leaders: list[int] = []
        self._surplus: list[int] = []

    def update(self, leaders: list[int], available: tuple[int, ...]) -> int:
        """Take the leader of each partition and the partitions with a leader; return the current partition."""
        self._available = available
        self._leaders = leaders
        self._surplus += [0] * (len(self._queues) - len(self._surplus))
        if self.current < 0 or (available and self.current not in available):
            self._choose()
        return self.current

    def switch_if_due(self) -> int:
        """Return the partition for the next record without key: another one after a batch's worth of bytes."""
        if len(self._queues) == 1:
            return self.current
        limit = self._accumulator.settings.batch_limit
        produced = self._surplus[self.current] + self._queues[self.current].filled - self._filled_before
        # A turn ends with the batch that brings it nearest to the limit.
        if produced > limit // 2:
            # A record may be larger than a batch; the partition must not lose many turns for it.
            self._surplus[self.current] = min(produced - limit, limit // 2)
            self._choose()
        return self.current

    def _choose(self) -> None:
        def length(partition: int) -> int:
            return len(self._queues[partition].batches) + self._queues[partition].on_wire

        accumulator = self._accumulator
        among = self._available
        if accumulator.slow_nodes:
            among = tuple(p for p in among if self._leaders[p] not in accumulator.slow_nodes) or among
        adaptive = accumulator.settings.adaptive_partitioning
        self.current = choose_sticky(among, range(len(self._queues)), length if adaptive else None, self._chance())
        self._filled_before = self._queues[self.current].filled


def choose_sticky(
    available: Sequence[int], partitions: Sequence[int], queue_length: Callable[[int], int] | None, chance: float
) -> int:
    """Choose a partition for records without key at random; shorter queues are more likely (KIP-794).

    Without ``queue_length`` all partitions are equally likely. If none is available, all partitions are candidates.
    ``chance`` is uniform in [0, 1).
    """
    among = available or partitions
    if queue_length is None:
        return among[int(chance * len(among))]
    lengths = [queue_length(partition) for partition in among]
    longest = max(lengths)
    if longest == min(lengths):
        return among[int(chance * len(among))]
    point = chance * sum(longest + 1 - length for length in lengths)
    for partition, length in zip(among, lengths, strict=True):
        point -= longest + 1 - length
        if point < 0:
            return partition
    return among[-1]
