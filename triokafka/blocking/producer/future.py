"""What `KafkaProducer.send` returns. It costs little until somebody asks it for something."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from triokafka.blocking.future import Callback, Future, Listeners, Outcome
from triokafka.errors import KafkaTimeoutError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.blocking.producer.chunk import Chunk


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


class Telling:
    """Takes the place of the listeners of futures that are settled: these are called, or, when ``over``, were."""

    __slots__ = ("_ended", "over")

    def __init__(self, *, over: bool = False) -> None:
        self.over = over
        self._ended: threading.Event | None = None

    def wait(self, lock: threading.Lock, timeout: float | None) -> None:
        """Wait until they were called, at most ``timeout`` seconds."""
        with lock:
            if self.over:
                return
            ended = self._ended = self._ended or threading.Event()
        ended.wait(timeout)

    def end(self, lock: threading.Lock) -> None:
        """They were."""
        with lock:
            self.over = True
            ended = self._ended
        if ended is not None:
            ended.set()


TOLD: Final = Telling(over=True)


class FutureRecordMetadata(Future):
    """The fate of one record: a `RecordMetadata`, or the error with which it failed.

    Callbacks run in a thread of the producer that does nothing else: they may block, and may use any client. Those of
    one partition run in the order of its records, but those that are added when the caller can know that the record is
    settled, because something here has said so or the producer was flushed: they run at once, where they are added.
    `get` and `KafkaProducer.flush` return after the callbacks.
    """

    __slots__ = ("_chunk", "index")

    _listeners: Listeners | Telling

    def __init__(self, chunk: Chunk, index: int) -> None:
        self._chunk = chunk
        self.index = index
        self._outcome = None
        self._listeners = None

    def _look(self) -> Outcome | None:
        outcome = self._outcome
        if outcome is None:
            outcome = self._outcome = self._chunk.outcome(self.index)
        return outcome

    def begin_telling(self, telling: Telling) -> Any:
        """It is settled; returns who is to be told. The lock is held."""
        listeners, self._listeners = self._listeners, telling
        return listeners

    def conclude(self, outcome: Outcome, telling: Telling) -> Any:
        """As `begin_telling`, and note what it came to."""
        if self._outcome is None:
            self._outcome = outcome
        return self.begin_telling(telling)

    def add_callback(self, f: Callback, *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` with the arguments, then the `RecordMetadata`, if the record is delivered."""
        if args or kwargs:
            f = partial(f, *args, **kwargs)
        chunk = self._chunk
        # As `_listen` does where the record waits to be handed over: programs do this for every record.
        with chunk.lock:
            if self._listeners is None and self.index >= chunk.told:
                self._listeners = f
                chunk.attend(self)
                return self
        return self._listen(f, None)

    def _listen(self, callback: Callback | None, errback: Callback | None) -> Self:
        chunk = self._chunk
        is_known = self._outcome is not None or (chunk.is_flushed and self._look() is not None)
        with chunk.lock:
            listeners = self._listeners
            if listeners is None and is_known:
                self._listeners = TOLD
            elif not isinstance(listeners, Telling):
                self._add(callback, errback)
                if listeners is None:
                    chunk.attend(self)
                return self
        settled = self._look()
        assert settled is not None
        self._tell(callback, errback, settled)
        return self

    def rebind(self, new_produce_future: Any, new_batch_index: int) -> None:
        """Does nothing: a record knows its place also after its batch was split."""

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the broker's answer, at most ``timeout`` seconds.

        Raises:
            KafkaTimeoutError: not settled in time; it may still be.
            KafkaError: why the record failed.
        """
        value, error = self._wait(timeout)
        if error is not None:
            raise error
        return cast(RecordMetadata, value)

    def _wait(self, timeout: float | None) -> Outcome:
        chunk, listeners = self._chunk, self._listeners
        outcome = self._look()
        if chunk.in_callback:
            # They may run after the callback that waits here: it waits for the record only.
            if outcome is None and self.has_callbacks:
                return FutureRecordMetadata(chunk, self.index)._wait(timeout)
            listeners = None
        if outcome is not None and listeners is None:
            return outcome
        if isinstance(listeners, Telling):
            listeners.wait(chunk.lock, timeout)
        else:
            done = threading.Event()
            self._listen(_Waker(done), _Waker(done))
            chunk.hurry()
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
            return listeners is not None and not isinstance(listeners, Telling)
        return any(function is not None and not isinstance(function, _Waker) for pair in listeners for function in pair)


class _Waker:
    """Wakes the thread that waits in `FutureRecordMetadata.get`."""

    __slots__ = ("_event",)

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def __call__(self, _: object) -> None:
        self._event.set()
