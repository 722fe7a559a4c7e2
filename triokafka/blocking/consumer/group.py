"""`KafkaConsumer`: kafka-python's consumer over the SDK's.

The session fetches records from the loop in large batches into a buffer (`buffered`). Calls return records from there,
and call the loop only if the last call is more than 50 ms ago.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from triokafka import ConsumerRecord
from triokafka.blocking.bootstrap import bootstrap
from triokafka.blocking.consumer.calls import ConsumerCalls
from triokafka.blocking.consumer.configuration import CONSUMER_DEFAULTS, sdk_options
from triokafka.blocking.consumer.deserialization import converter
from triokafka.blocking.consumer.offsets import ConsumerOffsets
from triokafka.blocking.consumer.positions import ConsumerPositions
from triokafka.blocking.consumer.session import ConsumerSession
from triokafka.blocking.consumer.subscription_state import AsyncConsumerRebalanceListener, ConsumerRebalanceListener
from triokafka.blocking.options import API_VERSION, take
from triokafka.blocking.serializer import Deserializer, DeserializeWrapper
from triokafka.blocking.structs import ConsumerGroupMetadata, MemberState
from triokafka.blocking.topic_names import ensure_valid_topic_name
from triokafka.delegation import delegated
from triokafka.errors import IllegalStateError
from triokafka.loop_thread import loop_thread
from triokafka.metrics import grouped
from triokafka.record_buffer import RecordBuffer
from triokafka.structs import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

_AT_ONCE: Final = 10_000
_FRESH_SECONDS: Final = 0.05
_ONE_WAY: Final = (
    "You must choose only one way to configure your consumer: (1) subscribe to specific topics by name, (2) subscribe"
    " to topics matching a regex pattern, (3) assign itself specific topic-partitions."
)


class KafkaConsumer:
    """Reads records from a Kafka cluster; kafka-python's interface.

    Positional arguments are topics to subscribe to. Keyword arguments are kafka-python's configuration with its
    defaults (``DEFAULT_CONFIG``). The constructor waits until a broker of ``bootstrap_servers`` answers, at most
    ``bootstrap_timeout_ms``.

    Iterating returns one record after the other, and ends after ``consumer_timeout_ms`` without one; without a
    subscription it waits as long, as in kafka-python, and logs a warning. Fetching and heartbeats run in the
    background; `poll` and the iteration join the group and commit automatically. Use a consumer in one thread.
    `KeyboardInterrupt` ends a wait, and no record is lost.

    In a forked child the parent's consumer raises `IllegalStateError`: construct a new one there. At interpreter exit
    an open consumer leaves its group within one second, and commits nothing.

    Raises:
        KafkaConfigurationError: a name or value cannot be used, or the security protocol is not supported.
        KafkaTimeoutError: no broker answered.
    """

    DEFAULT_CONFIG: Final[dict[str, Any]] = CONSUMER_DEFAULTS
    DEFAULT_SESSION_TIMEOUT_MS_PRE_KIP_735: Final = 30_000

    def __init__(self, *topics: str, **configs: Any) -> None:
        self.config = config = take(self.DEFAULT_CONFIG, configs)
        for name in ("key_deserializer", "value_deserializer"):
            if config[name] is not None and not isinstance(config[name], Deserializer):
                config[name] = DeserializeWrapper(config[name])
        options = sdk_options(config)
        loop = loop_thread()
        if config["api_version"] is None:
            bootstrap(loop, config, config["bootstrap_timeout_ms"])
            config["api_version"] = API_VERSION
        self._buffered = RecordBuffer(converter(config["key_deserializer"], config["value_deserializer"]))
        commits = config["enable_auto_commit"] and config["group_id"] is not None
        self._session = ConsumerSession(
            loop,
            options,
            self._buffered,
            commit_seconds=config["auto_commit_interval_ms"] / 1000 if commits else None,
            on_commit=config["default_offset_commit_callback"],
        )
        calls = ConsumerCalls(self._session)
        self._positions = ConsumerPositions(self._session, calls, self._buffered)
        self._offsets = ConsumerOffsets(self._session, calls, config)
        self._closing = False
        self._asked_at = 0.0
        self._mode: str | None = None
        loop.call(self._session.open)
        self._calls = calls
        if topics:
            self.subscribe(topics)

    # ---------------------------------------------------------------- lifetime

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        # The record being processed when the block raised is not committed.
        self.close(autocommit=exc_type is None)

    def __del__(self) -> None:
        calls: ConsumerCalls | None = getattr(self, "_calls", None)  # None if the constructor failed
        if calls is not None and not calls.closed and not calls.forked:
            calls.closed = True
            self._session.abandon()

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit the offsets after the returned records, leave the group, and end. Does nothing if closed already.

        Arguments:
            autocommit: whether to commit, if ``enable_auto_commit`` is on.
            timeout_ms: time limit for all of this; ``request_timeout_ms`` by default. Unfinished work continues in the
                background.
        """
        if self._calls.closed or self._closing:
            return
        self._closing = True
        self._buffered.put_back()  # an iteration ends here
        if not self._calls.forked:
            seconds = (self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms) / 1000
            try:
                # The rebalance listener, which runs meanwhile, may still use the consumer.
                self._session.conversation.ask(self._session.close, autocommit, seconds)
            finally:
                self._calls.closed = True
            self._calls.run_commit_callbacks()
        self._calls.closed = True
        for name in ("key_deserializer", "value_deserializer"):
            if self.config[name] is not None:
                self.config[name].close()

    def bootstrap_connected(self) -> bool:
        """Return whether a broker was found and the consumer is open."""
        return not self._calls.closed

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until a broker answers, at most ``timeout_ms``. ``refresh`` has no effect.

        Raises:
            KafkaTimeoutError: no broker answered.
        """
        bootstrap(self._session.loop, self.config, timeout_ms)

    # ---------------------------------------------------------------- subscription

    def _choose(self, mode: str) -> None:
        if self._mode not in (None, mode):
            raise IllegalStateError(_ONE_WAY)
        self._mode = mode

    def subscribe(
        self,
        topics: Sequence[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | AsyncConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to those whose name begins with a match of a pattern; replaces the subscription.

        Raises:
            IllegalStateError: both are given, or another way of subscribing is in use.
            ValueError: neither is given, or a name is invalid.
            TypeError: topics are not a list of names, or the listener has another class.
        """
        if not topics and not pattern:
            raise ValueError("Must provide topics or pattern")
        if topics and pattern:
            raise IllegalStateError(_ONE_WAY)
        if listener is not None and not isinstance(
            listener, (ConsumerRebalanceListener, AsyncConsumerRebalanceListener)
        ):
            raise TypeError("listener must be a ConsumerRebalanceListener or AsyncConsumerRebalanceListener")
        session = self._session
        if pattern:
            self._choose("pattern")
            compiled = re.compile(pattern)
            whole = re.compile(f"(?:{compiled.pattern}).*", compiled.flags)
            self._calls.do(lambda: session.consumer.subscribe(pattern=whole, listener=session))
        else:
            if isinstance(topics, str) or not isinstance(topics, Sequence):
                raise TypeError("Topics must be a list (or non-str sequence)")
            for topic in topics:
                ensure_valid_topic_name(topic)
            self._choose("topics")
            self._calls.do(lambda: session.consumer.subscribe(topics, listener=session))
        session.listener = listener
        self._buffered.keep(self._calls.do(session.consumer.assignment))

    def subscription(self) -> set[str] | None:
        """Return the subscribed topics, None without a subscription."""
        if self._mode not in ("topics", "pattern"):
            return None
        return set(self._calls.do(self._session.consumer.subscription))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without group management. An empty list ends all reading.

        Raises:
            IllegalStateError: the consumer has a subscription.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted:
            self.unsubscribe()
            return
        self._choose("assigned")
        self._calls.do(self._session.consumer.assign, wanted)
        self._buffered.keep(set(wanted))

    assignment = delegated("_positions", ConsumerPositions.assignment)

    def unsubscribe(self) -> None:
        """Commit if auto-commit is on, leave the group, and stop reading."""
        self._calls.ask(self._session.unsubscribe)
        self._mode = None
        self._buffered.keep(set())

    # ---------------------------------------------------------------- records

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records by partition; an empty dict if none arrive within ``timeout_ms``.

        Without subscription or assignment it waits, logs a warning once, and returns an empty dict, as in kafka-python.

        Arguments:
            timeout_ms: time limit in milliseconds.
            max_records: maximum number of records, ``max_poll_records`` by default.
            update_offsets: has no effect: a returned record is not returned again.

        Raises:
            OffsetOutOfRangeError, NoOffsetForPartitionError: without ``auto_offset_reset``.
            KafkaError: from the group, authorization, or a rebalance listener.
            IllegalStateError: the consumer is closed.
        """
        if timeout_ms < 0:
            raise ValueError("Timeout must not be negative")
        limit = self.config["max_poll_records"] if max_records is None else max_records
        if not isinstance(limit, int):
            raise TypeError("max_records must be an integer")
        if limit <= 0:
            raise ValueError("max_records must be positive")
        if self._calls.closed:
            raise IllegalStateError("KafkaConsumer is closed")
        self._buffered.put_back()
        self._calls.run_commit_callbacks()
        self._refill(timeout_ms / 1000, limit)
        return self._buffered.take(limit)

    def _refill(self, seconds: float, limit: int) -> None:
        """Buffer records, waiting at most ``seconds``, and keep the group membership alive."""
        buffered, session = self._buffered, self._session
        if buffered:
            if time.monotonic() - self._asked_at < _FRESH_SECONDS:
                return
            self._calls.ask(session.touch)
            self._asked_at = time.monotonic()
            if buffered:
                return
        self._calls.ask(session.fetch, seconds, max(limit, _AT_ONCE), self._mode is not None)
        self._asked_at = time.monotonic()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        for record in self._buffered.cursor.iterator:
            return record
        return self._next_of_more()

    def _next_of_more(self) -> ConsumerRecord:
        if self._calls.closed:
            raise StopIteration("KafkaConsumer closed")
        limit = self.config["max_poll_records"]
        timeout = self.config["consumer_timeout_ms"]
        until = float("inf") if timeout < 0 else time.monotonic() + timeout / 1000
        while True:
            self._buffered.put_back()
            self._calls.run_commit_callbacks()
            left = until - time.monotonic()
            if left <= 0 and not self._buffered:
                raise StopIteration
            self._refill(max(0.0, left), limit)
            if self._buffered.next_run(limit):
                return next(self._buffered.cursor.iterator)

    # ---------------------------------------------------------------- positions and offsets

    position = delegated("_positions", ConsumerPositions.position)
    highwater = delegated("_positions", ConsumerPositions.highwater)
    pause = delegated("_positions", ConsumerPositions.pause)
    paused = delegated("_positions", ConsumerPositions.paused)
    resume = delegated("_positions", ConsumerPositions.resume)
    seek = delegated("_positions", ConsumerPositions.seek)
    seek_to_beginning = delegated("_positions", ConsumerPositions.seek_to_beginning)
    seek_to_end = delegated("_positions", ConsumerPositions.seek_to_end)

    commit = delegated("_offsets", ConsumerOffsets.commit)
    commit_async = delegated("_offsets", ConsumerOffsets.commit_async)
    committed = delegated("_offsets", ConsumerOffsets.committed)
    offsets_for_times = delegated("_offsets", ConsumerOffsets.offsets_for_times)
    beginning_offsets = delegated("_offsets", ConsumerOffsets.beginning_offsets)
    end_offsets = delegated("_offsets", ConsumerOffsets.end_offsets)

    # ---------------------------------------------------------------- the cluster

    def topics(self) -> set[str]:
        """Return all topics that this consumer is authorized to see.

        Raises:
            KafkaTimeoutError: no response within ``request_timeout_ms``.
        """
        limit = self.config["request_timeout_ms"]
        return set(self._calls.ask(lambda: self._session.consumer.topics(timeout_ms=limit)))

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic; an empty set for an unknown topic. Raises as `topics`."""
        limit = self.config["request_timeout_ms"]
        found = self._calls.ask(lambda: self._session.consumer.partitions_for_topic(topic, timeout_ms=limit))
        return set(found or ())

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's present membership in its group (KIP-447)."""
        if self.config["group_id"] is None:
            return ConsumerGroupMetadata(group_id=None)
        health: Any = self._calls.do(self._session.consumer.health)
        state = MemberState.STABLE if health.state == "in the group" else MemberState.REBALANCING
        if health.generation < 0 and not health.member_id:
            state = MemberState.UNJOINED
        return ConsumerGroupMetadata(
            self.config["group_id"], health.generation, health.member_id, self.config["group_instance_id"], state
        )

    def metrics(self, raw: bool = False) -> dict[str, Any] | None:
        """Return Kafka's metrics as ``{group: {name: value}}``, also of each topic and node.

        ``consumer-metrics`` also has the SDK's own metrics, which ``raw`` returns alone as ``{name: value}``. None with
        ``metrics_enabled=False``.
        """
        if not self.config["metrics_enabled"]:
            return None
        counted: dict[str, float] = self._calls.do(self._session.consumer.metrics)
        found = {name.replace("_", "-"): value for name, value in counted.items()}
        if raw:
            return found
        groups = grouped(self._calls.do(self._session.consumer.kafka_metrics))
        groups["consumer-metrics"] = {**found, **groups["consumer-metrics"]}
        return groups
