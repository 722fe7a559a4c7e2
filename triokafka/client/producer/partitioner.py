"""Which partition a record goes to, when its sender did not say. Pure: chance is an argument."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from triokafka.records.kernel import murmur2
from triokafka.structs import Buffer

_LARGEST_CACHED_KEY: Final = 64
_MOST_CACHED_KEYS: Final = 16_384


class KeyHash:
    """``murmur2`` without the sign bit, remembered for short keys: real streams repeat theirs."""

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
    """The plug-in interface (option ``partitioner``). Called for every record without a partition of its own."""

    def configure(self, config: Mapping[str, Any]) -> None:  # noqa: B027 - not every partitioner has something to set
        """Told once, when the producer is made, what it was told; ``plugin_options`` included."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int:
        """A number out of ``partitions``. ``key`` and ``value`` are serialized; ``available`` have a leader now.

        It must not block. What it raises, ``send`` raises.
        """

    def on_new_batch(self, topic: str, partition: int) -> None:  # noqa: B027 - not every partitioner cares
        """A batch was begun for this partition: a sticky partitioner may now choose another."""

    def close(self) -> None:  # noqa: B027
        """Called when the producer's block is left."""


def choose_sticky(
    available: Sequence[int], partitions: Sequence[int], queue_length: Callable[[int], int] | None, chance: float
) -> int:
    """The next partition for records without key: by chance, the more likely the shorter its queue (KIP-794).

    Without ``queue_length`` all are equally likely; without any available one it is chosen among all. ``chance`` is
    uniform in [0, 1).
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
