"""The future that `KafkaProducer.send` returns: a chunk and the number of a record."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from triokafka.blocking.future import Callback, Future, Outcome
from triokafka.blocking.producer.notification import Notification
from triokafka.blocking.producer.record_metadata import RecordMetadata
from triokafka.errors import KafkaTimeoutError

if TYPE_CHECKING:
    from triokafka.blocking.producer.chunk import Chunk


class FutureRecordMetadata(Future):
    """The outcome of one record: a `RecordMetadata`, or the error with which it failed.

    Callbacks run in a thread of the producer that runs nothing else. They may block, and may use any client. The
    callbacks of one partition run in the order of its records. A callback runs at once in the calling thread if it is
    added when the caller can know that the record is settled: after `get`, `is_done` or a flush reported it. `get` and
    `KafkaProducer.flush` return after the callbacks.
    """

    __slots__ = ("_chunk", "index")

    def __init__(self, chunk: Chunk, index: int) -> None:
        self._chunk = chunk
        self.index = index
        self._outcome = None

    def _look(self) -> Outcome | None:
        outcome = self._outcome
        if outcome is None:
            outcome = self._outcome = self._chunk.outcome(self.index)
        return outcome

    def add_callback(self, f: Callback, *args: Any, **kwargs: Any) -> Self:
        """Call ``f`` with the arguments and then the `RecordMetadata`, if the record is delivered."""
        if args or kwargs:
            f = partial(f, *args, **kwargs)
        chunk = self._chunk
        # A short form of `_listen` for the record that was sent last: most programs add the callback right after
        # `send`.
        with chunk.lock:
            listeners = chunk.listeners
            if len(listeners) == self.index >= chunk.notified:
                listeners.append(f)
                return self
        return self._listen(f, None)

    def _listen(self, callback: Callback | None, errback: Callback | None) -> Self:
        chunk = self._chunk
        known = self._outcome is not None or (chunk.is_flushed and self._look() is not None)
        if not chunk.listen(self.index, callback, errback, known=known):
            outcome = self._look()
            assert outcome is not None
            self._tell(callback, errback, outcome)
        return self

    def rebind(self, new_produce_future: Any, new_batch_index: int) -> None:
        """Does nothing: a record keeps its position when its batch is split."""

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the broker's answer, at most ``timeout`` seconds.

        Raises:
            KafkaTimeoutError: not settled in time; it may still be.
            KafkaError: the record failed.
        """
        value, error = self._wait(timeout)
        if error is not None:
            # Without the traceback of earlier calls: it would grow with each call that raises this error object.
            raise error.with_traceback(None)
        return cast(RecordMetadata, value)

    def _wait(self, timeout: float | None) -> Outcome:
        chunk, index = self._chunk, self.index
        listeners = chunk.listeners[index] if index < len(chunk.listeners) else None
        if chunk.in_callback:
            listeners = None  # they may run after the callback that waits here, so wait for the record only
        outcome = self._look()
        if outcome is None or listeners is not None:
            done = threading.Event()
            if listeners is None:
                chunk.wake(index, done)
                done.wait(timeout)
            elif chunk.listen(index, lambda _: done.set(), lambda _: done.set(), known=False):
                chunk.hurry()
                done.wait(timeout)
            else:  # they are being called; that may have begun after the first look
                cast(Notification, chunk.listeners[index]).wait(chunk.lock, timeout)
            outcome = self._look()
        if outcome is None:
            raise KafkaTimeoutError(f"Timeout after waiting for {timeout} secs.")
        return outcome
