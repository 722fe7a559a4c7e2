"""`AIOKafkaProducer`: aiokafka's producer over the SDK's.

`send` appends to a chunk in the asyncio loop. One hand-over per pass of that loop, or per `_MOST_RECORDS`, gives the
chunk to the SDK's producer, which runs beside the asyncio loop in the same thread. While nothing else is on its way,
`send_and_wait` hands its record over at once. One call settles the futures of all batches acknowledged meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Self, TypeVar, cast

from triokafka.asyncio.bridge import Bridge, running_loop
from triokafka.asyncio.client_view import ClientView
from triokafka.asyncio.errors import IllegalOperation, ProducerClosed
from triokafka.asyncio.keyboard_interrupts import hold_interrupts
from triokafka.asyncio.offsets import checked_offsets
from triokafka.asyncio.options import API_VERSION_IS_DEPRECATED, network_options, warn_of_deprecated
from triokafka.asyncio.partitioner import DefaultPartitioner
from triokafka.asyncio.producer.batch_builder import BatchBuilder
from triokafka.asyncio.producer.options import MISSING, check_options, sdk_options
from triokafka.asyncio.producer.sending import Chunk, SendFuture, SendMethod, SendPath, Topic
from triokafka.asyncio.producer.serialization import serialized
from triokafka.asyncio.producer.session import ProducerSession
from triokafka.asyncio.producer.staging_room import StagingRoom
from triokafka.asyncio.producer.transaction import TransactionContext, TransactionState
from triokafka.asyncio.structs import RecordMetadata
from triokafka.errors import ClosedError, KafkaTimeoutError, MessageSizeTooLargeError

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger(__name__)

_missing: Final = MISSING  # programs over aiokafka import it
_LOOP_IS_DEPRECATED: Final = (
    "The `loop` parameter has been deprecated since 0.7.1 and will be removed in a future release."
)
_DEFAULT_PARTITIONER: Final = DefaultPartitioner()
_MOST_RECORDS: Final = 1024
_MOST_BYTES: Final = 256 << 10
_OVERHEAD: Final = 82
"""Bytes of a batch with one record, without its key, value and headers."""
_STAGED_SHARE: Final = 8
"""Divides the buffer memory: records that wait for the loop thread may take one such part of it."""


class _Topic(Topic):
    """A topic's partitions, as the producer knows them, and the chunk that is being filled."""

    __slots__ = ("available", "learned_at", "numbers")

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []
        self.available: list[int] = []
        self.learned_at = 0.0

    def learn(self, partitions: Sequence[Any], now: float) -> None:
        self.numbers = [one.partition for one in partitions]
        self.available = [one.partition for one in partitions if one.leader >= 0]
        self.count, self.learned_at = len(partitions), now


def _send_method(function: F) -> F:
    return cast(F, SendMethod(function))


class AIOKafkaProducer:
    """Sends records to Kafka topics; aiokafka's arguments, defaults and behaviour.

    Use it as ``async with AIOKafkaProducer(bootstrap_servers=…) as producer``, or call `start` and `stop`. Many tasks
    of one loop may use one producer.
    """

    _PRODUCER_CLIENT_ID_SEQUENCE = 0
    _closed: bool | None = None

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: Any = None,
        acks: Any = MISSING,
        key_serializer: Callable[[Any], Any] | None = None,
        value_serializer: Callable[[Any], Any] | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16384,
        partitioner: Callable[[bytes | None, list[int], list[int]], int] = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: int = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        connections_max_idle_ms: int | None = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        given = dict(locals())  # the arguments
        if loop is None:
            loop = running_loop()
        else:
            warn_of_deprecated(_LOOP_IS_DEPRECATED)
        if api_version is not None:
            warn_of_deprecated(API_VERSION_IS_DEPRECATED)
        check_options(given)
        AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE += 1
        given["client_id"] = client_id or f"aiokafka-producer-{AIOKafkaProducer._PRODUCER_CLIENT_ID_SEQUENCE}"
        self._loop = loop
        # A token provider may be shared with clients in the loop thread, and waits for one loop only.
        self._bridge = Bridge(loop, request_timeout_ms, beside=sasl_oauth_token_provider is None)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._serializes = key_serializer is not None or value_serializer is not None
        self._own_partitioner = None if partitioner is _DEFAULT_PARTITIONER else partitioner
        self._partitioner = partitioner  # kstreams calls it
        self._max_request_size = max_request_size
        self._most_bytes = min(_MOST_BYTES, max_request_size)
        self._max_batch_size = max_batch_size
        self._request_timeout = request_timeout_ms / 1000
        self._max_age = metadata_max_age_ms / 1000
        self._acked = acks != 0
        self._state = TransactionState(loop, transactional_id)
        options = sdk_options(network_options(self._bridge, given), given)
        self._room = StagingRoom(options["buffer_memory"] // _STAGED_SHARE)
        self._session = ProducerSession(self._bridge, options, self._room.release)
        self._topics: dict[str, _Topic] = {}
        self._open: list[_Topic] = []
        self._path = SendPath(self._topics, _slow_path(self), _OVERHEAD, _MOST_RECORDS, self._most_bytes)
        self._closed = False
        self._choose_path()
        self._send = self._path.send

    def _choose_path(self) -> None:
        """Let records of a plain producer take the fast path; those of a transactional one during a transaction."""
        self._path.enabled = not (self._serializes or self._own_partitioner is not None or self._state.guarded)

    def __del__(self, _warnings: Any = warnings) -> None:
        if self._closed is False:
            _warnings.warn(f"Unclosed AIOKafkaProducer {self!r}", ResourceWarning, source=self)
            self._session.abandon()
            if not self._loop.is_closed():
                self._loop.call_exception_handler({"producer": self, "message": "Unclosed AIOKafkaProducer"})

    # ---------------------------------------------------------------- starting and stopping

    async def start(self) -> None:
        """Connect to the cluster; with ``transactional_id``, also get the producer id. A second call does nothing.

        Raises:
            ProducerClosed: the producer was stopped.
            KafkaConnectionError: no broker of ``bootstrap_servers`` accepts the connection, or the login, whose error
                is then the cause. Nothing is left open, and `start` may be called again.
            ConfigurationError: an option is invalid.
            KafkaError: the cluster gives no producer id, such as `TransactionalIdAuthorizationFailed`.
        """
        assert self._loop is running_loop(), "Please create objects with the same loop as running with"
        if self._closed:
            raise ProducerClosed()
        if not self._session.is_open:
            await self._bridge.call(self._session.open)

    @property
    def client(self) -> ClientView:
        """The connections, for checks of their health, and the cluster's metadata."""
        return ClientView(self._bridge, self._session)

    @property
    def _metadata(self) -> Any:
        return self.client.cluster  # as programs over aiokafka have it

    async def flush(self) -> None:
        """Wait until all records sent so far are acknowledged or have failed; before `start`, and after `stop`, not at
        all."""
        if self._session.is_open:
            self._hand_over()
            await self._bridge.call(self._session.flush)

    async def stop(self) -> None:
        """Send all records, wait for their acknowledgements, and close the connections. A second call does nothing.

        An open transaction is aborted.
        """
        if self._closed:
            return
        self._closed = True
        self._topics.clear()
        self._hand_over()
        await asyncio.shield(self._end_session())

    async def _end_session(self) -> None:
        await self._state.wait_for_work()
        await self._bridge.call(self._session.close, True)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop()

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of a topic's partitions. Waits for the metadata, at most ``request_timeout_ms``."""
        return set((await self._learn(topic)).numbers)

    # ---------------------------------------------------------------- sending

    @_send_method
    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Put a record into the buffer, and return the future of its `RecordMetadata` (None with ``acks=0``).

        Waits only while the topic is unknown or the buffer is full. Cancelling the call keeps the record from being
        sent; cancelling the future does not.

        Args:
            topic: its name.
            value, key: bytes or None, or what the serializers take; one of them must not be None.
            partition: its number; by default the partitioner chooses.
            timestamp_ms: milliseconds since the epoch; the present time by default.
            headers: pairs of name and bytes.

        Raises:
            KafkaTimeoutError: the topic's partitions did not become known within ``request_timeout_ms``.
            MessageSizeTooLargeError: the record is larger than ``max_request_size``.
            IllegalOperation: a transactional producer has no open transaction.
            ProducerClosed: the producer was stopped.
        """
        # The descriptor calls the kernel instead; this is for callers that have the function.
        future: asyncio.Future[RecordMetadata] = await self._send(topic, value, key, partition, timestamp_ms, headers)
        return future

    async def _send_slowly(
        self, topic: str, value: Any, key: Any, partition: int | None, timestamp_ms: int | None, headers: Any
    ) -> SendFuture:
        assert not (value is None and key is None), "Need at least one: key or value"
        known = self._topics.get(topic)
        if known is None or self._state.guarded:
            known = await self._learn(topic)
            self._state.check_can_send()
        key = serialized(self._key_serializer, key, "key")
        value = serialized(self._value_serializer, value, "value")
        if timestamp_ms is not None:
            timestamp_ms = int(timestamp_ms)  # such as ``time.time() * 1000``
        size = _OVERHEAD + len(value or b"") + len(key or b"")
        if headers or size > self._max_request_size:
            headers = self._check_record(size, headers)
        if partition is not None:
            partition = await self._check_partition(topic, known, partition)
        elif self._own_partitioner is not None:
            partition = self._own_partitioner(key, list(known.numbers), list(known.available))
        chunk = known.chunk
        if chunk is not None and (len(chunk.values) >= _MOST_RECORDS or chunk.size + size > self._most_bytes):
            self._hand_over()
            await asyncio.sleep(0)  # let the loop settle futures
        if self._room.is_full:
            await self._wait_for_room()
        chunk = known.chunk or self._begin(topic, known)
        return chunk.append(value, key, partition, timestamp_ms, headers, size)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> RecordMetadata:
        """Send a record and wait for its acknowledgement. Raises the errors of both."""
        if timestamp_ms is None and not headers and not self._open and self._session.is_quiet and _sends_plainly(self):
            alone = self._send_at_once(topic, value, key, partition)
            if alone is not None:
                return await alone  # type: ignore[return-value] # None with acks=0, as in aiokafka
        future = await self.send(topic, value, key, partition, timestamp_ms, headers)
        return await future

    def _send_at_once(self, topic: str, value: Any, key: Any, partition: int | None) -> SendFuture | None:
        """Hand over one record without waiting for others. Return None, without any effect, if that is impossible."""
        known = self._topics.get(topic) if self._path.enabled and not self._closed else None
        if known is None or known.chunk is not None:
            return None
        self._open.append(known)
        known.chunk = Chunk(self._loop, topic, self._acked)
        future = self._path.append(topic, value, key, partition)
        if future is None:
            known.chunk = None
            self._open.clear()
            return None
        self._hand_over()
        return future

    def create_batch(self) -> BatchBuilder:
        """Return an empty `BatchBuilder` of at most ``max_batch_size`` bytes, for `send_batch`."""
        return BatchBuilder(
            self._max_batch_size,
            key_serializer=self._key_serializer,
            value_serializer=self._value_serializer,
            now_ms=lambda: int(time.time() * 1000),
        )

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        """Send the records of a batch to one partition; return the future of the first record's `RecordMetadata`."""
        known = await self._learn(topic)
        if partition is None:  # aiokafka accepts it, against its signature, and chooses
            partition = random.choice(known.available or known.numbers)
        partition = await self._check_partition(topic, known, partition)
        self._state.check_can_send()
        if self._room.is_full:
            await self._wait_for_room()
        batch.close()
        if not batch.values:
            empty: asyncio.Future[RecordMetadata] = self._loop.create_future()
            empty.set_result(None)  # type: ignore[arg-type] # as in aiokafka: nothing was written
            return empty
        self._hand_over()
        chunk = self._begin(topic, known)
        size, future = batch.size(), None
        for value, key, at, headers in zip(batch.values, batch.keys, batch.timestamps, batch.headers, strict=True):
            following = chunk.append(value, key, partition, at, headers, size)
            future, size = future or following, 0
        chunk.forget()
        self._hand_over()
        return future  # type: ignore[return-value] # it has the methods of a future

    # ---------------------------------------------------------------- the parts of a send

    async def _learn(self, topic: str) -> _Topic:
        """Return a topic's partitions; look them up if they are unknown or old."""
        if self._closed:
            raise ProducerClosed()
        known = self._topics.get(topic)
        if known is not None and self._loop.time() - known.learned_at < self._max_age:
            return known
        try:
            partitions = await self._bridge.call(self._session.partitions, topic)
        except KafkaTimeoutError as error:
            raise KafkaTimeoutError(f"Failed to update metadata of topic {topic}: {error}") from error
        except ClosedError as error:
            if self._closed:
                raise ProducerClosed() from error
            raise
        known = self._topics.setdefault(topic, _Topic())
        known.learn(partitions, self._loop.time())
        return known

    async def _check_partition(self, topic: str, known: _Topic, partition: int) -> int:
        assert partition >= 0
        if partition >= known.count:
            known.learn(await self._bridge.call(self._session.partitions, topic), self._loop.time())
        assert partition < known.count, "Unrecognized partition"
        return partition

    def _check_record(self, size: int, headers: Sequence[tuple[str, bytes]] | None) -> list[tuple[str, bytes]]:
        if isinstance(headers, Mapping):
            raise TypeError("headers must be a list of pairs, not a mapping: use list(headers.items())")
        given = list(headers or ())
        for name, content in given:
            if not isinstance(name, str):
                raise TypeError(f"a header's name must be str, not {type(name)}")
            if content is not None and not isinstance(content, (bytes, bytearray, memoryview)):
                raise TypeError(f"a header's value must be bytes, not {type(content)}")
            size += len(name) + len(content or b"")
        if size > self._max_request_size:
            raise MessageSizeTooLargeError(
                f"The message is {size} bytes when serialized which is larger than the maximum request size you have"
                " configured with the max_request_size configuration"
            )
        return given

    async def _wait_for_room(self) -> None:
        self._hand_over()
        await self._room.wait(self._loop, self._request_timeout)

    def _begin(self, topic: str, known: _Topic) -> Chunk:
        """Open a chunk, to be handed over in the next pass of the loop."""
        if self._closed:
            raise ProducerClosed()
        chunk = Chunk(self._loop, topic, self._acked)
        if not self._open:
            self._loop.call_soon(self._hand_over)
        self._open.append(known)
        known.chunk = chunk  # last: an interruption leaves no chunk that is not handed over
        return chunk

    def _hand_over(self) -> None:
        """Give the open chunks to the loop thread, in the order in which they were begun."""
        if not self._open:
            return
        held = hold_interrupts()
        try:
            topics, self._open = self._open, []
            for known in topics:
                chunk, known.chunk = known.chunk, None
                if chunk is not None and chunk.values:
                    self._room.staged += chunk.size
                    self._bridge.hand_over(self._session.receive, chunk)
        finally:
            if held is not None:
                held.let_go()

    # ---------------------------------------------------------------- transactions

    async def begin_transaction(self) -> None:
        """Begin a transaction; get the producer id first.

        Raises:
            IllegalOperation: the producer has no ``transactional_id``.
            IllegalStateError: a transaction is open.
            ProducerFenced: a newer producer with this transactional id exists.
        """
        await self._state.wait_for_abandoned()
        self._state.begin()
        try:
            await self._state.follow(self._bridge.call(self._session.begin), self._note_begun)
        except asyncio.CancelledError:
            self._state.begin_was_cancelled(self._abort, self._note_ended)
            raise

    def _note_begun(self, error: BaseException | None) -> None:
        if error is None:
            self._state.begun()
        else:
            self._state.not_begun(error)
        self._choose_path()

    async def commit_transaction(self) -> None:
        """Send all records and commit the transaction. Raises as `begin_transaction`.

        A call that is cancelled goes on, and the next call of these methods waits until it is over.
        """
        await self._state.wait_for_abandoned()
        self._state.end("commit")
        self._choose_path()
        self._hand_over()
        await self._state.follow(self._bridge.call(self._session.commit), self._note_ended)

    async def abort_transaction(self) -> None:
        """Abort the transaction. As `commit_transaction`."""
        await self._state.wait_for_abandoned()
        self._state.end("abort")
        await self._state.follow(self._abort(), self._note_ended)

    def _abort(self) -> Coroutine[Any, Any, None]:
        self._choose_path()
        self._hand_over()
        return self._bridge.call(self._session.abort)

    def _note_ended(self, error: BaseException | None) -> None:
        if error is None:
            self._state.ended()
        else:
            self._state.failed(error)
        self._choose_path()

    def transaction(self) -> TransactionContext:
        """Return a block that begins a transaction, and commits it, or aborts it if the body raises."""
        return TransactionContext(self, self._state)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        """Make offsets of a group part of the transaction.

        Args:
            offsets: partition to the next offset to read, or a pair of it and text.
            group_id: name of the group.
        """
        self._state.check_transactional()
        if not self._state.is_open:
            raise IllegalOperation("Not in the middle of a transaction")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        wanted = checked_offsets(offsets)
        try:
            await asyncio.shield(self._bridge.call(self._session.send_offsets, wanted, group_id))
        except BaseException as error:
            self._state.failed(error, still_open=True)
            raise


def _slow_path(producer: AIOKafkaProducer) -> Callable[..., Coroutine[Any, Any, SendFuture]]:
    """Return the slow path of the producer's sends, without a reference that would keep it alive."""
    reference = weakref.ref(producer)

    async def send_slowly(*arguments: Any) -> SendFuture:
        producer = reference()
        if producer is None:
            raise ProducerClosed()
        return await producer._send_slowly(*arguments)

    return send_slowly


_SEND: Final = vars(AIOKafkaProducer)["send"]


def _sends_plainly(producer: AIOKafkaProducer) -> bool:
    """Whether `send` is this module's: instrumentations and subclasses replace it, and count on `send_and_wait`."""
    if "send" in vars(producer):
        return False
    for kind in type(producer).__mro__:
        if "send" in vars(kind):
            return vars(kind)["send"] is _SEND
    return False
