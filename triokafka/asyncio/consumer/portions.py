"""Where one `getmany` ends and the next one begins: aiokafka returns what one fetch has brought."""

from __future__ import annotations

from collections.abc import Iterable

from triokafka.structs import TopicPartition


class Portions:
    """Divides each partition's records into portions of at most ``most_bytes``, as they were fetched.

    The client fetches ahead while the program works, so that more than one fetch may wait for the next call. A program
    that has set ``max_partition_fetch_bytes`` counts on no more than that from one call.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._filled: dict[TopicPartition, int] = {}

    def cuts(self, pieces: Iterable[tuple[TopicPartition, int, int]]) -> dict[TopicPartition, list[int]]:
        """Return the offsets at which portions begin. ``pieces`` are partition, first offset and size, in order.

        A piece that is larger than a portion is one by itself. A piece of size 0 belongs to the one before.
        """
        found: dict[TopicPartition, list[int]] = {}
        for partition, offset, size in pieces:
            before = self._filled.get(partition, 0)
            if size and before and before + size > self._most_bytes:
                found.setdefault(partition, []).append(offset)
                before = 0
            self._filled[partition] = before + size
        return found

    def forget(self, partition: TopicPartition) -> None:
        """Begin a new portion with the partition's next record."""
        self._filled.pop(partition, None)
