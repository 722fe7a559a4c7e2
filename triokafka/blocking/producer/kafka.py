"""`KafkaProducer`: kafka-python's producer over the SDK's.

`KafkaProducer.send` appends a record to a chunk (`staging`) and makes a future; everything else works on whole chunks,
in the loop.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import time
import warnings
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from triokafka.blocking.bootstrap import bootstrap
from triokafka.blocking.deadline import Deadline
from triokafka.blocking.options import API_VERSION, is_of_the_sdk, take
from triokafka.blocking.partitioner import DefaultPartitioner, StickyPartitioner
from triokafka.blocking.producer.chunk import Chunk, Headers
from triokafka.blocking.producer.configuration import PRODUCER_DEFAULTS, sdk_options, staged_bytes
from triokafka.blocking.producer.future import FutureRecordMetadata
from triokafka.blocking.producer.records import TopicView, check_timestamp, checked_headers, serialized
from triokafka.blocking.producer.session import ProducerSession
from triokafka.blocking.producer.staging import RECORD_OVERHEAD, Stage
from triokafka.blocking.serializer import Serializer, SerializeWrapper
from triokafka.blocking.topic_names import ensure_valid_topic_name
from triokafka.errors import (
    BrokerResponseError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from triokafka.loop_thread import fork_count, loop_thread

log = logging.getLogger(__name__)

_VIEW_SECONDS: Final = 1.0
_numbers: Final = itertools.count(1)


class KafkaProducer:
    """Sends records to a Kafka cluster, with kafka-python's interface.

    `send` puts a record into a buffer and returns a future; batches are sent in the background. Any number of threads
    may use one producer. Leaving a ``with`` block, or `close`, delivers all records sent before.

    Keyword arguments are kafka-python's configuration with its defaults (``DEFAULT_CONFIG``), and ``buffer_memory``, in
    bytes: `send` waits, at most ``max_block_ms``, while this many bytes of records are unacknowledged or wait for their
    callbacks. The constructor waits until a broker of ``bootstrap_servers`` answers, at most ``bootstrap_timeout_ms``.

    In a forked child the parent's producer raises `IllegalStateError`; the parent delivers the records sent before the
    fork. Construct a new producer in the child. At interpreter exit an open producer is closed within one second.

    Raises:
        ValueError: a configuration name or codec that does not exist.
        KafkaConfigurationError: values that cannot be used, or security that is not there.
        KafkaTimeoutError: no broker answered.
    """

    DEFAULT_CONFIG: Final[dict[str, Any]] = PRODUCER_DEFAULTS
    DEPRECATED_CONFIGS: Final = ()
    _closed = True  # also if the constructor failed, or its arguments were wrong

    def __init__(self, **configs: Any) -> None:
        unknown = {
            name: value
            for name, value in configs.items()
            if name not in self.DEFAULT_CONFIG and not is_of_the_sdk(name)
        }
        if unknown:
            raise ValueError(f"Unrecognized configs: {sorted(unknown)}")
        self.config = config = take(self.DEFAULT_CONFIG, configs)
        for name in ("key_serializer", "value_serializer"):
            if config[name] is not None and not isinstance(config[name], Serializer):
                warnings.warn(f"{name} does not implement Serializer", DeprecationWarning, stacklevel=2)
                config[name] = SerializeWrapper(config[name])
        if config["client_id"] is None:
            config["client_id"] = f"kafka-python-producer-{next(_numbers)}"
        options = sdk_options(config, configs)
        loop = loop_thread()
        if config["api_version"] is None:
            bootstrap(loop, config, config["bootstrap_timeout_ms"])
            config["api_version"] = API_VERSION
        name = f"kafka {config['client_id']}"
        self._session = ProducerSession(
            loop, options, staged_bytes=staged_bytes(config), unreported_bytes=config["buffer_memory"], name=name
        )
        loop.call(self._session.open)
        self._staging = self._session.staging
        self._lock = self._staging.lock
        self._stages = self._staging.stages
        self._limit = self._staging.limit
        self._max_request_size = config["max_request_size"]
        self._forks = fork_count()
        self._partitioner: Any = None
        if type(config["partitioner"]) not in (DefaultPartitioner, StickyPartitioner):
            self._partitioner = config["partitioner"]
        self._transactional = bool(config["transactional_id"])
        self._in_transaction = False
        self._is_plain = not (self._partitioner or config["key_serializer"] or config["value_serializer"])
        # Whether `send` may take its fast path now: never outside of a transaction if the producer is transactional.
        self._plain = self._is_plain and not self._transactional
        self._closed = False
        _open.add(self)
        self._unregister = _close_at_exit(self)

    # ---------------------------------------------------------------- lifetime

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed and self._forks == fork_count():
            # Never wait here: the garbage collector may call this in the loop's own thread.
            self._closed = True
            self._unregister()
            self._session.abandon()

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Deliver all buffered records, run their callbacks, and end. Does nothing if closed already.

        In a callback it returns at once; the rest is delivered in the background within one second.

        Arguments:
            timeout: time limit in seconds for brokers and callbacks together. Records not acknowledged by then fail
                with `KafkaTimeoutError`.
            null_logger: has no effect here.
        """
        if self._closed:
            return
        if timeout is not None and not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"Invalid timeout: {timeout}")
        deadline = Deadline(timeout)
        self._closed = True
        self._unregister()
        if self._forks != fork_count():
            return  # the lock may have been held by a thread that does not exist in this process
        self._staging.close()
        if self._session.callbacks.is_current_thread or self._session.loop.is_current_thread:
            self._session.abandon()
            return
        try:
            self._session.loop.call(self._session.close, timeout)
        except IllegalStateError:
            log.debug("%s: the loop has ended before", self)
        except BaseException:
            self._session.abandon()
            raise
        self._session.callbacks.wait(deadline.left)
        self._staging.end_flush(float("inf"))
        for name in ("key_serializer", "value_serializer"):
            if self.config[name] is not None:
                self.config[name].close()

    def _check_open(self) -> None:
        if self._forks != fork_count():
            raise IllegalStateError(
                "this KafkaProducer belongs to the process from which this one was forked: make a new one here"
            )
        if self._closed:
            raise IllegalStateError("KafkaProducer already closed!")

    def bootstrap_connected(self) -> bool:
        """Return whether a broker was found."""
        return not self._closed

    # ---------------------------------------------------------------- sending

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Put a record into the buffer.

        Waits, at most ``max_block_ms``, for the metadata of a topic that is new to the producer, and while the buffer
        is full. In a callback it does not wait for the buffer.

        Arguments:
            topic: the topic's name.
            value: bytes, or an object for ``value_serializer``; None is a tombstone in a compacted topic.
            key: the same, for ``key_serializer``. Records with equal keys go to one partition.
            headers: a list of (name, bytes).
            partition: the partition; by default the partitioner chooses one.
            timestamp_ms: milliseconds since the epoch; the present time by default.

        Raises:
            KafkaTimeoutError: the metadata or buffer space was not available in time.
            MessageSizeTooLargeError: more than ``max_request_size`` bytes.
            TypeError: a value, key or partition has the wrong type, or headers are not a list of (str, bytes).
            ValueError: no key and no value, an unknown partition, or an invalid topic name.
            IllegalStateError: the producer is closed, or it has a ``transactional_id`` and no transaction is open.
        """
        stage = self._stages.get(topic)
        if (
            stage is None
            or type(value) is not bytes
            or not self._plain
            or headers
            or partition is not None
            or timestamp_ms is not None
        ):
            return self._send_any(topic, value, key, headers, partition, timestamp_ms)
        size = len(value) + RECORD_OVERHEAD
        if key is not None:
            if type(key) is not bytes:
                return self._send_any(topic, value, key, headers, partition, timestamp_ms)
            size += len(key)
        if size > self._max_request_size:
            self._refuse_size(size)
        staging = self._staging
        if staging.staged > self._limit:
            staging.wait_for_room(self.config["max_block_ms"] / 1000)
        with self._lock:
            chunk = stage.open or stage.begin()
            values = chunk.values
            index = len(values)
            values.append(value)
            if key is not None:
                chunk.put_key(index, key)
            chunk.size += size
            staging.staged += size
        if not index:
            staging.loop.soon(stage.wake)
        return FutureRecordMetadata(chunk, index)

    def _send_any(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> FutureRecordMetadata:
        """The slow path of `send`, for every case."""
        self._check_open()
        if self._transactional and not self._in_transaction:
            raise IllegalStateError("send() of a producer with transactional_id needs begin_transaction() first")
        if value is None and key is None:
            raise ValueError("Need at least one: key or value")
        headers = checked_headers(headers)
        check_timestamp(timestamp_ms)
        config = self.config
        until = time.monotonic() + config["max_block_ms"] / 1000
        serialized_key = serialized(config["key_serializer"], topic, headers, key, "key")
        serialized_value = serialized(config["value_serializer"], topic, headers, value, "value")
        stage = self._stages.get(topic)
        if stage is None:
            try:
                stage = self._learn(topic, until)
            except BrokerResponseError as error:
                log.error("%s: the partitions of topic %s could not be found: %s", self, topic, error)
                return _refused(Stage(self._staging, topic), error)
        if partition is not None:
            self._check_partition(stage, partition, until)
        elif self._partitioner is not None:
            partition = self._choose(stage, key, serialized_key, value, serialized_value, until)
        size = RECORD_OVERHEAD + len(serialized_key or b"") + len(serialized_value or b"")
        if headers:
            size += sum(len(name.encode()) + len(content) for name, content in headers)
        if size > self._max_request_size:
            self._refuse_size(size)
        return self._stage(stage, serialized_value, serialized_key, headers, partition, timestamp_ms, size, until)

    def _stage(
        self,
        stage: Stage,
        value: Any,
        key: Any,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
        size: int,
        until: float,
    ) -> FutureRecordMetadata:
        staging = self._staging
        if staging.staged > self._limit:
            staging.wait_for_room(max(0.0, until - time.monotonic()))
        with self._lock:
            chunk = stage.open or stage.begin()
            index = len(chunk.values)
            chunk.values.append(value)
            if key is not None:
                chunk.put_key(index, key)
            chunk.extras(index, partition, timestamp_ms, headers)
            chunk.size += size
            staging.staged += size
        if not index:
            staging.loop.soon(stage.wake)
        return FutureRecordMetadata(chunk, index)

    def _refuse_size(self, size: int) -> NoReturn:
        raise MessageSizeTooLargeError(
            f"The message is {size} bytes when serialized which is larger than the maximum request size you have"
            " configured with the max_request_size configuration"
        )

    def _learn(self, topic: str, until: float) -> Stage:
        ensure_valid_topic_name(topic)
        session = self._session
        stage = session.loop.call(session.learn, topic, max(0.0, until - time.monotonic()))
        with self._lock:
            if not self._staging.closed:
                self._stages[topic] = stage
        return stage

    def _check_partition(self, stage: Stage, partition: int, until: float) -> None:
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise TypeError(f"partition must be an int, not {partition!r}")
        if partition < 0:
            raise ValueError("partition must be >= 0")
        if partition >= stage.partitions:
            stage = self._learn(stage.topic, until)  # the topic may have more partitions by now
            if partition >= stage.partitions:
                raise ValueError(f"Unrecognized partition {partition} for topic {stage.topic}")

    def _choose(
        self, stage: Stage, key: Any, serialized_key: Any, value: Any, serialized_value: Any, until: float
    ) -> int:
        if time.monotonic() - stage.learned_at > _VIEW_SECONDS:
            stage = self._learn(stage.topic, until)
        cluster = TopicView(stage.topic, stage.known)
        chosen: int | None = self._partitioner.partition(
            stage.topic, key, serialized_key, value, serialized_value, cluster
        )
        if chosen is None:
            raise ValueError(f"Partitioner did not assign a partition for topic {stage.topic}!")
        return chosen

    def flush(self, timeout: float | None = None) -> None:
        """Send all buffered records at once; wait until they are settled and their callbacks have run.

        Does nothing if the producer is closed.

        Arguments:
            timeout: time limit in seconds; with 0 it only checks whether all records are settled.

        Raises:
            KafkaTimeoutError: the time limit passed.
            IllegalStateError: called in a callback, or in a forked child.
        """
        if self._closed and self._forks == fork_count():
            return
        self._check_open()
        session = self._session
        timeout = None if timeout is None else max(0.0, timeout)
        if session.callbacks.is_current_thread:
            raise IllegalStateError("flush() in a callback would wait for itself")
        flush_period = self._staging.begin_flush()
        deadline = Deadline(timeout)
        if not (session.loop.call(session.flush, timeout) and session.callbacks.wait(deadline.left)):
            raise KafkaTimeoutError(f"Timeout waiting for future after {timeout} secs")
        self._staging.end_flush(flush_period)

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic; waits for its metadata at most ``max_block_ms``.

        Raises:
            KafkaTimeoutError: no metadata within that time.
        """
        self._check_open()
        ensure_valid_topic_name(topic)
        session = self._session
        found = session.loop.call(session.partitions, topic, self.config["max_block_ms"] / 1000)
        return {partition.partition for partition in found}

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """Return the newest record format of a release."""
        return 2 if api_version >= (0, 11) else 1 if api_version >= (0, 10, 0) else 0

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """Return Kafka's metrics as ``{group: {name: value}}``, also of each topic and node.

        ``producer-metrics`` also has the SDK's own metrics, which ``raw`` returns alone as ``{name: value}``. None with
        ``metrics_enabled=False``.
        """
        if not self.config["metrics_enabled"]:
            return None
        session = self._session
        found = {name.replace("_", "-"): value for name, value in session.loop.call(session.metrics).items()}
        if raw:
            return found
        groups = session.loop.call(session.kafka_metrics)
        groups["producer-metrics"] = {**found, **groups.get("producer-metrics", {})}
        return groups

    # ---------------------------------------------------------------- transactions

    def init_transactions(self) -> None:
        """Get the producer id and epoch, and fence older producers with the same ``transactional_id``.

        The coordinator aborts a transaction that such a producer left open. Waits at most ``max_block_ms``. Call it
        once, before the first transaction; after a timeout call it again.

        Raises:
            IllegalStateError: the producer has no ``transactional_id``.
            KafkaTimeoutError: the coordinator did not answer in time.
            AuthorizationError: the principal may not use the ``transactional_id``.
            ProducerFencedError: a newer producer with the same ``transactional_id`` is active.
        """
        self._check_transactional("Cannot call init_transactions without setting a transactional_id.")
        session = self._session
        session.loop.call(
            session.with_producer,
            lambda producer: session.transactions.initialize(producer, self.config["max_block_ms"] / 1000),
        )

    def begin_transaction(self) -> None:
        """Open a transaction: all records sent until `commit_transaction` or `abort_transaction` belong to it.

        Raises:
            IllegalStateError: no ``transactional_id``, `init_transactions` was not called, or a transaction is open.
            ProducerFencedError: a newer producer with the same ``transactional_id`` is active.
        """
        self._check_transactional("Cannot use transactional methods without enabling transactions")
        session = self._session
        session.loop.call(session.with_producer, session.transactions.begin)
        self._set_in_transaction(True)

    def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_metadata: Any) -> None:
        """Make offsets of a consumer group part of the transaction (KIP-447). Waits at most ``max_block_ms``.

        Arguments:
            offsets: TopicPartition to OffsetAndMetadata, the next offset to read.
            group_metadata: ``KafkaConsumer.group_metadata()``, or the group's name.

        Raises:
            IllegalStateError: no ``transactional_id``, or no transaction is open.
            CommitFailedError: the consumer has left its group; abort the transaction.
            KafkaTimeoutError: the coordinators have not confirmed the offsets; abort the transaction.
            ProducerFencedError: a newer producer with the same ``transactional_id`` is active.
            KafkaError: the transaction must be aborted, or the producer has failed.
        """
        self._check_transactional("Cannot use transactional methods without enabling transactions")
        self._session.loop.call(self._session.transactions.send_offsets, offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Send all records of the transaction, wait for their acknowledgements, and commit.

        Raises:
            IllegalStateError: no ``transactional_id``, or no transaction is open.
            ProducerFencedError: a newer producer with the same ``transactional_id`` is active.
            KafkaError: a record failed, so that the transaction must be aborted, or the producer has failed.
        """
        self._check_transactional("Cannot commit transaction since transactions are not enabled")
        self._session.loop.call(self._session.transactions.commit)
        self._set_in_transaction(False)

    def abort_transaction(self) -> None:
        """Drop the records that were not sent, and abort the transaction.

        Raises:
            IllegalStateError: no ``transactional_id``, or no transaction is open.
            ProducerFencedError: a newer producer with the same ``transactional_id`` is active.
        """
        self._check_transactional("Cannot abort transaction since transactions are not enabled.")
        self._set_in_transaction(False)
        self._session.loop.call(self._session.transactions.abort)

    def _set_in_transaction(self, is_open: bool) -> None:
        self._in_transaction = is_open
        self._plain = self._is_plain and is_open

    def _check_transactional(self, problem: str) -> None:
        self._check_open()
        if not self._transactional:
            raise IllegalStateError(problem)

    def __str__(self) -> str:
        return (
            f"<KafkaProducer client_id={self.config['client_id']} transactional_id={self.config['transactional_id']}>"
        )


_open: Final[weakref.WeakSet[KafkaProducer]] = weakref.WeakSet()


def _refuse_in_child() -> None:
    """Disable the fast path of `KafkaProducer.send` in a forked child; the slow path checks the process."""
    for producer in list(_open):
        producer._stages.clear()


os.register_at_fork(after_in_child=_refuse_in_child)


def _close_at_exit(producer: KafkaProducer) -> Any:
    reference = weakref.ref(producer)

    def close() -> None:
        found = reference()
        if found is not None:
            found.close(timeout=1)

    atexit.register(close)
    return lambda: atexit.unregister(close)


def _refused(stage: Stage, error: KafkaError) -> FutureRecordMetadata:
    chunk = Chunk(stage)
    chunk.handed(error)
    return FutureRecordMetadata(chunk, 0)
