"""Records that the session has fetched and the consumer has not returned yet. Used by one thread; no I/O."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

from triokafka import ConsumerRecord
from triokafka.blocking.serializer import Deserializer
from triokafka.structs import TopicPartition

Convert = Callable[[ConsumerRecord], ConsumerRecord]
_NOTHING: Final[Iterator[ConsumerRecord]] = iter(())


class Buffered:
    """Records by partition, in order. A partition's position is that of its first record here.

    ``iterator`` is the iteration in progress; records that it has not returned count as buffered.
    """

    def __init__(self, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None) -> None:
        self.iterator: Iterator[ConsumerRecord] = _NOTHING
        self._run: tuple[TopicPartition, list[ConsumerRecord], list[ConsumerRecord]] | None = None
        self._records: dict[TopicPartition, list[ConsumerRecord]] = {}
        self._begin: dict[TopicPartition, int] = {}
        self._convert = _converter(key_deserializer, value_deserializer)
        self.paused: set[TopicPartition] = set()

    def __bool__(self) -> bool:
        return any(partition not in self.paused for partition in self._records)

    def add(self, records: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        """Append records behind the buffered ones."""
        for partition, more in records.items():
            known = self._records.get(partition)
            if known is None:
                self._records[partition] = more
                self._begin[partition] = 0
            else:
                known.extend(more)

    def take(self, limit: int) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records of partitions that are not paused, at most ``limit``.

        Raises a deserializer's error if the first record causes it; otherwise returns the records before that one.
        """
        self.put_back()
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        for partition in list(self._records):
            if limit <= 0:
                break
            if partition in self.paused:
                continue
            try:
                records = self._take_of(partition, limit)[1]
            except Exception:
                if not taken:
                    raise
                break
            limit -= len(records)
            taken[partition] = records
        return taken

    def _take_of(self, partition: TopicPartition, limit: int) -> tuple[list[ConsumerRecord], list[ConsumerRecord]]:
        """Return the next records raw, and as the consumer returns them."""
        records, begin = self._records[partition], self._begin[partition]
        raw = records if begin == 0 and len(records) <= limit else records[begin : begin + limit]
        converted = raw
        if self._convert is not None:
            converted = []
            try:
                converted.extend(map(self._convert, raw))
            except Exception:
                if not converted:
                    raise
                raw = raw[: len(converted)]
        begin += len(raw)
        if begin >= len(records):
            del self._records[partition], self._begin[partition]
        else:
            self._begin[partition] = begin
            # Rotate: the next call begins with the next partition.
            self._records[partition] = self._records.pop(partition)
        return raw, converted

    def next_run(self, limit: int) -> bool:
        """Fill ``iterator`` with records of the next partition, at most ``limit``. Return False if there are none."""
        self._run, self.iterator = None, _NOTHING
        partition = next((one for one in self._records if one not in self.paused), None)
        if partition is None:
            return False
        raw, converted = self._take_of(partition, limit)
        self._run = (partition, raw, converted)
        self.iterator = iter(converted)
        return True

    def put_back(self) -> None:
        """Return the records that ``iterator`` has not returned to the buffer."""
        if self._run is None:
            return
        partition, raw, _ = self._run
        left = operator.length_hint(self.iterator)
        self._run, self.iterator = None, _NOTHING
        if left:
            rest = raw[-left:]
            if partition in self._records:
                rest += self._records[partition][self._begin[partition] :]
            self._records = {partition: rest, **{one: all_ for one, all_ in self._records.items() if one != partition}}
            self._begin[partition] = 0

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of a partition's first buffered record; None without one."""
        if self._run is not None and self._run[0] == partition:
            left = operator.length_hint(self.iterator)
            if left:
                return self._run[1][-left].offset
        if partition not in self._records:
            return None
        return self._records[partition][self._begin[partition]].offset

    def drop(self, partition: TopicPartition) -> None:
        """Drop a partition's records."""
        self.put_back()
        self._records.pop(partition, None)
        self._begin.pop(partition, None)

    def keep(self, partitions: frozenset[TopicPartition] | set[TopicPartition]) -> None:
        """Drop the records of all other partitions."""
        self.put_back()
        for partition in [one for one in self._records if one not in partitions]:
            self.drop(partition)
        self.paused &= partitions


def _converter(key_deserializer: Deserializer | None, value_deserializer: Deserializer | None) -> Convert | None:
    if key_deserializer is None and value_deserializer is None:
        return None

    def convert(record: ConsumerRecord) -> ConsumerRecord:
        headers: list[Any] = list(record.headers)
        key, value = record.key, record.value
        if key_deserializer is not None:
            key = key_deserializer.deserialize(record.topic, headers, key)
        if value_deserializer is not None:
            value = value_deserializer.deserialize(record.topic, headers, value)
        return record.deserialized(key, value)

    return convert
