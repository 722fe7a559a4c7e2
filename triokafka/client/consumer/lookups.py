"""A consumer's lookups of offsets and topics. They need no assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triokafka.client.consumer.arguments import checked_partitions
from triokafka.client.consumer.engine import Engine
from triokafka.client.consumer.subscription_state import EARLIEST, LATEST
from triokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from triokafka.topic_names import check_topic_name


class Lookups:
    """Looks up offsets of logs, and topics with their partitions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition. Partitions need not be assigned.

        Raises as `offsets_for_times`.
        """
        return await self._ends(partitions, EARLIEST, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition; under ``read_committed`` the last stable offset.

        Raises as `offsets_for_times`.
        """
        return await self._ends(partitions, LATEST, timeout_ms)

    async def _ends(
        self, partitions: Iterable[TopicPartition], to: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(checked_partitions(partitions), to)
        found = await self.offsets_for_times(wanted, timeout_ms=timeout_ms)
        return {partition: offset.offset for partition, offset in found.items() if offset is not None}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition with at least the given timestamp (milliseconds); None without one.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        self._engine.check_usable()
        if not isinstance(timestamps, Mapping):
            raise TypeError(f"timestamps must be a mapping of partitions to milliseconds, not {timestamps!r}")
        for partition, timestamp in timestamps.items():
            if isinstance(timestamp, bool) or not hasattr(timestamp, "__index__"):
                raise TypeError(f"{partition}: a timestamp must be an int of milliseconds, not {timestamp!r}")
        wanted = dict(zip(checked_partitions(timestamps), timestamps.values(), strict=True))
        with self._engine.user("a lookup of offsets"):
            return await self._engine.log_offsets.list_offsets(wanted, deadline=self._engine.deadline(timeout_ms))

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return where leader epochs end in the logs of the present leaders (KIP-320); None if a leader does not know.

        ``leader_epoch`` of an answer is the largest epoch of the log that is not newer than the given one. A reader
        whose last record had that epoch, and whose position is above ``offset``, has read records that the log does not
        have: it was truncated.

        Raises:
            UnsupportedVersionError: a leader is older than Apache Kafka 2.3.
            UnknownTopicOrPartitionError: the topic does not exist.
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        self._engine.check_usable()
        wanted = dict(zip(checked_partitions(epochs), epochs.values(), strict=True))
        with self._engine.user("a lookup of leader epochs"):
            found = await self._engine.log_offsets.epoch_ends(wanted, deadline=self._engine.deadline(timeout_ms))
        return {
            partition: OffsetAndMetadata(end.end_offset, "", end.epoch) if min(end) >= 0 else None
            for partition, end in found.items()
        }

    async def partitions_for_topic(self, topic: str, *, timeout_ms: float | None = None) -> list[int] | None:
        """Return the partition numbers of a topic; None if it does not exist. Never creates it.

        Raises:
            TopicAuthorizationFailedError: describing the topic is not allowed.
            InvalidTopicError: the name is invalid.
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        self._engine.check_usable()
        check_topic_name(topic)
        return (await self._engine.topic_lists.look_up([topic], deadline=self._engine.deadline(timeout_ms))).get(topic)

    async def topics(self, *, timeout_ms: float | None = None) -> dict[str, list[int]]:
        """Return all topics that this client may describe, with their partition numbers.

        Raises:
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        self._engine.check_usable()
        return await self._engine.topic_lists.look_up(None, deadline=self._engine.deadline(timeout_ms))
