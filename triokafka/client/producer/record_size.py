"""The size of a record in a batch, and its limit ``max_request_size``."""

from __future__ import annotations

from typing import Final

from triokafka.client.producer.interceptors import Headers
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.errors import MessageSizeTooLargeError
from triokafka.structs import Buffer

_OVERHEAD: Final = 36  # the most that lengths, deltas and attributes of a record without headers take


def record_bound(key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
    """Return the most bytes that a record can take in a batch, before compression."""
    size = _OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    for name, content in headers:
        size += 10 + 3 * len(name) + (len(content) if content is not None else 0)
    return size


class RecordSizeLimit:
    """Refuses a record that is larger than ``max_request_size``."""

    def __init__(self, max_request_size: int) -> None:
        self._most = max_request_size

    def record_bytes(self, queue: PartitionQueue, key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
        """Return the most bytes that this record can take in a batch.

        Raises:
            MessageSizeTooLargeError: that is more than ``max_request_size``.
        """
        size = record_bound(key, value, headers)
        if size > self._most:
            raise MessageSizeTooLargeError(
                f"a record of up to {size} bytes for {queue.topic_partition} is larger than"
                f" max_request_size={self._most}: raise it, and max.message.bytes of the topic, or send smaller records"
            )
        return size
