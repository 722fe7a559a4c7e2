"""The task that drains the accumulator and decides which batches to send.

It never waits for a broker: `RequestSender` hands requests to connections, which call back with the responses. Every
wake-up runs `Sender.step`; between wake-ups the task sleeps until a linger time, a back-off or a timeout ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.batch_expiry import next_expiry, take_expired
from triokafka.client.producer.batch_log import BatchLog
from triokafka.client.producer.counters import new_counters
from triokafka.client.producer.idempotence import Idempotence
from triokafka.client.producer.request_sender import RequestSender
from triokafka.client.producer.response_handler import ResponseHandler
from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.client.producer.transactions.completion_check import CompletionCheck
from triokafka.client.producer.wakeup import Wakeup
from triokafka.errors import KafkaError
from triokafka.hooks import NO_HOOKS, HookChain
from triokafka.network.broker_channel import BrokerChannel
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.world import World

_NEVER: Final = float("inf")


class Sender:
    """Drives one producer's accumulator over one network client.

    ``start_identity_task`` starts `Idempotence.fetch_identity` as a task of the producer. ``on_fatal`` gets errors
    after which the producer cannot continue. `COUNTERS` describes the ``counters``.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        client: NetworkClient,
        *,
        world: World,
        wakeup: Wakeup,
        acks: int,
        retries: int,
        idempotence_required: bool,
        start_identity_task: Callable[[], None],
        on_fatal: Callable[[Exception], None],
        hooks: HookChain = NO_HOOKS,
        transactional_id: str | None = None,
        completion: CompletionCheck | None = None,
    ) -> None:
        self.counters = new_counters()
        self.batch_log = BatchLog()
        self._batches = accumulator.batches
        self.idempotence = Idempotence(
            accumulator,
            client,
            world=world,
            counters=self.counters,
            required=idempotence_required,
            transactional=transactional_id is not None,
            start_task=start_identity_task,
            wake=wakeup.wake,
            on_fatal=on_fatal,
        )
        self._answers = ResponseHandler(
            self._batches,
            client,
            world=world,
            acks=acks,
            retries=retries,
            counters=self.counters,
            log=self.batch_log,
            hooks=hooks,
            on_identity_lost=self.idempotence.forget_identity,
            on_fatal=on_fatal,
        )
        settings = accumulator.settings
        self._counts_refusals = settings.availability_timeout > 0
        self._lingers = settings.linger > 0
        self._may_send_only = settings.compression_type == "none" and not self._counts_refusals
        self._requests = RequestSender(
            accumulator,
            client,
            self._answers,
            world=world,
            acks=acks,
            counters=self.counters,
            log=self.batch_log,
            hooks=hooks,
            wake=wakeup.wake,
            go_on=self._go_on,
            on_bug=on_fatal,
            transactional_id=transactional_id,
            completion=completion,
        )
        self._accumulator = accumulator
        self._client = client
        self._world = world
        self._wakeup = wakeup
        self._on_fatal = on_fatal

    # ---------------------------------------------------------------- the task

    def _go_on(self, now: float) -> None:
        """Do `step` now, without waiting for the task's next turn in the event loop."""
        if self._wakeup.is_asleep:
            self._wakeup.set_alarm(now + self.step(now))
        else:
            self._wakeup.wake()

    def step_now(self) -> None:
        """Do `step` in place of the task, which sleeps."""
        try:
            self._client.check_usable()
        except KafkaError:
            self._wakeup.wake()  # the task raises it
            return
        now = self._world.now()
        try:
            self._wakeup.set_alarm(now + self.step(now))
        except Exception as bug:
            self._on_fatal(bug)

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wakeup.ring)
            clock = self._world.loop_clock()
            while True:
                self._wakeup.stay_awake()
                self._client.check_usable()  # its failure is the producer's, also while there is nothing to send
                now = clock()
                await self._wakeup.sleep(now + self.step(now))

    def step(self, now: float) -> float:
        """Do everything that is due; return the seconds until more may be due, unless `Wakeup.wake` is called
        before."""
        accumulator, client = self._accumulator, self._client
        self.idempotence.restart_partitions()
        expiry = next_expiry(self._batches, now)
        if expiry <= 0:
            for batch in take_expired(self._batches, now, self.why_unacknowledged):
                self.counters["record_expired_total"] += batch.count
            expiry = next_expiry(self._batches, now)
        accumulator.start_compressing()
        if not accumulator.active:
            accumulator.note_refusals((), now)
            return expiry
        if self._batches.idempotent and not self.idempotence.identity.known:
            self.idempotence.want_identity()
            return expiry
        cluster = client.cluster
        if self._may_send_only and (accumulator.in_hurry or not self._lingers) and self._sends_only(cluster, now):
            return expiry
        channels: dict[int, BrokerChannel] = {}
        while True:
            ready = accumulator.ready(cluster, now)
            wait = min(ready.next_check, expiry)
            if ready.leaderless:
                self._ask_for_leaders(now)
            known, channels = channels, {}
            refusing = ready.held
            for node in ready.nodes:
                channel: BrokerChannel | None = known.get(node)
                if channel is None or not channel.is_ready(now):
                    channel = client.ready_channel(node, now)
                if channel is not None:
                    channels[node] = channel
                else:
                    refusing.append(node)
                    wait = min(wait, client.ready_delay(node))
            accumulator.note_refusals([node for node in refusing if node not in channels], now)
            if not channels:
                return wait
            drained = accumulator.drain(cluster, channels, now, self.idempotence.identity)
            if not drained:
                return wait
            for node, batches in drained.items():
                if len(drained) > 1 or not accumulator.active:
                    self._requests.send(channels[node], cluster, batches, now)
                else:
                    self._send_with_following(channels[node], cluster, batches, now)
            if not accumulator.active:
                return expiry
            if not self._counts_refusals:
                for node in drained:
                    if channels[node].is_ready(now):
                        break
                else:
                    return wait  # the connection wakes the sender when it takes requests again

    def _sends_only(self, cluster: Cluster, now: float) -> bool:
        """Send the batch, if there is only one and nothing is in its way. Return whether nothing is left to send."""
        accumulator = self._accumulator
        head = accumulator.only_head(now)
        if head is None:
            return False
        leader = cluster.leader_for(head.topic_partition)
        channel = self._client.ready_channel(leader, now) if leader >= 0 else None
        if channel is None:
            return False
        accumulator.take_only(head, cluster.leader_epoch_for(head.topic_partition), self.idempotence.identity)
        self._requests.send(channel, cluster, [head], now)
        return not accumulator.active

    def _send_with_following(
        self, channel: BrokerChannel, cluster: Cluster, batches: list[ProducerBatch], now: float
    ) -> None:
        """Send a request, and in the same write the batches behind its last one while no other partition has any."""
        channel.hold()
        try:
            self._requests.send(channel, cluster, batches, now)
            last: ProducerBatch | None = batches[-1]
            while last is not None and channel.is_ready(now):
                last = self._accumulator.take_following(last, now, self.idempotence.identity)
                if last is not None:
                    self._requests.send(channel, cluster, [last], now)
        finally:
            channel.let_go()

    def why_unacknowledged(self, batch: ProducerBatch) -> str:
        """Return the end of the error message of an expired batch: the cause of its delay."""
        queue = self._accumulator.queue(batch.topic_partition)
        for ahead in (*queue.sequences.in_flight[:1], *list(queue.batches)[:1]):
            if ahead.number < batch.number and ahead.attempts:
                return "; an earlier batch of the partition goes first" + self._why_unsettled(ahead)
        return self._why_unsettled(batch)

    def _why_unsettled(self, batch: ProducerBatch) -> str:
        if batch.on_wire:
            return "; the broker has not answered the last attempt"
        if batch.last_error is not None:
            return f"; the last attempt failed with {batch.last_error!r}"
        cluster = self._client.cluster
        topic, partition = batch.topic_partition
        if topic not in cluster.topics:
            return f"; the cluster does not have the topic {topic!r}"
        if cluster.partition(batch.topic_partition) is None:
            return f"; the topic {topic!r} no longer has partition {partition}"
        leader = cluster.leader_for(batch.topic_partition)
        if leader < 0:
            return f"; partition {partition} has no leader"
        error = self._client.channel_error(leader)
        if error is not None:
            return f"; {error}"
        delay = self._client.ready_delay(leader)
        if 0 < delay < _NEVER:
            return f"; broker {leader} throttles the producer for another {delay:.0f} s, because of a quota"
        return f"; the connection to broker {leader} accepts no more requests"

    def _ask_for_leaders(self, now: float) -> None:
        for topic in self._accumulator.waiting_topics():
            self._client.metadata.use_topic(topic, now)  # must not expire while records wait
        self._client.request_metadata_update()

    def begin_identity(self, identity: ProducerIdentity, *, implicit: bool) -> None:
        """Use the producer id and epoch that the transaction coordinator gave. ``implicit``: see `RequestSender`."""
        self.idempotence.use(identity)
        self._requests.implicit = implicit
