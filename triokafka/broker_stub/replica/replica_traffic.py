"""Counters of the bytes, records and requests written and read in the partitions of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from triokafka.errors import CorruptRecordError, MessageSizeTooLargeError, RecordListTooLargeError

_TOO_LARGE: Final = (MessageSizeTooLargeError.code, RecordListTooLargeError.code)


class TopicTraffic:
    """The part of one topic in the totals of `ReplicaTraffic`, without replication."""

    __slots__ = ("bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetches", "produces", "records_in")

    def __init__(self) -> None:
        self.bytes_in = self.records_in = self.bytes_out = 0
        self.produces = self.failed_produces = self.fetches = self.failed_fetches = 0


@dataclass(slots=True)
class ReplicaTraffic:
    """Totals since the start, over all topics.

    ``bytes_in`` and ``records_in`` count appends of clients; they and ``produces`` are summed up over the topics when
    they are read, so that an append counts once. ``bytes_out`` counts records in responses to consumers,
    ``replication_bytes_out`` those in responses to followers. ``replication_bytes_in`` counts what this broker appended
    as a follower, ``reassignment_bytes_in`` the part of it for replicas that a reassignment adds. ``rejected_bytes``
    counts batches that are too large, ``corrupt_batches`` those whose checksum or form is wrong. Requests and failures
    are counted per partition.
    """

    bytes_out: int = 0
    replication_bytes_out: int = 0
    replication_bytes_in: int = 0
    reassignment_bytes_in: int = 0
    rejected_bytes: int = 0
    corrupt_batches: int = 0
    produces_elsewhere: int = 0
    """Rejected batches for partitions without a replica here."""
    failed_produces: int = 0
    fetches: int = 0
    failed_fetches: int = 0
    topics: dict[str, TopicTraffic] = field(default_factory=dict)

    @property
    def bytes_in(self) -> int:
        """Bytes that clients appended."""
        return sum(counts.bytes_in for counts in self.topics.values())

    @property
    def records_in(self) -> int:
        """Records that clients appended."""
        return sum(counts.records_in for counts in self.topics.values())

    @property
    def produces(self) -> int:
        """Batches of clients, appended and rejected."""
        return self.produces_elsewhere + sum(counts.produces for counts in self.topics.values())

    def of_topic(self, topic: str) -> TopicTraffic:
        """Return the counts of one topic."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def appended(self, topic: str, size: int, records: int) -> None:
        """Count a client's appended batch."""
        counts = self.topics.get(topic) or self.of_topic(topic)
        counts.produces += 1
        counts.bytes_in += size
        counts.records_in += records

    def refused(self, topic: str | None, size: int, *, error_code: int) -> None:
        """Count a client's rejected batch. ``topic`` is None where this broker has no replica of the partition."""
        self.failed_produces += 1
        if topic is None:
            self.produces_elsewhere += 1
        else:
            counts = self.of_topic(topic)
            counts.produces += 1
            counts.failed_produces += 1
        if error_code in _TOO_LARGE:
            self.rejected_bytes += size
        elif error_code == CorruptRecordError.code:
            self.corrupt_batches += 1

    def unreadable(self, topic: str) -> None:
        """Count a partition of a fetch that failed; by topic only where the topic has had traffic."""
        self.failed_fetches += 1
        counts = self.topics.get(topic)
        if counts is not None:
            counts.failed_fetches += 1

    def consumed(self, topic: str, size: int) -> None:
        """Count the records of one partition in a response to a consumer."""
        counts = self.topics.get(topic) or self.of_topic(topic)
        counts.fetches += 1
        counts.bytes_out += size

    def answered(self, size: int, *, follower: bool) -> None:
        """Count records in a fetch response."""
        if follower:
            self.replication_bytes_out += size
        else:
            self.bytes_out += size

    def replicated(self, size: int, *, reassigning: bool) -> None:
        """Count records that were appended as a follower."""
        self.replication_bytes_in += size
        if reassigning:
            self.reassignment_bytes_in += size
