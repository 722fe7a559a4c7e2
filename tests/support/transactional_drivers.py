"""Transactional producers of four clients behind one interface, and the consumer that reads the results.

Errors of every client become `Refused`; ``fatal`` means that this producer cannot continue. Otherwise its transaction
must be aborted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import confluent_kafka as ck
import kafka
import kafka.errors
import trio
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka import errors as aiokafka_errors
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka.structs import OffsetAndMetadata as TheirOffset
from kafka.structs import TopicPartition as TheirPartition

import triokafka
from tests.support.waiting import until
from triokafka.blocking import KafkaProducer
from triokafka.errors import IllegalStateError, KafkaError, ProducerFencedError
from triokafka.structs import TopicPartition

T = TypeVar("T")

TIMEOUT: Final = 30.0
MOVING: Final = (
    ck.KafkaError.OFFSET_NOT_AVAILABLE,
    ck.KafkaError.FENCED_LEADER_EPOCH,
    ck.KafkaError.UNKNOWN_LEADER_EPOCH,
    ck.KafkaError.NOT_LEADER_FOR_PARTITION,
    ck.KafkaError.LEADER_NOT_AVAILABLE,
)
"""Errors of a partition between two leaders."""
_BEING_ENDED: Final = ("PrepareCommit", "PrepareAbort")


class Refused(Exception):
    """A client's error, whatever its class."""

    def __init__(self, error: BaseException, *, fatal: bool) -> None:
        super().__init__(repr(error))
        self.fatal = fatal


class TransactionalDriver:
    """One transactional producer of one client."""

    name = ""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.bootstrap = bootstrap
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms

    def init(self) -> None:
        """Initialize the producer id."""
        raise NotImplementedError

    def begin(self) -> None:
        """Open a transaction."""
        raise NotImplementedError

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Send without waiting."""
        raise NotImplementedError

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        raise NotImplementedError

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Add offsets to the transaction."""
        raise NotImplementedError

    def commit(self) -> None:
        """Commit."""
        raise NotImplementedError

    def abort(self) -> None:
        """Abort."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the producer gracefully."""


class BlockingDriver(TransactionalDriver):
    """`triokafka.blocking.KafkaProducer`."""

    name = "triokafka.blocking"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        super().__init__(bootstrap, transactional_id, timeout_ms)
        self._producer: Any = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=TIMEOUT * 1000,
        )
        self._futures: list[Any] = []

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            raise Refused(error, fatal=isinstance(error, ProducerFencedError | IllegalStateError)) from error

    def init(self) -> None:
        with self._refusals():
            self._producer.init_transactions()

    def begin(self) -> None:
        with self._refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with self._refusals():
            self._futures.append(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self._producer.flush(TIMEOUT)
        futures, self._futures = self._futures, []
        with self._refusals():
            for future in futures:
                future.get(timeout=TIMEOUT)

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        with self._refusals():
            self._producer.send_offsets_to_transaction(
                {TopicPartition(*spot): triokafka.OffsetAndMetadata(offset) for spot, offset in offsets.items()}, group
            )

    def commit(self) -> None:
        with self._refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with self._refusals():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(TIMEOUT)


class KafkaPythonDriver(BlockingDriver):
    """``kafka.KafkaProducer``."""

    name = "kafka-python"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        TransactionalDriver.__init__(self, bootstrap, transactional_id, timeout_ms)
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._futures = []

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except kafka.errors.KafkaError as error:
            raise Refused(error, fatal=isinstance(error, kafka.errors.ProducerFencedError)) from error

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        with self._refusals():
            self._producer.send_offsets_to_transaction(
                {TheirPartition(*spot): TheirOffset(offset, "", -1) for spot, offset in offsets.items()}, group
            )


class ConfluentDriver(TransactionalDriver):
    """``confluent_kafka.Producer``.

    ``commit`` and ``abort`` wait until the markers are written. Until then a broker refuses the request by which
    librdkafka adds partitions to the next transaction. If the application aborts before the next attempt, librdkafka
    ends a transaction that the coordinator does not know. Apache Kafka and triokafka answer INVALID_TXN_STATE, which is
    fatal for librdkafka.
    """

    name = "confluent-kafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        super().__init__(bootstrap, transactional_id, timeout_ms)
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 30_000),
                "log_level": 0,
            }
        )

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except ck.KafkaException as exception:
            raise Refused(exception, fatal=exception.args[0].fatal()) from exception

    def _again(self, call: Callable[[float], object]) -> None:
        while True:
            with self._refusals():
                try:
                    call(TIMEOUT)
                    return
                except ck.KafkaException as exception:
                    if not exception.args[0].retriable():
                        raise

    def init(self) -> None:
        self._again(self._producer.init_transactions)

    def begin(self) -> None:
        with self._refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with self._refusals():
            while True:
                try:
                    self._producer.produce(topic, value, partition=partition)
                    return
                except BufferError:
                    self._producer.poll(0.1)

    def flush(self) -> None:
        assert self._producer.flush(TIMEOUT) == 0

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        consumer = ck.Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        spots = [ck.TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            metadata = consumer.consumer_group_metadata()
            self._again(lambda timeout: self._producer.send_offsets_to_transaction(spots, metadata, timeout))
        finally:
            consumer.close()

    def commit(self) -> None:
        self._again(self._producer.commit_transaction)
        wait_until_complete(self.bootstrap, self.transactional_id)

    def abort(self) -> None:
        self._again(self._producer.abort_transaction)
        wait_until_complete(self.bootstrap, self.transactional_id)


class _LoopThread:
    """An asyncio loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(TIMEOUT * 2)


class AiokafkaDriver(TransactionalDriver):
    """``aiokafka.AIOKafkaProducer``."""

    name = "aiokafka"

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        super().__init__(bootstrap, transactional_id, timeout_ms)
        self._thread = _LoopThread()
        self._producer: Any = None
        self._futures: list[Any] = []

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._thread.run(work)
        except aiokafka_errors.KafkaError as error:
            raise Refused(error, fatal=isinstance(error, aiokafka_errors.ProducerFenced)) from error

    def init(self) -> None:
        async def make() -> Any:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
            )
            await producer.start()
            return producer

        self._producer = self._run(make())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._futures.append(self._run(self._producer.send(topic, value, partition=partition)))

    def flush(self) -> None:
        futures, self._futures = self._futures, []

        async def settle() -> None:
            await self._producer.flush()
            for future in futures:
                await future

        self._run(settle())

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        wanted = {AioTopicPartition(*spot): offset for spot, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(wanted, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        if self._producer is not None:
            try:
                self._thread.run(self._producer.stop())
            except (aiokafka_errors.KafkaError, TimeoutError):
                pass
        self._thread.loop.call_soon_threadsafe(self._thread.loop.stop)


DRIVERS: Final[tuple[type[TransactionalDriver], ...]] = (
    BlockingDriver,
    ConfluentDriver,
    AiokafkaDriver,
    KafkaPythonDriver,
)


# ---------------------------------------------------------------- reading the results


def wait_until_complete(bootstrap: str, transactional_id: str) -> None:
    """Wait until all partitions of the id's last transaction have their markers."""

    async def wait() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            with trio.fail_after(TIMEOUT):
                while (await admin.describe_transactions([transactional_id]))[transactional_id].state in _BEING_ENDED:
                    await trio.sleep(0.002)  # no broker reports when a transaction is complete

    trio.run(wait)


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its futures fail when it is garbage
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT)


def wait_until_stable(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Return once no transaction is open: the markers may be written after the end was acknowledged."""
    latest = {ck.TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}

    def ends(isolation_level: ck.IsolationLevel) -> list[int] | None:
        """Return the partitions' end offsets; None while a partition has no leader, its leader has no high watermark
        yet, or the client knows a former leader.
        """
        # A new client each time: librdkafka's does not look up a leader again whose epoch is refused as too old.
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        found = admin.list_offsets(latest, isolation_level=isolation_level, request_timeout=TIMEOUT)
        try:
            return [found[partition].result().offset for partition in latest]
        except ck.KafkaException as failure:
            if failure.args[0].code() not in MOVING:
                raise
            return None

    def is_stable() -> bool:
        committed = ends(ck.IsolationLevel.READ_COMMITTED)
        return committed is not None and committed == ends(ck.IsolationLevel.READ_UNCOMMITTED)

    until(is_stable, f"a transaction of {topic} stays open")


def read(
    bootstrap: str, topic: str, partitions: int = 1, isolation_level: str = "read_committed", *, stable: bool = True
) -> list[bytes]:
    """Return the records that librdkafka's consumer receives, by partition, up to the end offset that the broker
    reports.

    A ``read_committed`` reader reports the first open transaction as the end: without ``stable``, the read stops there.
    """
    if stable and isolation_level == "read_committed":
        wait_until_stable(bootstrap, topic, partitions)
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    at_end: set[int] = set()
    try:
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(partitions)])
        while len(at_end) < partitions:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"no message arrived within {TIMEOUT} s"
            error = message.error()
            if error is None:
                found[message.partition()].append(message.value())
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise ck.KafkaException(error)
    finally:
        consumer.close()
    return [value for values in found for value in values]


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int | None:
    """Return the group's committed offset, if any. Waits until no open transaction can change it."""
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([ck.TopicPartition(topic, partition)], TIMEOUT)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()
