"""Transactions whose outcome is decided: the work of the marker writer, and the interface that receives it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from triokafka.structs import TopicPartition


class CompletionKey(NamedTuple):
    """The identity of a decided transaction."""

    partition: int
    coordinator_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int


class Completion(NamedTuple):
    """A decided transaction whose partitions need their markers.

    ``coordinator_epoch`` is the leader epoch of the coordinator's ``partition``. ``version`` is the transaction version
    under which it ends.
    """

    partition: int
    coordinator_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    commits: bool
    version: int
    partitions: tuple[TopicPartition, ...]

    @property
    def key(self) -> CompletionKey:
        """The completion's key. A completion itself is costly to hash: it may have thousands of partitions."""
        return CompletionKey(
            self.partition, self.coordinator_epoch, self.transactional_id, self.producer_id, self.producer_epoch
        )


class Completions(Protocol):
    """Takes over decided transactions, and reports when all markers of one are written."""

    def add(self, completion: Completion) -> None:
        """Begin to write the markers. The decision is committed."""

    def forget(self, partition: int) -> None:
        """Drop all transactions of a coordinator's partition: another broker continues them."""
