"""The loop's side of a blocking producer: the SDK's `Producer`, the tasks that hand records over to it, and its end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

import triokafka
from triokafka.blocking.callbacks import CallbackThread
from triokafka.blocking.producer.staging import Stage, Staging
from triokafka.blocking.producer.transactions import SessionTransactions
from triokafka.errors import ClosedError, KafkaError, KafkaTimeoutError
from triokafka.metrics import grouped

if TYPE_CHECKING:
    from triokafka import Producer
    from triokafka.loop_thread import LoopThread

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ProducerSession:
    """The SDK's producer from its construction to its end. Methods run in the loop unless they say otherwise.

    Nothing here refers to the `KafkaProducer`, so that an abandoned one is garbage-collected, which ends this session.
    """

    def __init__(
        self,
        loop: LoopThread,
        options: dict[str, Any],
        *,
        staged_bytes: int,
        unreported_bytes: int | None = None,
        name: str,
    ) -> None:
        self.loop = loop
        self.callbacks = CallbackThread(f"{name} callbacks")
        self.staging = Staging(
            loop,
            self.callbacks,
            staged_bytes,
            unreported_limit=unreported_bytes,
            in_transactions=bool(options.get("transactional_id")),
        )
        self.transactions = SessionTransactions(self._hand_over)
        self._name = name
        self._options = options
        self._nursery: trio.Nursery | None = None
        self._producer: Producer | None = None
        self._stages: dict[str, Stage] = {}
        self._closing = trio.Event()
        self._closed = trio.Event()

    async def open(self) -> None:
        """Construct the SDK's producer. Raises `ConfigurationError` for invalid options."""
        producer = triokafka.Producer(**self._options)
        opened = trio.Event()
        self.loop.start(self._run, producer, opened, name=self._name)
        await opened.wait()

    async def _run(self, producer: Producer, opened: trio.Event) -> None:
        try:
            async with producer, trio.open_nursery() as nursery:
                self._producer, self._nursery = producer, nursery
                opened.set()
                await self._closing.wait()
                nursery.cancel_scope.cancel()
        except* KafkaError:
            pass  # failed records; their futures report them
        finally:
            self._producer = self._nursery = None
            opened.set()
            error = ClosedError("the producer was closed before the record was handed over")
            self.staging.fail(self._stages.values(), error)
            self.callbacks.end()
            self._closed.set()

    def _usable(self) -> Producer:
        if self._producer is None:
            raise ClosedError("the producer is closed")
        return self._producer

    async def learn(self, topic: str, seconds: float) -> Stage:
        """Return the stage of a topic with its present partitions; wait for them at most ``seconds``.

        Raises:
            KafkaTimeoutError: no metadata within that time.
            ClosedError: the producer was closed meanwhile.
            KafkaError: the cluster refuses the topic.
        """
        partitions = await self.partitions(topic, seconds)
        stage = self._stages.get(topic)
        if stage is None:
            if self._nursery is None or self._closing.is_set():
                raise ClosedError("the producer was closed while the partitions were looked up")
            stage = self._stages[topic] = Stage(self.staging, topic)
            self._nursery.start_soon(stage.run, self._usable(), name=f"{self._name} to {topic}")
        stage.learned(partitions)
        return stage

    async def partitions(self, topic: str, seconds: float) -> Sequence[Any]:
        """Return the metadata of a topic's partitions. Raises as `learn`."""
        late = f"Failed to update metadata after {seconds:.1f} secs."
        with trio.move_on_after(seconds):
            try:
                return await self._usable().partitions_for(topic)
            except KafkaError as error:
                if error.retriable and not isinstance(error, KafkaTimeoutError):
                    raise KafkaTimeoutError(f"{late} {error}") from error
                raise
        raise KafkaTimeoutError(late)

    async def flush(self, seconds: float | None) -> bool:
        """Send all staged records and wait until they are settled. Return False if the time limit passed."""
        producer = self._usable()
        # Without a time to wait, waiting ends at the first thing that is not there yet.
        with trio.move_on_after(float("inf") if seconds is None else seconds):
            await self._hand_over()
            if producer.metrics()["batches_unacknowledged"]:
                await producer.flush()
            return True
        return False

    async def _hand_over(self) -> None:
        for stage in list(self._stages.values()):
            await stage.wait_handed_over()

    async def close(self, seconds: float | None) -> None:
        """Flush and end. If the time limit passes, the remaining records fail. An open transaction is aborted."""
        if self._producer is not None:
            try:
                await self.transactions.close(seconds)
                if not await self.flush(seconds):
                    logger.warning(
                        "%s: closed with records that were not acknowledged within %s s", self._name, seconds
                    )
            except KafkaError as error:
                logger.warning("%s: closed after a failure: %s", self._name, error)
        self._closing.set()
        await self._closed.wait()

    async def with_producer(self, work: Callable[[Producer], Awaitable[T]]) -> T:
        """Run ``work`` with the SDK's producer."""
        return await work(self._usable())

    def abandon(self) -> None:
        """End after a flush, because the `KafkaProducer` was garbage-collected. From any thread; does not wait."""
        self.loop.soon(self._abandon)

    def _abandon(self) -> None:
        if self._producer is not None:
            self.loop.start(self.close, 1.0, name=f"{self._name} abandoned")

    async def metrics(self) -> dict[str, float]:
        """The SDK's metrics."""
        producer = self._producer
        return {} if producer is None else dict(producer.metrics())

    async def kafka_metrics(self) -> dict[str, dict[str, float]]:
        """Kafka's metrics by group and name."""
        producer = self._producer
        return {} if producer is None else grouped(producer.kafka_metrics())
