"""The parts of a consumer, constructed and connected, and their background tasks."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.arguments import checked_timeout_ms
from triokafka.client.consumer.committer import Committer
from triokafka.client.consumer.failure_tracker import FailureTracker
from triokafka.client.consumer.fetch_collector import FetchCollector
from triokafka.client.consumer.fetcher import Fetcher
from triokafka.client.consumer.group_offsets import GroupIdentity, GroupOffsets
from triokafka.client.consumer.log_offsets import LogOffsets
from triokafka.client.consumer.membership.group_membership import GroupMembership
from triokafka.client.consumer.membership.leave_sender import LEAVE_TIMEOUT
from triokafka.client.consumer.missing_topics import MissingTopics
from triokafka.client.consumer.offset_reset import RESET_POLICIES
from triokafka.client.consumer.position_finder import PositionFinder
from triokafka.client.consumer.rebalance.composition import compose_group
from triokafka.client.consumer.record_wait import ConsumerWakeup, RecordWait
from triokafka.client.consumer.recreated_topics import RecreatedTopics
from triokafka.client.consumer.subscription_state import Mode, SubscriptionPattern, SubscriptionState
from triokafka.client.consumer.topic_lists import TopicLists
from triokafka.client.metrics.client_metrics import ClientMetrics, quiet_seconds
from triokafka.client.metrics.consumer_metrics import ConsumerMetrics
from triokafka.client.metrics.on_demand import OnDemandMetrics
from triokafka.client.metrics.telemetry import MetricsPusher
from triokafka.errors import ClosedError, IllegalStateError, KafkaError
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.network.traffic import Traffic
from triokafka.structs import TopicPartition
from triokafka.trio_context import require_trio
from triokafka.world import World

logger = logging.getLogger(__name__)


class Engine:
    """The parts of one consumer and their lifetime.

    `Consumer` checks the arguments of the public calls; the engine serves one task at a time.
    """

    def __init__(self, options: ConsumerOptions, world: World, *, client_id: str) -> None:
        self.options = options
        self.world = world
        traffic = Traffic()
        network = options.network(
            client_id=client_id, allow_auto_create_topics=options.allow_auto_create_topics, traffic=traffic
        )
        self.network = NetworkClient(network, world=world)
        self.subscription = SubscriptionState(
            RESET_POLICIES[options.auto_offset_reset], exclude_internal_topics=options.exclude_internal_topics
        )
        self.failure_tracker = FailureTracker()
        wakeup = ConsumerWakeup()
        self.notify = wakeup.notify
        self._tasks = BackgroundTasks(self._fail)
        self.fetcher = Fetcher(
            options, self.network, self.subscription, self._tasks, self.failure_tracker, self.notify, self.wake
        )
        self.collector = FetchCollector(options, self.subscription, self.fetcher)
        self.log_offsets = LogOffsets(options, self.network)
        self.topic_lists = TopicLists(options, self.network)
        self.group_offsets = GroupOffsets(options, self.network, self._member)
        self._positions = PositionFinder(
            options, self.network, self.subscription, self.failure_tracker, self._member, self._positions_changed
        )
        self.committer = Committer(
            options,
            world,
            self.group_offsets,
            self._tasks,
            self.failure_tracker,
            self.network.hooks,
            finished=self.collector.finished,
            owns=self.subscription.__contains__,
            on_done=self.notify,
        )
        self._membership, self._rebalancer = compose_group(
            options,
            self.network,
            self.subscription,
            self.committer,
            self._tasks,
            self.failure_tracker,
            progress=lambda: self.collector.progress,
            on_change=self.notify,
            on_assignment=self._assignment_changed,
        )
        self.lookup_times = {"commit": 0.0, "committed": 0.0}
        """Seconds in the user's calls of these names."""
        self._traffic = traffic
        self._client_id = client_id
        self.metrics = OnDemandMetrics(
            self._new_metrics, traffic, quiet_seconds=quiet_seconds(options.metrics_sample_window_ms / 1000)
        )
        if options.metric_reporters:
            self.metrics.built()  # each reporter is called with every metric
        self._pusher: MetricsPusher | None = None
        if options.enable_metrics_push:
            resource = {"group_id": options.group_id or "", "group_instance_id": options.group_instance_id or ""}
            self._pusher = MetricsPusher(
                self.network,
                traffic,
                self._tasks,
                self.metrics.values,
                {key: value for key, value in {**resource, "client_rack": options.client_rack or ""}.items() if value},
            )
        self._missing_topics = MissingTopics(self.network, self.subscription, self.failure_tracker)
        self._recreated_topics = RecreatedTopics(self.subscription)
        self.network.metadata.add_listener(self._metadata_changed)
        self.network.add_listener(self._network_changed)
        self._state = "new"
        self.failure: Exception | None = None
        """The error that made the consumer unusable."""
        wait = RecordWait(
            options,
            world,
            self.subscription,
            self.collector,
            self._positions,
            self._missing_topics,
            self._rebalancer,
            self.failure_tracker,
            wakeup,
            membership=lambda: self.membership,
            is_open=lambda: self._state == "open",
            check_usable=self.check_usable,
        )
        self.user, self.interrupt = wait.user, wait.interrupt
        self.wait_for, self.wait_for_state = wait.wait_for, wait.wait_for_state

    def _new_metrics(self) -> ClientMetrics:
        options = self.options
        metrics = ClientMetrics(
            "consumer", self._client_id, clock=self.world.now, traffic=self._traffic, **options.metrics()
        )
        ConsumerMetrics(
            metrics,
            self.network,
            self.subscription,
            self.fetcher,
            position=self.collector.position,
            membership=lambda: self.membership,
            committed_only=options.isolation_level == "read_committed",
            call_times=self.lookup_times,
        )
        return metrics

    # ---------------------------------------------------------------- lifetime

    async def open(self) -> None:
        """Start the background tasks. Does not connect."""
        require_trio("Consumer")
        if self._state != "new":
            raise ClosedError("a consumer can be used for one async with block only")
        await self.network.__aenter__()
        await self._tasks.open()
        self._state = "open"
        self._tasks.start(self._positions.run, name="kafka positions")
        if self.committer.automatic:
            self._tasks.start(self.committer.run, name="kafka auto-commit")
        if self._membership is not None:
            self._membership.started(self.world.now())
            self._tasks.start(self._membership.run_heartbeats, name="kafka heartbeats")
        if self.subscription.mode is not Mode.NONE:
            self.network.request_metadata_update()
        self.wake()

    async def close(self, *, in_hand_is_finished: bool) -> None:
        """Commit, leave the group and end every task, within ``close_timeout_ms``; the caller's cancellation waits."""
        if self._state != "open":
            return
        self._state = "closing"
        try:
            with trio.CancelScope(shield=True), trio.move_on_after(self.options.close_timeout_ms / 1000):
                await self._leave(in_hand_is_finished)
        finally:
            self._state = "closed"
            if self._pusher is not None and self.failure is None:
                await self._pusher.close()
            await self._tasks.close()
            await self.network.__aexit__(None, None, None)
            self.metrics.close()
            self.fetcher.buffer.clear()

    async def _leave(self, in_hand_is_finished: bool) -> None:
        """Commit, call the listener and leave.

        Each step has its own limit, so that time is left for the leave request.
        """
        self.collector.put_back()
        if in_hand_is_finished:
            self.subscription.finish_all()
        membership = self.membership
        in_group = membership is not None and membership.identity.generation >= 0
        ends_at = self.world.now() + self.options.close_timeout_ms / 1000
        share = min(LEAVE_TIMEOUT, self.options.close_timeout_ms / 4000)
        with self._until(ends_at - 2 * share, "commits were still under way"):
            await self.committer.all_sent()
            if self.committer.automatic and (in_group or self.subscription.mode is Mode.ASSIGNED):
                await self.committer.commit_finished(ends_at - 2 * share - self.world.now())
        self._rebalancer.abandon()
        with self._until(ends_at - share, "the rebalance listener was not done, or commits were still under way"):
            await self._rebalancer.drain()
            await self.committer.all_sent()  # those of the listener, too
        if membership is not None:
            await membership.leave("the consumer was closed")

    @contextmanager
    def timed(self, call: str) -> Iterator[None]:
        """Add the time of the block to ``lookup_times``."""
        since = self.world.now()
        try:
            yield
        finally:
            self.lookup_times[call] += self.world.now() - since

    @contextmanager
    def _until(self, at: float, otherwise: str) -> Iterator[None]:
        with trio.CancelScope(deadline=self.world.deadline(at)) as scope:
            yield
        if scope.cancelled_caught:
            logger.warning("Consumer: close_timeout_ms ended: %s", otherwise)

    @property
    def membership(self) -> GroupMembership | None:
        """The membership of the group that decides the assignment; None without one."""
        return self._membership if self.subscription.uses_group else None

    @property
    def listener(self) -> object:
        """The user's rebalance listener."""
        return self._rebalancer.listener

    @listener.setter
    def listener(self, listener: object) -> None:
        self._rebalancer.listener = listener

    def _member(self) -> GroupIdentity | None:
        """The member that offset fetches name; None except under the consumer protocol."""
        membership = self.membership
        return membership.identity if membership is not None and self.options.group_protocol == "consumer" else None

    def _fail(self, error: Exception) -> None:
        logger.error("Consumer: a background task failed, and the consumer with it", exc_info=error)
        if self.failure is None:
            self.failure = error
        self.notify()

    def check_usable(self) -> None:
        """Raise if the consumer is not open, or if a background task has failed."""
        if self.failure is not None:
            failure = self.failure
            if isinstance(failure, KafkaError):
                raise type(failure)(*failure.args) from failure
            raise KafkaError(f"a background task of the consumer failed: {failure!r}") from failure
        if self._state not in ("open", "closing"):
            require_trio("Consumer")
            raise ClosedError(f"the consumer is {self._state}: use it inside its async with block")
        self.network.check_usable()

    def seconds(self, timeout_ms: float | None) -> float:
        """Return a call's time limit in seconds; ``default_api_timeout_ms`` by default. Raises `TypeError`."""
        return checked_timeout_ms(self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms) / 1000

    def deadline(self, timeout_ms: float | None) -> float:
        """Return the end of a call's time limit, in seconds on the world's clock. Raises `TypeError`."""
        return self.world.now() + self.seconds(timeout_ms)

    # ---------------------------------------------------------------- subscription

    def subscribe(self, topics: Sequence[str], listener: object) -> None:
        """Subscribe by name."""
        self._check_can_change()
        self.subscription.subscribe(topics)
        self._rebalancer.listener = listener
        self._subscribed(self.subscription.topics)

    def subscribe_pattern(self, pattern: str | re.Pattern[str], listener: object) -> None:
        """Subscribe by pattern; needs the names of all topics."""
        self._check_can_change()
        self.subscription.subscribe_pattern(pattern)
        self._rebalancer.listener = listener
        self.network.metadata.set_all_topics(True)
        self._rebalancer.fresh_after = self.network.metadata.request_update()
        self._subscribed(())

    def subscribe_remote_pattern(self, pattern: SubscriptionPattern, listener: object) -> None:
        """Subscribe by a pattern that the group's coordinator applies."""
        self._check_can_change()
        if self._membership is None or self.options.group_protocol != "consumer":
            raise IllegalStateError(
                "a SubscriptionPattern is applied by the coordinator of a group under group_protocol='consumer', which"
                " this consumer does not use; a str or re.Pattern is applied by the consumer itself"
            )
        self.subscription.subscribe_remote_pattern(pattern)
        self._rebalancer.listener = listener
        self._subscribed(self.subscription.topics)

    def _subscribed(self, topics: Iterable[str]) -> None:
        self.committer.membership = self._membership
        self._keep_metadata_of(topics)
        self.wake()

    def _keep_metadata_of(self, topics: Iterable[str]) -> None:
        self.network.metadata.set_topics(topics)
        if self.network.metadata.update_requested:
            self.network.request_metadata_update()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Assign by hand."""
        self._check_can_change()
        self.collector.put_back()
        self.subscription.assign(partitions)
        self._start_over(self.network.cluster)
        self.committer.membership = None
        self.committer.assignment_changed()
        self._keep_metadata_of(dict.fromkeys(partition.topic for partition in partitions))
        self.wake()

    def unsubscribe(self) -> None:
        """Drop subscription and assignment; end a membership in the background."""
        self._check_can_change()
        self.collector.put_back()
        membership = self.membership
        if self._state == "open" and self.subscription.uses_group:
            self._rebalancer.abandon()
            if membership is not None:
                finished = self.collector.finished({}) if self.committer.automatic else {}
                identity = membership.identity
                membership.start_leaving("unsubscribed", lambda: self.committer.commit_as(finished, identity))
        self.subscription.unsubscribe()
        self.network.metadata.set_all_topics(False)
        self.network.metadata.set_topics(())
        self.wake()

    def _check_can_change(self) -> None:
        if self._state == "closed":
            raise ClosedError("the consumer is closed")

    # ---------------------------------------------------------------- changes

    def wake(self) -> None:
        """Wake all parts: positions, pauses or the assignment changed."""
        self._positions.wake()
        self.fetcher.wake()
        self.notify()

    def _assignment_changed(self) -> None:
        # ``async for`` must not return records of revoked partitions that it has taken from the buffer.
        self.collector.put_back()
        self._start_over(self.network.cluster)
        self.wake()

    def _start_over(self, cluster: Cluster) -> None:
        for topic in self._recreated_topics.find(cluster):
            logger.warning("topic %r was deleted and created again: its positions are looked up again", topic)
            self.collector.put_back()
            self.subscription.start_over(topic)
            self.committer.assignment_changed()

    def _fetch_again(self, cluster: Cluster) -> None:
        """Drop buffered data of former leaders: new ones have every record below the position, but maybe not this
        data."""
        with_new_leader = self.subscription.with_new_leader(cluster.leader_epoch_for)
        if with_new_leader:
            self.collector.put_back()
            for partition in with_new_leader:
                self.subscription.fetch_again(partition)

    def _positions_changed(self) -> None:
        self.fetcher.wake()
        self.notify()

    def _network_changed(self) -> None:
        if self.network.has_failed:
            self.notify()  # a caller that waits for records would otherwise learn of it at its time limit

    def _metadata_changed(self, cluster: Cluster) -> None:
        self._fetch_again(cluster)
        self.subscription.check_epochs(cluster.leader_epoch_for)
        self._missing_topics.look_at(cluster)
        self._start_over(cluster)
        if self._state == "open":
            self.wake()

    def ongoing_failure(self) -> str:
        """Return the longest ongoing failure, for the end of an error message; empty if there is none."""
        failing = self.failure_tracker.current
        return f": {failing[0].what} fails: {failing[0].error}" if failing else ""

    # ---------------------------------------------------------------- state

    @property
    def state(self) -> str:
        """The state of the consumer, or of its group member, in words."""
        if self._state != "open":
            return self._state
        membership = self.membership
        return self.subscription.mode.value if membership is None else membership.state
