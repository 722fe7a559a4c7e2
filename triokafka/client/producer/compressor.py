"""The interface for compressing batches outside the event loop."""

from __future__ import annotations

from typing import Protocol

from triokafka.client.producer.batch import ProducerBatch


class Compressor(Protocol):
    """Compresses closed batches in threads: `ThreadCompressor`, and for lz4 `Lz4Compressor`."""

    @property
    def waiting(self) -> int:
        """Number of batches that the compressor holds."""

    def enqueue(self, batch: ProducerBatch) -> None:
        """Add a closed batch, unless the compressor already holds it."""

    def withdraw(self, batch: ProducerBatch) -> None:
        """Remove a batch that no thread works on."""

    def hand_over(self) -> bool:
        """Let threads compress the enqueued batches. False if the event loop must compress the batch it needs."""
