"""`Producer`: the public methods, and entering and leaving its block.

Sending a record takes no checkpoint, task, event or cancel scope while an open batch has room for it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, Unpack
from weakref import WeakKeyDictionary

import trio

from triokafka.client.config import ProducerOptions
from triokafka.client.deliveries import Deliveries, Delivery
from triokafka.client.keywords import ProducerKeywords
from triokafka.client.metrics.client_metrics import ClientMetrics
from triokafka.client.metrics.producer_metrics import ProducerMetrics
from triokafka.client.metrics.telemetry import MetricsPusher
from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.batch import DeliveryCallback, ProducerBatch
from triokafka.client.producer.batch_opener import BatchOpener
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.bulk_sender import BulkSender
from triokafka.client.producer.call_times import CallTimes
from triokafka.client.producer.compressor import compressor_for
from triokafka.client.producer.fast_path_method import fast_path_method
from triokafka.client.producer.flush import drain, flush
from triokafka.client.producer.health import ProducerHealth, take_health
from triokafka.client.producer.incomplete_batches import IncompleteBatches
from triokafka.client.producer.interceptors import Headers, InterceptorChain
from triokafka.client.producer.kernel import BoundFastPath, FastPath
from triokafka.client.producer.metrics import take_metrics
from triokafka.client.producer.partition_stream import PartitionStream
from triokafka.client.producer.partitioner import RecordPartitioner
from triokafka.client.producer.plugins import install_plugins
from triokafka.client.producer.record_serializer import RecordSerializer
from triokafka.client.producer.sender import Sender
from triokafka.client.producer.settled_event import SettledEvent
from triokafka.client.producer.topic_states import TopicStates
from triokafka.client.producer.transactions.completion_check import CompletionCheck
from triokafka.client.producer.transactions.transaction import Transaction
from triokafka.client.producer.transactions.transactions import Transactions
from triokafka.client.producer.unhandled_failures import UnhandledFailures
from triokafka.client.producer.waiting_send import WaitingSend
from triokafka.client.producer.wakeup import Wakeup
from triokafka.errors import AuthenticationError, ClosedError, IllegalStateError, KafkaError, KafkaTimeoutError
from triokafka.metrics import MetricName
from triokafka.network.background_tasks import BackgroundTasks
from triokafka.network.cluster import PartitionMetadata
from triokafka.network.network_client import NetworkClient
from triokafka.network.traffic import Traffic
from triokafka.records import BatchBuilder
from triokafka.trio_context import require_trio
from triokafka.world import World
from triokafka.world.system import RealWorld

logger = logging.getLogger(__name__)

_NUMBERS: Final[WeakKeyDictionary[World, itertools.count[int]]] = WeakKeyDictionary()


class Producer:
    """Sends records to Kafka topics. Use it as ``async with Producer(bootstrap_servers=…) as producer``.

    Many tasks may use one producer at the same time. Options are keyword arguments, such as ``bootstrap_servers``,
    ``acks``, ``linger_ms``, ``batch_size``, ``compression_type`` and ``transactional_id``;
    `ProducerOptions` has all of them. ``world`` is for simulations. The constructor raises
    `ConfigurationError` for an invalid option. No connection is opened before the first send.

    Leaving the block sends all accepted records and waits for their acknowledgements, at most ``close_timeout_ms``. If
    the body was cancelled or raised, it waits only until no acknowledgement has arrived for
    ``close_stall_timeout_ms``. It then raises an `ExceptionGroup` of all failures that no task awaited and no callback
    received. An exception of the body propagates unchanged, with a note about those failures.
    """

    def __init__(self, *, world: World | None = None, **options: Unpack[ProducerKeywords]) -> None:
        opts = ProducerOptions.parse(options)
        self._world = world if world is not None else RealWorld()
        number = next(_NUMBERS.setdefault(self._world, itertools.count(1)))
        client_id = opts.client_id or f"triokafka-producer-{number}"
        traffic = Traffic()
        self._client = NetworkClient(opts.network(client_id=client_id, traffic=traffic), world=self._world)
        settings = opts.accumulator_settings()
        BatchBuilder(settings.batch_limit, compression=opts.compression_type, level=opts.compression_level)  # refuses
        self._unhandled = UnhandledFailures()
        self._tasks = BackgroundTasks(self._fail)
        batches = self._batches = IncompleteBatches(
            settings, BufferPool(opts.buffer_memory, settings.batch_limit), self._note_failure, self._raise_in_task
        )
        wakeup = self._wakeup = Wakeup(self._world)
        compressor = None
        if settings.compression_type != "none":
            compressor = compressor_for(
                settings.compression_type,
                settings.compression_level,
                world=self._world,
                start_task=lambda work: self._tasks.start(work, name="kafka compression"),
                on_done=batches.out_of_thread,
                wake=wakeup.wake,
            )
        accumulator = self._accumulator = Accumulator(batches, new_event=SettledEvent, compressor=compressor)
        completion = CompletionCheck() if opts.transactional_id is not None else None
        self._sender = Sender(
            accumulator,
            self._client,
            world=self._world,
            wakeup=wakeup,
            acks=opts.acks,
            retries=opts.retries,
            idempotence_required=opts.enable_idempotence is True or opts.transactional_id is not None,
            start_identity_task=lambda: self._tasks.start(
                self._sender.idempotence.fetch_identity, name="kafka producer id"
            ),
            on_fatal=self._fail,
            hooks=self._client.config.hooks,
            transactional_id=opts.transactional_id,
            completion=completion,
        )
        self._times = CallTimes(self._world.now)
        self._transactions: Transactions | None = None
        check_usable = self._check_usable
        check_can_send = check_usable
        if opts.transactional_id is not None and completion is not None:
            self._transactions = Transactions(
                opts.transactional_id,
                int(opts.transaction_timeout_ms),
                self._client,
                accumulator,
                max_block=opts.max_block_ms / 1000,
                close_timeout=opts.close_timeout_ms / 1000,
                check_usable=check_usable,
                fail=self._fail,
                wake_sender=wakeup.wake,
                set_identity=self._sender.begin_identity,
                completion=completion,
                times=self._times,
            )
            check_can_send = self._transactions.check_can_send
        # The last thing that can be refused: from here on there are plug-ins to close.
        opts, self._plugins = install_plugins(opts, client_id)
        self.options = opts
        partitioner = RecordPartitioner(opts.partitioner, ignore_keys=opts.partitioner_ignore_keys)
        self._topics = TopicStates(accumulator, self._client, partitioner, world=self._world, check_usable=check_usable)
        self._opener = BatchOpener(
            opts, accumulator, self._client, wakeup, world=self._world, check_usable=check_can_send
        )
        self._metrics = ClientMetrics("producer", client_id, clock=self._world.now, traffic=traffic, **opts.metrics())
        ProducerMetrics(
            self._metrics,
            self._sender.batch_log,
            accumulator,
            self._sender.counters,
            self._client,
            self._times,
        )
        self._pusher: MetricsPusher | None = None
        if opts.enable_metrics_push:
            resource = {} if opts.transactional_id is None else {"transactional_id": opts.transactional_id}
            self._pusher = MetricsPusher(self._client, traffic, self._tasks, self._metrics.values, resource)
        self._client.add_listener(wakeup.wake)
        serializer = RecordSerializer(opts, self._world.wall_ms)
        self._slow_path = WaitingSend(
            self._topics,
            serializer,
            self._opener,
            InterceptorChain(opts.interceptors),
            now=self._world.now,
            check_usable=check_can_send,
            on_delivery=opts.on_delivery,
        )
        self._bulk_sender = BulkSender(
            opts,
            self._topics,
            serializer,
            self._opener,
            now=self._world.now,
            wall_ms=self._world.wall_ms,
            check_usable=check_can_send,
        )
        self._fast_path = FastPath(
            self._topics.by_name,
            self._world.wall_ms,
            self._world.now,
            type(self._world).wall_ms is RealWorld.wall_ms,
            not (
                opts.interceptors
                or opts.partitioner
                or opts.key_serializer
                or opts.value_serializer
                or opts.on_delivery
                or opts.partitioner_ignore_keys
            ),
            self._opener.next_queue,
            self._slow_path.send,
            self._slow_path.send_now,
        )
        self._state = "new"
        self._failure: Exception | None = None

    # ---------------------------------------------------------------- entering and leaving

    async def __aenter__(self) -> Self:
        require_trio("Producer")
        if self._state != "new":
            raise ClosedError("a producer can be used for one async with block only; create a new producer")
        await self._client.__aenter__()
        await self._tasks.open()
        self._state = "open"
        self._opener.now = self._world.loop_clock()
        self._tasks.start(self._sender.run, name="kafka sender")
        if self._transactions is not None:
            self._tasks.start(self._transactions.task.run, name="kafka transactions")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._transactions is not None and self._failure is None:
            await self._transactions.abort_open()
        self._state = "closing"
        self._forget_topics()
        self._accumulator.pool.refuse_waiters(
            lambda: ClosedError("the producer was closed while a send waited for buffer memory; nothing was accepted")
        )
        limit = self.options.close_timeout_ms
        bound = f"close_timeout_ms={limit}"
        try:
            with trio.CancelScope(shield=True), trio.move_on_after(limit / 1000):
                patience = float("inf") if kind is None else self.options.close_stall_timeout_ms / 1000
                settled = await drain(
                    self._accumulator,
                    self._wakeup.wake,
                    patience=patience,
                    has_failed=lambda: self._failure is not None,
                )
                if not settled:
                    bound = f"close_stall_timeout_ms={self.options.close_stall_timeout_ms}"
        finally:
            self._state = "closed"
            self._batches.abort(
                lambda batch: KafkaTimeoutError(
                    f"{batch.count} records for {batch.topic_partition} were not acknowledged when the producer was"
                    f" closed ({bound}){self._sender.why_unacknowledged(batch)}"
                )
            )
            if self._pusher is not None and self._failure is None:
                await self._pusher.close()
            try:
                await self._tasks.close()
            finally:
                await self._client.__aexit__(None, None, None)
                self._metrics.close()
                self._plugins.close()
        self._unhandled.report(error)

    @property
    def network(self) -> NetworkClient:
        """The client's connections, for the adapters of other libraries' interfaces."""
        return self._client

    def _forget_topics(self) -> None:
        self._topics.by_name.clear()
        self._accumulator.close_open_batches()

    def _note_failure(self, batch: ProducerBatch) -> None:
        if self._transactions is None:  # else the transaction reports it
            self._unhandled.note(batch)

    def _raise_in_task(self, error: BaseException) -> None:
        """Raise an error that a callback must not swallow; raised in the callback, it would end the sender."""
        self._tasks.start(_raise, error, name="kafka escaped exception")

    def _fail(self, error: Exception) -> None:
        """Handle a fatal error: fail all pending batches with it, wake waiting callers, and let later calls raise
        it."""
        if self._failure is not None:
            return
        # The caller gets the error; the traceback of a refused login would only show this client's tasks.
        traceback = None if isinstance(error, AuthenticationError) else error
        logger.error("Producer: failed for good; create a new one: %s", error, exc_info=traceback)
        self._failure = error
        self._forget_topics()
        if self._transactions is not None:
            self._transactions.fail(error)
        self._batches.abort(lambda batch: self._failed_error())
        self._accumulator.pool.refuse_waiters(self._failed_error)
        self._client.fail(error)

    def _failed_error(self) -> KafkaError:
        failure = self._failure
        if isinstance(failure, KafkaError):
            again: KafkaError = failure.fresh_copy()
        else:
            again = KafkaError(f"a background task of the producer failed: {failure!r}")
        again.__cause__ = failure
        return again

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failed_error()
        if self._state != "open":
            require_trio("Producer")
            raise ClosedError("the producer is not open: use it inside its async with block")

    # ---------------------------------------------------------------- sending

    @fast_path_method
    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Put one record into the accumulator and return its delivery.

        Waits only while the buffer is full or the topic is unknown, at most ``max_block_ms`` in all; linger, batching
        and retries happen in the background. Yields to other tasks only when it begins a batch, a megabyte of batches
        or a millisecond after the last time. It then waits up to 5 ms for the network if more batches of the partition
        are ready than may be in flight. If cancelled while waiting, the record was not accepted and its buffer space is
        free again. Await the delivery for the broker's answer.

        Args:
            topic: its name.
            value, key: bytes, or objects for ``value_serializer`` and ``key_serializer``. None is sent as null.
            partition: its number. None chooses by the key's hash, or the sticky partition for a record without key.
            timestamp_ms: milliseconds since the epoch; None means now.
            headers: pairs of name and bytes (or None).
            on_delivery: called as (metadata, error) once the record is settled, in a background task of the producer or
                the task that leaves the block. It must not block, and may call `send_nowait`; its exceptions are
                logged. Replaces the option ``on_delivery``.

        Raises:
            BufferTimeoutError: no space within ``max_block_ms``. Slow down, or raise ``buffer_memory``.
            MessageSizeTooLargeError: more than ``max_request_size`` bytes after encoding; nothing was buffered.
            UnknownTopicOrPartitionError: the topic or the partition does not exist.
            TopicAuthorizationFailedError: the principal may not see the topic.
            KafkaTimeoutError: no broker returned the topic's partitions within ``max_block_ms``.
            TypeError, ValueError: key, value, headers, timestamp or partition have a wrong type or value.
            ClosedError: called outside the producer's block.
        """
        delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        return await self._slow_path.send(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    @fast_path_method
    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Do as `send`, but never wait and never yield to other tasks.

        Raises:
            BufferFullError: no buffer space now. Let the event loop run, then try again.
            MetadataNotReadyError: the topic's partitions are not known yet; the producer is requesting them.
            UnknownTopicOrPartitionError, MessageSizeTooLargeError, TypeError, ValueError, ClosedError: as for `send`.
        """
        delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        return self._slow_path.send_now(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    def send_nowait_as_deliveries(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Deliveries:
        """Do as `send_nowait`, and return the record's outcome as `send_many` does. Raises as `send_nowait`.

        A request that is due is sent before this returns, not when the event loop runs the next time.
        """
        is_held = self._wakeup.hold()
        try:
            delivery = self._fast_path.append(topic, value, key, partition, timestamp_ms, headers, None)
            if delivery is None:
                return self._slow_path.send_now_as_deliveries(topic, value, key, partition, timestamp_ms, headers)
        finally:
            if is_held and self._wakeup.let_go():
                self._sender.step_now()
        deliveries = Deliveries()
        deliveries.add(*delivery.place())
        return deliveries

    async def send_many(
        self,
        topic: str,
        values: Sequence[Any] | Any,
        *,
        keys: Sequence[Any] | Any | None = None,
        partition: int | Sequence[int | None] | Any | None = None,
        timestamp_ms: int | Sequence[int | None] | Any | None = None,
        headers: Headers | Sequence[Headers] | Any = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Deliveries:
        """Put many records into the accumulator and return their deliveries as one.

        Much cheaper per record than `send`: lists and Arrow columns are encoded without a Python object per record.
        If the producer has serializers, interceptors, a partitioner or a callback, it sends the records one by one.

        Records of one partition keep their order. Waits as `send` does, at most ``max_block_ms`` for each new batch
        (so that a call with many batches may take longer in all), and yields to other tasks as `send` does. If the
        call is cancelled or raises midway, the records before that point were accepted and no others. Their failures
        are reported like those of any delivery that no task awaited.

        Args:
            topic: its name.
            values, keys: sequences of keys and values as for `send`, or Arrow columns of binary or string in any layout
                (also chunked, dictionaries, views) from any library with the Arrow C data interface; of equal length.
                If a list, or the memory of a column, changes during the call, the sent records are undefined.
            partition, timestamp_ms: one for all, or one per record, as a sequence or as an Arrow column of integers;
                timestamps also of Arrow's own type, in any unit. None (null) has the same meaning as for `send`.
            headers: one list for all records, or one list per record; also an Arrow list of structs as
                `Consumer.poll_arrow` returns it.
            on_delivery: as for `send`, for each record.

        Raises:
            ValueError, TypeError: the lengths differ, an argument is not a column, or a partition or timestamp is out
                of range: no record was accepted. Or a record cannot be sent, or Arrow buffers are broken: the message
                begins with the record's number.
            Others: as for `send`; a note gives the number of accepted records, and ``accepted`` of the error has their
                `Deliveries`.
        """
        return await self._bulk_sender.send(
            topic, values, keys, partition, timestamp_ms, headers, on_delivery, self.send
        )

    def send_many_nowait(
        self,
        topic: str,
        values: Sequence[Any] | Any,
        *,
        keys: Sequence[Any] | Any | None = None,
        partition: int | Sequence[int | None] | Any | None = None,
        timestamp_ms: int | Sequence[int | None] | Any | None = None,
        headers: Headers | Sequence[Headers] | Any = (),
    ) -> Deliveries:
        """Do as `send_many`, but never wait and never yield to other tasks: send the first records only, if necessary.

        The length of the deliveries is the number of accepted records. The rest is for `send_many`: buffer space is
        missing, or a record cannot be sent, for which `send_many` raises the reason. A producer with serializers,
        interceptors, a partitioner or a callback accepts none. Requests that are due are sent before this returns, not
        when the event loop runs the next time.

        Raises:
            MetadataNotReadyError: the topic's partitions are not known yet; the producer is requesting them.
            Others: as for `send_many`.
        """
        is_held = self._wakeup.hold()
        try:
            return self._bulk_sender.send_nowait(topic, values, keys, partition, timestamp_ms, headers)
        finally:
            if is_held and self._wakeup.let_go():
                self._sender.step_now()

    async def bind(self, topic: str, partition: int) -> PartitionStream:
        """Resolve a partition once, and return the fastest way to send single records to it.

        Waits for the topic's metadata, at most ``max_block_ms``. Raises as `send` does.
        """
        self._check_usable()
        known = await self._topics.learn(topic, partition, self._opener.give_up_at())
        return PartitionStream(BoundFastPath(self._fast_path, known.queues[partition]))

    async def flush(self) -> None:
        """Send all accepted records without linger, and return when each of them is acknowledged or has failed.

        Does not wait for records accepted during the call. Does not raise failures: await the deliveries, or leave the
        block. Cancelling stops only the waiting.
        """
        self._check_usable()
        since = self._world.now()
        try:
            await flush(self._accumulator, self._wakeup.wake)
        finally:
            self._times.add("flush", since)
        if self._failure is not None:
            raise self._failed_error()

    # ---------------------------------------------------------------- transactions

    async def init_transactions(self) -> None:
        """Get the producer id and epoch of ``transactional_id``, and fence older producers that use it.

        The coordinator aborts a transaction that such a producer left open. `transaction` does this itself at its
        first use; call it earlier to fence older producers before reading committed offsets. Waits at most
        ``max_block_ms``. A second call does nothing. If cancelled, the request continues in the background.

        Raises:
            IllegalStateError: the producer has no ``transactional_id``.
            KafkaTimeoutError: no coordinator answered in time; call it again.
            ProducerFencedError: a newer producer with this transactional id has started.
            TransactionalIdAuthorizationFailedError, InvalidTransactionTimeoutError, UnsupportedVersionError: the
                producer has failed.
        """
        self._check_usable()
        transactions = self._needed_transactions()
        with self._times.measure("txn-init"):
            await transactions.initialize()

    def transaction(self) -> Transaction:
        """Return a new transaction: ``async with producer.transaction() as transaction``; see `Transaction`.

        Raises:
            IllegalStateError: the producer has no ``transactional_id``.
        """
        return Transaction(self._needed_transactions())

    def _needed_transactions(self) -> Transactions:
        if self._transactions is None:
            raise IllegalStateError("transactions need a producer with transactional_id='…'")
        return self._transactions

    # ---------------------------------------------------------------- looking

    async def partitions_for(self, topic: str) -> Sequence[PartitionMetadata]:
        """Return a topic's partitions, in order. Waits for metadata, at most ``max_block_ms``. Raises as `send`."""
        self._check_usable()
        cluster = await self._client.metadata_for([topic], timeout_ms=self.options.max_block_ms)
        return list(cluster.topics[topic].partitions.values())

    def metrics(self) -> Mapping[str, float]:
        """Return totals since the start, averages, and current values; `METRICS` has names and meanings."""
        self._metrics.drain()
        return take_metrics(self._accumulator, self._sender.counters, self._client, self._world.now())

    def kafka_metrics(self) -> dict[MetricName, float]:
        """Return Kafka's metrics by name, group and tags: rates and averages of the last minute, and totals."""
        return self._metrics.values()

    def health(self) -> ProducerHealth:
        """Return the producer's health: failing connections and partitions, age of unacknowledged records."""
        return take_health(self._state, self._accumulator, self._client, self._world.now(), self._failure)


async def _raise(error: BaseException) -> None:
    raise error
