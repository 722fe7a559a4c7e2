"""The values of the admin client's calls about transactions."""

from __future__ import annotations

from typing import NamedTuple

from triokafka.structs import TopicPartition


class TransactionListing(NamedTuple):
    """A transactional id, the id of its producer, and its state, such as ``"Ongoing"`` or ``"CompleteCommit"``."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id at its coordinator, the broker ``coordinator_id``.

    ``timeout_ms`` bounds its transactions. ``start_ms`` is when the open one began, in ms since the epoch; None without
    one. ``partitions`` take part in it.
    """

    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class FencedProducer(NamedTuple):
    """The producer id and epoch from which on producers are accepted."""

    producer_id: int
    producer_epoch: int


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition without a coordinator that will end it.

    ``last_timestamp`` is that of its last batch, in ms since the epoch. ``transactional_id`` is None if no coordinator
    knows the producer.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    transactional_id: str | None
