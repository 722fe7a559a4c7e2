"""A block of producer ids, as the controller allocates them (AllocateProducerIds)."""

from __future__ import annotations

from typing import Final

from triokafka.named_tuple import NamedTuple

BLOCK_SIZE: Final = 1000


class ProducerIdBlock(NamedTuple):
    """The producer ids ``first`` to ``first + size - 1``, which belong to one broker."""

    first: int
    size: int = BLOCK_SIZE

    @property
    def ids(self) -> range:
        """Every id of the block."""
        return range(self.first, self.first + self.size)
