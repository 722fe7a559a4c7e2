"""The task of one fetcher: sends fetches to one leader, one at a time, and applies the responses.

While this broker is far behind, the next fetch is sent before the last response is applied; see
`FetcherState.plan_ahead`. Two responses at most are in memory then, each of ``replica.fetch.response.max.bytes``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import trio

from triokafka import errors
from triokafka.broker_stub.replica.fetcher.fetcher_config import FetcherConfig
from triokafka.broker_stub.replica.fetcher.fetcher_state import FetcherState, FetchPosition, FetchResult
from triokafka.broker_stub.replica.fetcher.follower_log import FollowerLog, NextStep
from triokafka.broker_stub.replica.offset_lookup import EARLIEST, LATEST
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.rates import Rate
from triokafka.metrics.stats import WindowedCount
from triokafka.network.fetch_sessions.fetch_session_handler import FetchPlan
from triokafka.network.response_waiter import ResponseWaiter
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse, ReplicaState
from triokafka.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from triokafka.protocol.message import Request, Response
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_SHORT_WAIT_MS: Final = 20
_IDENTITY_APART_SINCE: Final = 15
_WINDOW: Final = MetricConfig()
_SESSION_ERRORS: Final = frozenset(
    error.code
    for error in (
        errors.FetchSessionIdNotFoundError,
        errors.InvalidFetchSessionEpochError,
        errors.FetchSessionTopicIdError,
    )
)


class LeaderChannel(Protocol):
    """The connection to a leader; see `triokafka.network.node_channel.NodeChannel`."""

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent at once."""

    async def run(self) -> None:
        """Serve the connection until cancelled."""

    async def submit(
        self,
        request: Request[R] | Callable[[int], Request[R]],
        *,
        api: type[Request[R]] | None = None,
        timeout_ms: float | None = None,
    ) -> ResponseWaiter:
        """Send a request and return what waits for its response."""

    def close(self) -> None:
        """Close the connection."""


class _SentFetch(NamedTuple):
    """A fetch on its way: when it was sent, and how many seconds the leader may wait."""

    plan: FetchPlan
    waiter: ResponseWaiter
    sent_at: float
    wait_seconds: float


class FetcherTask:
    """One fetcher of one leader.

    `add` and `remove` take effect at once; a response that is on its way is not applied to a removed partition.

    Args:
        until_flushed: waits until the records of partitions are on disk as far as ``flush.messages`` asks for it. The
            next fetch follows then, as it says that this broker has all records before the fetch offset.
    """

    def __init__(
        self,
        name: str,
        state: FetcherState,
        data: FollowerLog,
        channel: LeaderChannel,
        config: FetcherConfig,
        world: World,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        until_flushed: Callable[[Iterable[TopicPartition]], Awaitable[None]],
    ) -> None:
        self.name = name
        self.state = state
        self.cancel_scope = trio.CancelScope()
        self._data = data
        self._channel = channel
        self._config = config
        self._world = world
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._until_flushed = until_flushed
        self._changed = trio.Event()
        self._requests = Rate(WindowedCount())

    def requests_per_second(self, now: float) -> float:
        """Return the rate of answered fetches over the last minute."""
        return self._requests.measure(_WINDOW, now)

    def add(self, partitions: Iterable[Partition]) -> None:
        """Fetch more partitions."""
        for partition in partitions:
            self.state.add(partition)
        self._changed.set()

    def remove(self, topic_partition: TopicPartition) -> bool:
        """Stop fetching a partition; return whether it was fetched."""
        return self.state.remove(topic_partition)

    def wake(self) -> None:
        """Look again whether there is something to fetch."""
        self._changed.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        with self.cancel_scope:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._channel.run)
                    while True:
                        await self._step()
            finally:
                self._channel.close()

    async def _step(self) -> None:
        plan = self.state.plan(self._world.now())
        if plan is None:
            await self._wait_ready()
            return
        fetch = await self._send(plan)
        while fetch is not None:
            fetch = await self._receive(fetch)

    async def _receive(self, fetch: _SentFetch) -> _SentFetch | None:
        """Wait for the response to a fetch and apply it; return the next fetch if it was sent before that."""
        try:
            response: FetchResponse = await fetch.waiter.wait()
        except (errors.KafkaError, OSError) as error:
            self._failed(error)
            return None
        now = self._world.now()
        self._requests.update(_WINDOW, 1, 1, 1, 1, now)
        if not self.state.answered(response.session_id, response.error_code):
            if response.error_code not in _SESSION_ERRORS:
                logger.error("%s: the leader answers with %s", self.name, errors.for_code(response.error_code).__name__)
                self.state.delay_all(now)
            return None
        self.state.note_news(news=bool(response.responses), early=now - fetch.sent_at < fetch.wait_seconds / 2)
        results = self._results(fetch.plan, response)
        ahead = self.state.plan_ahead(results, now) if self._channel.is_ready else None
        following = None if ahead is None else await self._send(ahead)
        await self._apply(results)
        return following

    def _failed(self, error: Exception) -> None:
        logger.info("%s: the fetch failed: %s", self.name, error)
        self.state.failed(self._world.now())

    async def _wait_ready(self) -> None:
        ready_at = self.state.next_ready()
        now = self._world.now()
        if ready_at is not None:
            # A partition that is ready and yet not planned is throttled: the quota has room again after a moment.
            ready_at = max(ready_at, now + _SHORT_WAIT_MS / 1000)
        with trio.CancelScope(deadline=float("inf") if ready_at is None else self._world.deadline(ready_at)):
            await self._changed.wait()
        self._changed = trio.Event()

    async def _send(self, plan: FetchPlan) -> _SentFetch | None:
        """Send one fetch; None when that failed."""
        config = self._config
        wait_ms = (
            min(_SHORT_WAIT_MS, config.fetch_wait_max_ms) if self.state.waits_shortly else config.fetch_wait_max_ms
        )

        def request(version: int) -> FetchRequest:
            is_named_apart = version >= _IDENTITY_APART_SINCE
            return FetchRequest(
                replica_id=-1 if is_named_apart else self._node_id,
                replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch())
                if is_named_apart
                else ReplicaState(),
                max_wait_ms=wait_ms,
                min_bytes=config.fetch_min_bytes,
                max_bytes=config.fetch_response_max_bytes,
                session_id=plan.session_id,
                session_epoch=plan.epoch,
                topics=plan.topics(version),
                forgotten_topics_data=plan.forgotten_topics(version),
            )

        sent_at = self._world.now()
        try:
            waiter = await self._channel.submit(
                request, api=FetchRequest, timeout_ms=config.socket_timeout_ms + wait_ms
            )
        except (errors.KafkaError, OSError) as error:
            self._failed(error)
            return None
        return _SentFetch(plan, waiter, sent_at, wait_ms / 1000)

    def _results(self, plan: FetchPlan, response: FetchResponse) -> list[FetchResult]:
        """Return the results of those partitions that were asked for."""
        results: list[FetchResult] = []
        for topic in response.responses:
            name = topic.topic or self.state.topic_name(topic.topic_id)
            if name is None:
                continue
            for data in topic.partitions:
                topic_partition = TopicPartition(name, data.partition_index)
                sent = plan.targets.get(topic_partition)
                if sent is not None:
                    results.append(FetchResult(topic_partition, sent, data))
        return results

    async def _apply(self, results: Sequence[FetchResult]) -> None:
        out_of_range: list[TopicPartition] = []
        with_records: list[TopicPartition] = []
        budget = WorkBudget()
        for result in results:
            if self._data.apply(result, self._world.now()) is NextStep.LOOK_UP:
                out_of_range.append(result.topic_partition)
            elif result.data.records:
                with_records.append(result.topic_partition)
            await budget.spend()
        if out_of_range:
            await self._look_up(out_of_range)
        if with_records:
            await self._until_flushed(with_records)

    async def _look_up(self, topic_partitions: list[TopicPartition]) -> None:
        """Find where partitions continue whose fetch offset the leader does not have."""
        undecided: list[TopicPartition] = []
        for position, offset in await self._leader_offsets(topic_partitions, LATEST):
            if self._guarded(position, lambda p=position, o=offset: self._data.needs_leader_start(p, o)):  # type: ignore[misc]
                undecided.append(position.partition.topic_partition)
        if undecided:
            for position, offset in await self._leader_offsets(undecided, EARLIEST):
                self._guarded(position, lambda p=position, o=offset: self._data.begin_at_leader_start(p, o))  # type: ignore[misc]

    def _guarded(self, position: FetchPosition, step: Callable[[], bool | None]) -> bool:
        """Run a step for a partition and return its result; False after a failure, which removes or delays it."""
        topic_partition = position.partition.topic_partition
        try:
            return bool(step())
        except errors.FencedLeaderEpochError:
            self.state.remove(topic_partition)
        except (errors.KafkaError, OSError) as error:
            logger.error("%s: the log cannot continue at the leader's offsets: %s", topic_partition, error)
            self.state.delay(topic_partition, self._world.now())
        return False

    async def _leader_offsets(
        self, topic_partitions: list[TopicPartition], timestamp: int
    ) -> list[tuple[FetchPosition, int]]:
        """Ask the leader for its log end or start offsets; partitions without an answer are delayed."""
        positions = {
            position.partition.topic_partition: (position, position.leader_epoch)
            for position in self.state.positions(topic_partitions)
        }
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, number), (_, leader_epoch) in positions.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(
                ListOffsetsPartition(partition_index=number, current_leader_epoch=leader_epoch, timestamp=timestamp)
            )
        found: list[tuple[FetchPosition, int]] = []
        if not positions:
            return found
        try:
            waiter = await self._channel.submit(
                ListOffsetsRequest(replica_id=self._node_id, topics=list(topics.values())),
                timeout_ms=self._config.socket_timeout_ms,
            )
            response: ListOffsetsResponse = await waiter.wait()
        except (errors.KafkaError, OSError) as error:
            logger.info("%s: ListOffsets failed: %s", self.name, error)
            self.state.failed(self._world.now())
            return found
        for answered in response.topics:
            for result in answered.partitions:
                key = TopicPartition(answered.name, result.partition_index)
                known = positions.pop(key, None)
                current = self.state.positions([key])
                if known is None or not current or current[0] is not known[0]:
                    continue  # removed or added again meanwhile
                if result.error_code or result.offset < 0:
                    self.state.delay(key, self._world.now())
                else:
                    found.append((known[0], result.offset))
        for key in positions:
            self.state.delay(key, self._world.now())
        return found
