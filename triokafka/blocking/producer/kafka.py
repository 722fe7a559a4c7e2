"""`KafkaProducer`: kafka-python's producer over the SDK's.

`KafkaProducer.send` puts a record into a chunk (`staging`) and makes a future; all else is done for whole chunks, in
the loop.
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
from triokafka.blocking.options import API_VERSION, take
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
    """Sends records to a Kafka cluster; kafka-python's interface.

    `send` puts a record into a buffer and returns a future; batches go out in the background. A producer may be used by
    any number of threads. Leaving a ``with`` block, or `close`, delivers what was sent.

    Keyword arguments are kafka-python's configuration with its defaults (``DEFAULT_CONFIG``), and ``buffer_memory``, in
    bytes: when so much is not acknowledged yet, or so much is and its callbacks were not called yet, `send` waits, at
    most ``max_block_ms``. The constructor waits until a broker of ``bootstrap_servers`` answers, at most
    ``bootstrap_timeout_ms``.

    In a process that is forked while a producer is open, the child's copy raises `IllegalStateError`; what was sent is
    the parent's business. The child makes a producer of its own. At interpreter exit an open producer is closed with
    one second's patience.

    Raises:
        ValueError: a configuration name or codec that does not exist.
        KafkaConfigurationError: values that cannot be used, or security that is not there.
        KafkaTimeoutError: no broker answered.
        UnsupportedVersionError: ``transactional_id`` is given: there are no transactions yet.
    """

    DEFAULT_CONFIG: Final[dict[str, Any]] = PRODUCER_DEFAULTS
    DEPRECATED_CONFIGS: Final = ()

    def __init__(self, **configs: Any) -> None:
        self._closed = True
        unknown = {name: value for name, value in configs.items() if name not in self.DEFAULT_CONFIG}
        if unknown:
            raise ValueError(f"Unrecognized configs: {unknown}")
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
            loop, options, staged_bytes=staged_bytes(config), untold_bytes=config["buffer_memory"], name=name
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
        self._plain = self._partitioner is None and not (config["key_serializer"] or config["value_serializer"])
        self._closed = False
        _open.add(self)
        self._unregister = _close_at_exit(self)

    # ---------------------------------------------------------------- life

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
            # Only told, never waited for: the garbage collector may get here in the loop's own thread.
            self._closed = True
            self._unregister()
            self._session.abandon()

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Deliver what was sent, run its callbacks, and end; does nothing when it has ended already.

        Called in a callback it cannot wait: what is left is delivered in the background, for one second.

        Arguments:
            timeout: longest wait in seconds, for brokers and callbacks together. What is not acknowledged by then
                fails with `KafkaTimeoutError`.
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
            return  # a thread that is not here may have held the lock
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
        """Whether a broker was found."""
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

        Waits, at most ``max_block_ms``, for the partitions of a topic that is new to the producer, and while the buffer
        is full. In a callback it does not wait for the buffer.

        Arguments:
            topic: its name.
            value: bytes, or what ``value_serializer`` takes; None deletes, in a compacted topic.
            key: the same, with ``key_serializer``. Records of one key go to one partition.
            headers: a list of (name, bytes).
            partition: where to, instead of by key.
            timestamp_ms: milliseconds since the epoch; now, without it.

        Raises:
            KafkaTimeoutError: the topic or room in the buffer was not there in time.
            MessageSizeTooLargeError: more than ``max_request_size`` bytes.
            TypeError: something is not bytes, or headers are no list of (str, bytes).
            ValueError: neither key nor value, no such partition, or no name of a topic.
            IllegalStateError: the producer is closed.
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
        """As `send`, for every case."""
        self._check_open()
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
            stage = self._learn(stage.topic, until)  # there may be more by now
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
        """Send all that is in the buffer at once, and wait until it is settled and its callbacks have run.

        Does nothing when the producer is closed: then all is settled.

        Arguments:
            timeout: longest wait in seconds; with 0 it only finds out whether all is settled.

        Raises:
            KafkaTimeoutError: it took longer.
            IllegalStateError: called in a callback, or in a process that was forked from the producer's.
        """
        if self._closed and self._forks == fork_count():
            return
        self._check_open()
        session = self._session
        timeout = None if timeout is None else max(0.0, timeout)
        if session.callbacks.is_current_thread:
            raise IllegalStateError("flush() in a callback would wait for itself")
        era = self._staging.begin_flush()
        deadline = Deadline(timeout)
        if not (session.loop.call(session.flush, timeout) and session.callbacks.wait(deadline.left)):
            raise KafkaTimeoutError(f"Timeout waiting for future after {timeout} secs")
        self._staging.end_flush(era)

    def partitions_for(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions; waits for them at most ``max_block_ms``.

        Raises:
            KafkaTimeoutError: they did not become known.
        """
        self._check_open()
        ensure_valid_topic_name(topic)
        session = self._session
        found = session.loop.call(session.partitions, topic, self.config["max_block_ms"] / 1000)
        return {partition.partition for partition in found}

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """The record format that a release takes."""
        return 2 if api_version >= (0, 11) else 1 if api_version >= (0, 10, 0) else 0

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """What the SDK counts, as ``{"producer-metrics": {name: value}}``; by name alone when ``raw``.

        None with ``metrics_enabled=False``.
        """
        if not self.config["metrics_enabled"]:
            return None
        session = self._session
        found = {name.replace("_", "-"): value for name, value in session.loop.call(session.metrics).items()}
        return found if raw else {"producer-metrics": found}

    # ---------------------------------------------------------------- transactions

    def init_transactions(self) -> None:
        """Transactions are not there yet.

        Raises:
            IllegalStateError: always: a producer with ``transactional_id`` cannot be made.
        """
        raise IllegalStateError("Cannot call init_transactions without setting a transactional_id.")

    def begin_transaction(self) -> None:
        """As `init_transactions`."""
        raise IllegalStateError("Cannot use transactional methods without enabling transactions")

    def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_metadata: Any) -> None:
        """As `init_transactions`."""
        raise IllegalStateError("Cannot use transactional methods without enabling transactions")

    def commit_transaction(self) -> None:
        """As `init_transactions`."""
        raise IllegalStateError("Cannot commit transaction since transactions are not enabled")

    def abort_transaction(self) -> None:
        """As `init_transactions`."""
        raise IllegalStateError("Cannot abort transaction since transactions are not enabled.")

    def __str__(self) -> str:
        return (
            f"<KafkaProducer client_id={self.config['client_id']} transactional_id={self.config['transactional_id']}>"
        )


_open: Final[weakref.WeakSet[KafkaProducer]] = weakref.WeakSet()


def _refuse_in_child() -> None:
    """Leave the short way of `KafkaProducer.send` to the parent process; the other way asks whose the producer is."""
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
