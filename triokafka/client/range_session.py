"""Connections to brokers and fetch sessions that several `RangeReader`s use, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Self, Unpack
from uuid import UUID

import trio

from triokafka import errors
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.fetcher import Fetcher
from triokafka.client.consumer.log_offsets import LogOffsets
from triokafka.client.consumer.subscription_state import EARLIEST, LATEST, SubscriptionState
from triokafka.client.keywords import ConsumerKeywords
from triokafka.client.range_validation import RangeValidation
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition
from triokafka.trio_context import require_trio
from triokafka.world import World
from triokafka.world.system import RealWorld

_LEAST_WAIT: Final = 2.0  # seconds
_COMPARING: Final = "comparing leader epochs"

OffsetRange = tuple[int, int]
"""First offset, and the offset after the last."""


class RangeLostError(errors.OffsetOutOfRangeError):
    """Records of a range are not in the log: ``partition`` cannot be read from ``position`` on.

    Either retention deleted the records, or the log is too short, or it has other records now. With ``is_recreated``
    the topic was deleted and recreated. With ``is_truncated`` the log was truncated by a leader that did not have the
    records, and the last returned records may be lost too. `RangeReader.go_on_at` skips the lost records.
    """

    def __init__(
        self,
        message: str,
        partition: TopicPartition | None = None,
        position: int = -1,
        *,
        is_recreated: bool = False,
        is_truncated: bool = False,
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.position = position
        self.is_recreated = is_recreated
        self.is_truncated = is_truncated


class RangeSession:
    """Connections and fetch sessions for several `RangeReader`s, one after the other.

    Use it as ``async with RangeSession(bootstrap_servers=…) as session``; it serves one reader at a time. Options are
    those of `ConsumerOptions` about brokers and fetching.
    """

    def __init__(self, *, world: World | None = None, **options: Unpack[ConsumerKeywords]) -> None:
        self.options = ConsumerOptions.parse(options)
        self.world = world if world is not None else RealWorld()
        self.network = NetworkClient(
            self.options.network(client_id="triokafka-reader", allow_auto_create_topics=False), world=self.world
        )
        self.failure_tracker = FailureTracker()
        self.subscription = SubscriptionState(None)
        self._tasks = BackgroundTasks(self._fail)
        self.fetcher = Fetcher(
            self.options, self.network, self.subscription, self._tasks, self.failure_tracker, self.notify
        )
        self.changed = trio.Event()
        self.is_open = False
        self._failure: Exception | None = None
        self._reading = False
        self._comparing: trio.CancelScope | None = None
        self.watch = RangeValidation(self.subscription, self.fetcher.buffer)

    async def __aenter__(self) -> Self:
        require_trio("RangeReader", asyncio="", blocking="triokafka.read_topic")
        await self.network.__aenter__()
        await self._tasks.open()
        self.is_open = True
        self.network.metadata.add_listener(self._metadata_changed)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.is_open = False
        await self._tasks.close()
        await self.network.__aexit__(None, None, None)
        self.fetcher.buffer.clear()

    async def log_bounds(self, partition: TopicPartition) -> OffsetRange:
        """Return the log start offset and the end offset that a partition's leader has now.

        Raises:
            KafkaTimeoutError: no answer within ``default_api_timeout_ms``, or two seconds if that is shorter.
        """
        # A fetch that waits for records holds up the connection, perhaps for longer than readers wait for progress.
        deadline = self.world.now() + max(self.options.default_api_timeout_ms / 1000, _LEAST_WAIT)
        offsets = LogOffsets(self.options, self.network)
        first = (await offsets.list_offsets({partition: EARLIEST}, deadline=deadline))[partition]
        last = (await offsets.list_offsets({partition: LATEST}, deadline=deadline))[partition]
        if first is None or last is None:
            raise errors.KafkaError(f"the leader of {partition} did not return the start and end offset of its log")
        return first.offset, last.offset

    def is_gone(self, topic: str) -> bool:
        """Whether the topic did not exist, by the last metadata. New leaders may report this for a moment."""
        return isinstance(self.network.metadata.error_for(topic), errors.UnknownTopicOrPartitionError)

    def begin(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        topics: Iterable[str],
        topic_ids: Mapping[str, UUID] | None = None,
    ) -> None:
        """Start to fetch ranges of partitions. A topic whose id is given is read only if it has that id."""
        if self._reading:
            raise errors.IllegalStateError(
                "this session is in use by another reader: use one session per concurrent reader"
            )
        self._reading = True
        self.subscription.assign(ranges)
        for partition, (start, end) in ranges.items():
            self.subscription.seek(partition, start)
            self.subscription.state(partition).stop_at = end
        # The present metadata may be old: only the next metadata shows whether a topic is another one.
        self.watch.begin(topic_ids or {}, self.network.cluster, self.network.metadata.version)
        self.network.metadata.set_topics(dict.fromkeys(topics))
        self.network.request_metadata_update()
        self.fetcher.wake()

    def is_unsure(self, topic: str) -> bool:
        """Whether fetched data of a topic may belong to another topic of the same name; `look_again` finds out.

        Fetches from brokers before Kafka 3.1 name the topic; their metadata has ids since 2.8.
        """
        return self.fetcher.by_name and self.watch.knows(topic)

    async def look_again(self) -> None:
        """Ask for metadata, and validate the ranges with it, until the validation is sure.

        Raises:
            KafkaTimeoutError: no answer within ``default_api_timeout_ms``, or no answer with the topic's id.
        """
        deadline = self.world.now() + self.options.default_api_timeout_ms / 1000
        await self.network.refresh_metadata(timeout_ms=self.options.default_api_timeout_ms)
        while self.watch.doubts:
            left_ms = max(0.0, deadline - self.world.now()) * 1000
            try:
                await self.network.refresh_metadata(timeout_ms=left_ms)
            except errors.KafkaTimeoutError as error:
                raise errors.KafkaTimeoutError(
                    "no broker returned the ids of the topics, which show whether one was recreated"
                ) from error

    def end(self) -> None:
        """Stop fetching, and drop the fetched data."""
        self._reading = False
        self.watch.end()
        if self._comparing is not None:
            self._comparing.cancel()
            self._comparing = None
        if self.is_open:
            self.subscription.unsubscribe()
            self.fetcher.buffer.clear()

    def _metadata_changed(self, cluster: Cluster) -> None:
        if self._reading and self.watch.look_at(cluster, self.network.metadata.version):
            self.network.request_metadata_update()
        if self.watch.suspects() and self._comparing is None:
            self._comparing = trio.CancelScope()
            self._tasks.start(self._compare_epochs, self._comparing, name="kafka leader epochs of ranges")
        self.fetcher.wake()
        if self.watch.recreated or cluster.topic_errors:
            self.notify()

    async def _compare_epochs(self, scope: trio.CancelScope) -> None:
        """Ask new leaders whether their logs contain the records that were read, until all are compared (KIP-320)."""
        offsets = LogOffsets(self.options, self.network, self._note)
        with scope:
            while suspects := self.watch.suspects():
                deadline = self.world.now() + self.options.request_timeout_ms / 1000
                epochs = {partition: suspect.epoch for partition, suspect in suspects.items()}
                try:
                    ends = await offsets.epoch_ends(epochs, deadline=deadline)
                except errors.UnsupportedVersionError:
                    ends = None
                except errors.KafkaError as error:
                    self._note(error)
                    await trio.sleep(self.options.retry_backoff_ms / 1000)
                    continue
                self.watch.compared(suspects, ends)
                self.fetcher.wake()
                self.notify()
            self.failure_tracker.succeeded(_COMPARING)
            if self._comparing is scope:
                self._comparing = None

    def _note(self, error: errors.KafkaError) -> None:
        self.failure_tracker.failed(_COMPARING, error, self.world.now())

    def notify(self) -> None:
        """Wake the reader: data came, or an error."""
        self.changed.set()

    def check(self) -> None:
        """Raise if the session cannot be used."""
        if self._failure is not None:
            raise errors.KafkaError(f"a background task of the reader failed: {self._failure!r}") from self._failure
        if not self.is_open:
            require_trio("RangeReader", asyncio="", blocking="triokafka.read_topic")
            raise errors.ClosedError("the reader is not open: use it inside its async with block")
        self.network.check_usable()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.notify()
