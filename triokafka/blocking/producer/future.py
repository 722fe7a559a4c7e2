"""What `KafkaProducer.send` returns. It costs little until somebody asks it for something."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from triokafka.blocking.future import Callback, Future, Outcome
from triokafka.errors import KafkaTimeoutError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.blocking.producer.staging import Chunk


class RecordMetadata(NamedTuple):
    """Where a record landed. ``offset`` is -1 with ``acks=0``; sizes are bytes, -1 for null; ``checksum`` is None."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class FutureRecordMetadata(Future):
    """The fate of one record: a `RecordMetadata`, or the error with which it failed.

    Callbacks run in a thread of the producer that does nothing else: they may block, and may use any client. Those of
    one partition run in the order of its records. `get` and `KafkaProducer.flush` return after the callbacks.
    """

    __slots__ = ("_chunk", "index")

    def __init__(self, chunk: Chunk, index: int) -> None:
        self._chunk = chunk
        self.index = index
        self._outcome = None
        self._listeners = None

    def _look(self) -> Outcome | None:
        outcome = self._outcome
        return self._chunk.outcome(self.index) if outcome is None else outcome

    def _attend(self) -> None:
        self._chunk.attend(self)

    def _lock(self) -> threading.Lock:
        return self._chunk.lock

    def add_callback(self, f: Callback, *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` with the arguments, then the `RecordMetadata`, if the record is delivered."""
        if args or kwargs:
            f = partial(f, *args, **kwargs)
        chunk = self._chunk
        # As `_listen` does, in one go: programs do this for every record.
        with chunk.lock:
            if self._outcome is None:
                if self._listeners is None:
                    self._listeners = f
                    chunk.attend(self)
                else:
                    self._add(f, None)
                return self
        self._tell(f, None, self._outcome)
        return self

    def rebind(self, new_produce_future: Any, new_batch_index: int) -> None:
        """Does nothing: a record knows its place also after its batch was split."""

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the broker's answer, at most ``timeout`` seconds.

        Raises:
            KafkaTimeoutError: not settled in time; it may still be.
            KafkaError: why the record failed.
        """
        outcome = self._outcome
        if outcome is None:
            outcome = self._wait(timeout)
        value, error = outcome
        if error is not None:
            raise error
        return cast(RecordMetadata, value)

    def _wait(self, timeout: float | None) -> Outcome:
        settled = self._look()
        if settled is not None and (self._listeners is None or self._chunk.in_callback):
            return settled
        if self._chunk.in_callback and self.has_callbacks:
            # They run after the callback that waits here: it waits for the record only.
            return FutureRecordMetadata(self._chunk, self.index)._wait(timeout)
        done = threading.Event()
        self._listen(_Waker(done), _Waker(done))
        self._chunk.hurry()
        done.wait(timeout)
        outcome = self._look()
        if outcome is None:
            raise KafkaTimeoutError(f"Timeout after waiting for {timeout} secs.")
        return outcome

    @property
    def has_callbacks(self) -> bool:
        """Whether somebody's functions are to be called, and not only waiting threads to be woken."""
        listeners = self._listeners
        if not isinstance(listeners, list):
            return listeners is not None
        return any(function is not None and not isinstance(function, _Waker) for pair in listeners for function in pair)


class _Waker:
    """Wakes the thread that waits in `FutureRecordMetadata.get`."""

    __slots__ = ("_event",)

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def __call__(self, _: object) -> None:
        self._event.set()
