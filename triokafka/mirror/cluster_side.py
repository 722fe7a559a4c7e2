"""One of the two clusters of a flow, and its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from triokafka.client.admin import AdminClient
from triokafka.client.admin.types import NewTopic
from triokafka.client.consumer.consumer import Consumer
from triokafka.client.producer.producer import Producer
from triokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from triokafka.hooks import Hooks
from triokafka.structs import Node, TopicPartition
from triokafka.world import World

_POLL_MS = 500
_CREATE_NOTHING: Final = {"allow_auto_create_topics": False}


class _Reachability(Hooks):
    """The outcome of the last attempt to connect."""

    def __init__(self) -> None:
        self.problem = ""

    def on_connect(self, node: Node, address: str, seconds: float, error: Exception | None) -> None:
        """See `Hooks`."""
        self.problem = "" if error is None else str(error)


class ClusterSide:
    """The source or the target. ``admin`` is open inside the ``async with`` block.

    Its clients let no broker create topics: topics that were deleted in the source stay deleted, and `TopicReplication`
    creates topics of the target with their partitions and configurations.
    """

    def __init__(self, alias: str, options: Mapping[str, Any], world: World) -> None:
        self.alias = alias
        self._reachability = _Reachability()
        given = options.get("hooks", ())
        hooks = (*(given if isinstance(given, Sequence) else (given,)), self._reachability)
        self._options = {**options, "hooks": hooks}
        self._world = world
        self.admin = AdminClient(world=world, **self._options)

    @property
    def problem(self) -> str:
        """Why the last attempt to connect failed; empty after one that succeeded."""
        return self._reachability.problem

    async def __aenter__(self) -> Self:
        await self.admin.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.admin.__aexit__(*raised)

    def producer(self, *more: Mapping[str, Any]) -> Producer:
        """Make a producer with these options over those of the cluster."""
        return Producer(world=self._world, **self._with(more))

    def consumer(self, *more: Mapping[str, Any]) -> Consumer:
        """Make a consumer with these options over those of the cluster."""
        return Consumer(world=self._world, **self._with(more))

    def _with(self, more: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
        options = {**_CREATE_NOTHING, **self._options}
        for each in more:
            options.update(each)
        return options

    async def ensure_compacted_topic(self, topic: str, replication_factor: int) -> bool:
        """Create a compacted topic with one partition unless it exists; return whether it was created.

        Raises as `AdminClient.create_topics`.
        """
        try:
            await self.admin.create_topics([NewTopic(topic, 1, replication_factor, {"cleanup.policy": "compact"})])
        except TopicAlreadyExistsError:
            return False
        return True

    async def read_compacted_topic(self, topic: str) -> dict[bytes, bytes]:
        """Return the newest committed value of each key in a topic with one partition; empty if it does not exist.

        Reads up to the end that the log has now.

        Raises:
            KafkaError: the topic cannot be read.
        """
        partition = TopicPartition(topic, 0)
        end = await self._end(partition)
        found: dict[bytes, bytes] = {}
        if not end:
            return found
        async with self.consumer({"isolation_level": "read_committed", "auto_offset_reset": "earliest"}) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            while await consumer.position(partition) < end:
                records = (await consumer.poll(timeout_ms=_POLL_MS)).get(partition, ())
                if not records:  # the topic may have been deleted meanwhile, or be another one
                    end = min(end, await self._end(partition))
                for record in records:
                    key = record.key or b""
                    if record.value is None:
                        found.pop(key, None)
                    else:
                        found[key] = record.value
        return found

    async def _end(self, partition: TopicPartition) -> int:
        """Return the end of a partition's committed records; 0 if it does not exist."""
        try:
            ends = await self.admin.list_offsets({partition: "latest"}, isolation_level="read_committed")
            return ends[partition].offset
        except UnknownTopicOrPartitionError:
            return 0
