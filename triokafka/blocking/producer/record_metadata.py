"""The outcome of a record, with kafka-python's fields."""

from __future__ import annotations

from typing import NamedTuple

from triokafka.structs import TopicPartition


class RecordMetadata(NamedTuple):
    """Where a record was written. ``offset`` is -1 with ``acks=0``; sizes are bytes, -1 for null; ``checksum`` is
    None."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int
