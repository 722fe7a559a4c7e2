"""Fetching ahead: one task per broker keeps one fetch in flight while the buffer has room for the response.

The next fetch is sent before the data of the last one is decoded. Data waits, as bytes, in the `FetchBuffer`. Errors of
single partitions are buffered there too, in place of data, so that the user gets everything in order. A failing broker
is retried after a back-off; `FailureTracker` decides when the failure becomes an error for the user.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.completed_fetch import CompletedFetch, is_cut
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.fetch_buffer import FetchBuffer
from triokafka.client.consumer.fetch_counters import FetchCounters
from triokafka.client.consumer.fetch_log import FetchLog
from triokafka.client.consumer.fetch_plan import FetchPlanner, FetchRound
from triokafka.client.consumer.log_offsets import ISOLATION_LEVELS
from triokafka.client.consumer.offset_reset import reset_out_of_range
from triokafka.client.consumer.partition_state import PartitionState
from triokafka.client.consumer.preferred_replicas import PreferredReplicas
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.fetch_sessions.fetch_session_handler import NO_TOPIC_ID, FetchSessionHandler, FetchTarget
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse, PartitionData
from triokafka.records.decompressor import Decompressor
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

_LAST_VERSION_WITH_NAMES: Final = 12
_FIRST_VERSION_WITH_IDS: Final = 13
_NEVER: Final = float("inf")
_MOST_FRUITLESS: Final = 10
"""Fetches in a row that may bring nothing although the broker did not wait; further ones come after a back-off."""


class _Outcome(enum.Enum):
    """The result of a fetch."""

    REFUSED = "an error of the whole request"
    NOTHING = "nothing, long before the time that the broker may wait"
    PROGRESS = "data, an error of a partition, or nothing after a wait"


class _Stuck(NamedTuple):
    """A partition without progress."""

    version: int
    """The version of its state; another version means that it has moved on."""
    leaderless: bool


class Fetcher:
    """Keeps the buffer filled for every partition that has a position.

    ``on_data`` is called when the buffer gained something to return, ``on_reset`` when a position must be looked up.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        network: NetworkClient,
        subscription: SubscriptionState,
        tasks: BackgroundTasks,
        failures: FailureTracker,
        on_data: Callable[[], None],
        on_reset: Callable[[], None] = lambda: None,
    ) -> None:
        self.buffer = FetchBuffer(subscription, options.prefetch_max_bytes, self.wake)
        self.counters = FetchCounters()
        self.fetch_log = FetchLog()
        self._options = options
        self._network = network
        self._world = network.world
        self._subscription = subscription
        self._tasks = tasks
        self._failures = failures
        self._on_data = on_data
        self._on_reset = on_reset
        self._isolation = ISOLATION_LEVELS[options.isolation_level]
        self._wake = trio.Event()
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._preferred = PreferredReplicas()
        self._planner = FetchPlanner(
            options.max_partition_fetch_bytes,
            subscription,
            self._preferred,
            lambda: network.cluster,
            fetch_offset=self.buffer.fetch_offset,
            buffered_bytes=self.buffer.bytes_of,
        )
        self._stuck: dict[TopicPartition, _Stuck] = {}
        self._out_of_range: set[TopicPartition] = set()
        """Partitions whose last fetch was out of range."""
        self._reserved = 0
        self._decompressor = Decompressor()
        self.by_name = False
        """Whether a fetch named topics, not ids (before Fetch 13, KIP-516). Its data may belong to a topic that was
        recreated under the name since the last metadata."""

    def preferred_replica(self, partition: TopicPartition) -> int:
        """Return the follower that the leader prefers for this consumer, -1 without one (KIP-392)."""
        found = self._preferred.node_for(partition)
        return -1 if found is None else found

    # ---------------------------------------------------------------- planning

    def wake(self) -> None:
        """Plan again, because positions, pauses, leaders or room have changed. Starts tasks for new brokers."""
        self._wake.set()
        self._wake = trio.Event()
        if not self._tasks.is_open:
            return
        for partition in [stuck for stuck in self._stuck if self._has_moved_on(stuck)]:
            self._note_progress(partition)
        self._preferred.remove_expired(self._world.now(), self._network.cluster.nodes)
        for partition, state in self._subscription:
            if state.fetchable:
                node_id = self._planner.node_for(partition)
                if node_id < 0:
                    self._network.request_metadata_update()
                    why = errors.LeaderNotAvailableError(f"{partition} has no leader now")
                    self._note_no_progress(partition, state, why, leaderless=True)
                elif node_id not in self._sessions:
                    self._sessions[node_id] = FetchSessionHandler()
                    self._tasks.start(self._serve, node_id, name=f"kafka fetcher for broker {node_id}")

    def _note_no_progress(
        self, partition: TopicPartition, state: PartitionState, why: errors.KafkaError, *, leaderless: bool = False
    ) -> None:
        """Note that a partition brings nothing, although no request fails: the user gets an error if that continues."""
        self._stuck[partition] = _Stuck(state.version, leaderless)
        self._failures.failed(f"fetching {partition}", why, self._world.now())

    def _note_progress(self, partition: TopicPartition) -> None:
        self._stuck.pop(partition, None)
        self._out_of_range.discard(partition)
        if self._failures:
            self._failures.succeeded(f"fetching {partition}")

    def _has_moved_on(self, partition: TopicPartition) -> bool:
        state = self._subscription.get(partition)
        stuck = self._stuck[partition]
        if state is None or not state.fetchable or state.version != stuck.version:
            return True
        # When its leader is back, a running fetch session need not mention an idle partition in any response.
        return stuck.leaderless and self._network.cluster.leader_for(partition) >= 0

    def _plan(self, node_id: int, now: float) -> FetchRound:
        if self._preferred.remove_expired(now, self._network.cluster.nodes):
            self.wake()  # the leaders' tasks have to plan their turn
        for partition in self._planner.take_gone():
            self._failures.succeeded(f"fetching {partition}")
        return self._planner.round(node_id, now)

    # ---------------------------------------------------------------- one broker

    async def _serve(self, node_id: int) -> None:
        session = self._sessions[node_id]
        backoff = Backoff(self._options.retry_backoff_ms / 1000, self._options.retry_backoff_max_ms / 1000)
        failures = fruitless = 0
        polled_at = -_NEVER
        what = f"fetching from broker {node_id}"
        while True:
            wake = self._wake
            now = self._world.now()
            plan = self._plan(node_id, now)
            room = self.buffer.room(self._reserved)
            wait_until = plan.retry_at
            ready = bool(plan.targets) and room > 0
            if not plan.targets and wait_until == _NEVER:
                self._failures.succeeded(what)  # its partitions have other leaders now, or are no longer assigned
            if ready and plan.crowded:
                # A long poll for the idle partitions would delay the busy ones once there is room for them again.
                # So the idle ones are fetched without a wait, and not each time.
                wait_until = min(wait_until, polled_at + self._options.fetch_max_wait_ms / 1000)
                ready = wait_until <= now
            if not ready:
                with trio.move_on_after(max(0.0, wait_until - now)):
                    await wake.wait()
                continue
            polled_at = now
            wanted = min(room, self._options.fetch_max_bytes, sum(target.max_bytes for target in plan.targets.values()))
            self._reserved += wanted
            try:
                outcome = await self._fetch(node_id, session, plan, max(1, wanted))
                failures = failures + 1 if outcome is _Outcome.REFUSED else 0
                fruitless = fruitless + 1 if outcome is _Outcome.NOTHING else 0
            except errors.UnsupportedVersionError:
                raise
            except errors.KafkaError as error:
                failures += 1
                session.failed()
                if self._preferred.remove_node(node_id, plan.targets):
                    self.wake()
                self._failures.failed(what, error, self._world.now())
                self._network.request_metadata_update()
                logger.debug("%s failed: %s", what, error)
            else:
                self._failures.succeeded(what)
            finally:
                self._reserved -= wanted
            if failures or fruitless > _MOST_FRUITLESS:
                await trio.sleep(backoff.delay(failures or fruitless - _MOST_FRUITLESS, self._world.random.random()))

    async def _fetch(self, node_id: int, session: FetchSessionHandler, plan: FetchRound, max_bytes: int) -> _Outcome:
        """Send one request and process its response."""
        sent = session.plan(plan.targets)
        # An id for every topic, or names for all (KIP-516).
        by_name = any(target.topic_id == NO_TOPIC_ID for target in sent.targets.values())
        wait_ms = 0 if plan.crowded else self._options.fetch_max_wait_ms
        version = -1
        sent_at = self._world.now()

        def build(negotiated: int) -> FetchRequest:
            nonlocal version
            version = negotiated
            return FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=self._options.fetch_min_bytes,
                max_bytes=max_bytes,
                isolation_level=self._isolation,
                session_id=sent.session_id,
                session_epoch=sent.epoch,
                topics=sent.topics(negotiated),
                forgotten_topics_data=sent.forgotten_topics(negotiated),
                rack_id=self._options.client_rack,
            )

        response = await self._network.send(
            node_id,
            build,
            api=FetchRequest,
            timeout_ms=self._options.request_timeout_ms + wait_ms,
            max_version=_LAST_VERSION_WITH_NAMES if by_name else None,
        )
        now = self._world.now()
        self.counters.fetches += 1
        self.counters.last_fetch_at = now
        if self._network.hooks:
            self._call_hooks(node_id, response, now - sent_at)
        if not session.answered(response.session_id, response.error_code):
            error = errors.for_code(response.error_code)
            logger.debug("broker %d refused a fetch: %s; starting over with a full one", node_id, error.__name__)
            if error.invalid_metadata or not error.retriable:
                self._network.request_metadata_update()
            return _Outcome.REFUSED
        self.by_name = self.by_name or version < _FIRST_VERSION_WITH_IDS
        names = {target.topic_id: partition.topic for partition, target in sent.targets.items()}
        gained = False
        # A partition without data because others took the room is not stuck.
        taken = sum(len(p.records or b"") for topic in response.responses for p in topic.partitions)
        room = max_bytes - taken if taken else _NEVER
        self.fetch_log.sizes.append(taken)
        for topic in response.responses:
            name = names.get(topic.topic_id) if version >= _FIRST_VERSION_WITH_IDS else topic.topic
            if name is None:
                continue
            if taken:
                size = sum(len(answer.records or b"") for answer in topic.partitions)
                self.fetch_log.topic_sizes.append((name, size))
            for answer in topic.partitions:
                partition = TopicPartition(name, answer.partition_index)
                target = sent.targets.get(partition)
                if target is not None and self._take_data(partition, target, plan.versions, answer, room, now):
                    gained = True
        if gained:
            self._on_data()
        is_early = (now - sent_at) * 1000 < wait_ms / 2
        return _Outcome.NOTHING if is_early and not gained else _Outcome.PROGRESS

    def _call_hooks(self, node_id: int, response: FetchResponse, seconds: float) -> None:
        node = self._network.cluster.nodes.get(node_id)
        if node is not None:
            sizes = [len(answer.records or b"") for topic in response.responses for answer in topic.partitions]
            self._network.hooks.on_fetch(node, sum(map(bool, sizes)), sum(sizes), seconds)

    # ---------------------------------------------------------------- responses

    def _take_data(
        self,
        partition: TopicPartition,
        target: FetchTarget,
        versions: Mapping[TopicPartition, int],
        answer: PartitionData,
        room: float,
        now: float,
    ) -> bool:
        """Put the response for one partition into the buffer. Return False if it brought nothing."""
        state = self._subscription.get(partition)
        if state is None or versions.get(partition, state.version) != state.version:
            return False  # revoked or moved in the meantime
        if self.buffer.fetch_offset(partition, state) != target.fetch_offset:
            return False
        if 0 <= target.current_leader_epoch < self._network.cluster.leader_epoch_for(partition):
            return False  # from a former leader: the new leader may lack it (KIP-320)
        if answer.error_code:
            return self._take_error(partition, state, target, answer.error_code, now)
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        state.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            expires_at = now + self._options.metadata_max_age_ms / 1000
            self._preferred.set(partition, answer.preferred_read_replica, expires_at=expires_at)
            self.wake()
        records = answer.records
        if not records:
            end = answer.last_stable_offset if self._isolation else answer.high_watermark
            if target.fetch_offset >= end or answer.preferred_read_replica >= 0:
                self._note_progress(partition)
            elif room >= target.max_bytes:
                where = f"from offset {target.fetch_offset} on, though the log ends at {end}"
                self._note_no_progress(partition, state, errors.KafkaError(f"the broker sends nothing {where}"))
            return False
        self._planner.served(partition)
        self.counters.bytes += len(records)
        aborted = None
        if self._isolation:
            aborted = [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ()]
        data = CompletedFetch(
            partition,
            state.version,
            target.fetch_offset,
            records,
            aborted=aborted,
            check_crcs=self._options.check_crcs,
            decompressor=self._decompressor,
            max_decompressed=self._options.max_decompressed_batch_bytes,
        )
        if data.end is None and len(records) >= target.max_bytes:
            self._put_error(
                partition,
                state,
                target,
                errors.MessageSizeTooLargeError(
                    f"the record at offset {target.fetch_offset} of {partition} is larger than"
                    f" max_partition_fetch_bytes={target.max_bytes}: raise it, or seek past the record"
                ),
            )
            return True
        if data.ends_before(target.fetch_offset) or (data.end is None and is_cut(records)):
            what = "batches before it" if data.end is not None else "a part of a batch"
            why = errors.KafkaError(f"the broker sends only {what} from offset {target.fetch_offset} on")
            self._note_no_progress(partition, state, why)
            return False
        self._note_progress(partition)
        self.buffer.add(data)
        state.fetched_epoch = target.current_leader_epoch
        return True

    def _take_error(
        self, partition: TopicPartition, state: PartitionState, target: FetchTarget, code: int, now: float
    ) -> bool:
        error = errors.for_code(code)
        if error is errors.OffsetOutOfRangeError:
            if self._preferred.remove(partition):
                self.wake()
                return False  # the follower may lag behind; ask the leader
            outside = errors.OffsetOutOfRangeError(
                f"offset {target.fetch_offset} of {partition} is not in the log: it was deleted, or is after the end;"
                " seek to another offset, or set auto_offset_reset"
            )
            outside.offsets = {partition: target.fetch_offset}
            if partition in self._out_of_range:  # a reset has led there: do not reset and fetch without a pause
                self._planner.back_off(partition, now + self._options.retry_backoff_ms / 1000)
            self._out_of_range.add(partition)
            self._put_error(partition, state, target, outside)
            return True
        # A new fetch would return the same bytes: as in Kafka's client, the application gets the error.
        if (error.retriable and error is not errors.CorruptRecordError) or error is errors.UnknownError:
            if self._preferred.remove(partition):
                self.wake()
            if error.invalid_metadata:
                self._network.request_metadata_update()
            self._planner.back_off(partition, now + self._options.retry_backoff_ms / 1000)
            self._failures.failed(f"fetching {partition}", error(f"{partition}. {error.advice}".rstrip()), now)
            return False
        failure: errors.BrokerResponseError = error(
            f"fetching {partition} at offset {target.fetch_offset}. {error.advice}"
        )
        self._put_error(partition, state, target, failure)
        return True

    def _put_error(
        self, partition: TopicPartition, state: PartitionState, target: FetchTarget, error: errors.KafkaError
    ) -> None:
        self.buffer.add(CompletedFetch(partition, state.version, target.fetch_offset, b"", error=error))

    def handle_error(self, data: CompletedFetch) -> None:
        """Handle an error that is next in the buffer: reset the position if that is the policy, else raise.

        The error is removed, so that the partition is fetched again.
        """
        error = data.error
        self.buffer.remove(data)
        if isinstance(error, errors.OffsetOutOfRangeError):
            reset_out_of_range(self._subscription, data.partition, error)
            self._on_reset()
        elif error is not None:
            raise error
