"""The loop's side of a blocking producer: the SDK's `Producer`, the tasks that hand records over to it, and its end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

import triokafka
from triokafka.blocking.callbacks import CallbackThread
from triokafka.blocking.producer.staging import Stage, Staging
from triokafka.errors import ClosedError, KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from triokafka import Producer
    from triokafka.loop_thread import LoopThread

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ProducerSession:
    """From making the SDK's producer to its end. Methods are for the loop, but those that say otherwise.

    Nothing here refers to the `KafkaProducer`, so that one that nobody has any more is collected, and ends this.
    """

    def __init__(
        self,
        loop: LoopThread,
        options: dict[str, Any],
        *,
        staged_bytes: int,
        untold_bytes: int | None = None,
        name: str,
    ) -> None:
        self.loop = loop
        self.callbacks = CallbackThread(f"{name} callbacks")
        self.staging = Staging(loop, self.callbacks, staged_bytes, untold_limit=untold_bytes)
        self._name = name
        self._options = options
        self._nursery: trio.Nursery | None = None
        self._producer: Producer | None = None
        self._stages: dict[str, Stage] = {}
        self._closing = trio.Event()
        self._closed = trio.Event()

    async def open(self) -> None:
        """Make the producer. Raises what is wrong with its options."""
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
            pass  # failures of records, which their futures tell
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
        """The stage of a topic, with the partitions that there are now; waits for them at most so long.

        Raises:
            KafkaTimeoutError: they did not become known.
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
        """What is known of a topic's partitions; raises as `learn`."""
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
        """Send all that was staged, and wait until it is settled; False when the time was over."""
        producer = self._usable()
        # Without a time to wait, waiting ends at the first thing that is not there yet.
        with trio.move_on_after(float("inf") if seconds is None else seconds):
            for stage in list(self._stages.values()):
                await stage.wait_handed_over()
            if producer.metrics()["batches_unacknowledged"]:
                await producer.flush()
            return True
        return False

    async def close(self, seconds: float | None) -> None:
        """Flush, and end, also when it took too long: then what is left fails."""
        if self._producer is not None:
            try:
                if not await self.flush(seconds):
                    logger.warning(
                        "%s: closed with records that were not acknowledged within %s s", self._name, seconds
                    )
            except KafkaError as error:
                logger.warning("%s: closed after a failure: %s", self._name, error)
        self._closing.set()
        await self._closed.wait()

    async def with_producer(self, work: Callable[[Producer], Awaitable[T]]) -> T:
        """Do something with the SDK's producer."""
        return await work(self._usable())

    def abandon(self) -> None:
        """Nobody has the producer any more: end after a flush. From any thread; waits for nothing."""
        self.loop.soon(self._abandon)

    def _abandon(self) -> None:
        if self._producer is not None:
            self.loop.start(self.close, 1.0, name=f"{self._name} abandoned")

    async def metrics(self) -> dict[str, float]:
        """The SDK's metrics."""
        producer = self._producer
        return {} if producer is None else dict(producer.metrics())
