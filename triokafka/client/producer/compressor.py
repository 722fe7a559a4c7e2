"""The interface of what compresses batches beside the event loop."""

from __future__ import annotations

from typing import Protocol

from triokafka.client.producer.batch import ProducerBatch


class Compressor(Protocol):
    """Compresses closed batches in threads: `ThreadCompressor`, and for lz4 `Lz4Compressor`."""

    @property
    def waiting(self) -> int:
        """Number of batches that it holds."""

    def enqueue(self, batch: ProducerBatch) -> None:
        """Take a closed batch, unless it has it already."""

    def withdraw(self, batch: ProducerBatch) -> None:
        """Give a batch back that no thread works on."""

    def hand_over(self) -> bool:
        """Have threads compress what was enqueued. False when the event loop must compress a batch that it needs."""
