"""A chunk: records of one topic that the sending threads pass to the loop together, and their outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, Final, Protocol

from triokafka.blocking.future import Callback, Outcome, log_failed, tell, with_another
from triokafka.blocking.producer.notification import NOTIFIED, Notification
from triokafka.blocking.producer.record_metadata import RecordMetadata
from triokafka.errors import IllegalStateError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import Deliveries, Delivery
    from triokafka.blocking.callbacks import CallbackThread
    from triokafka.client.deliveries import DeliveredPart
    from triokafka.loop_thread import LoopThread

Headers = list[tuple[str, bytes]]
_AT_ONCE: Final = 64
# RecordMetadata's own constructor is a Python function, which is slower
_metadata: Final = partial(tuple.__new__, RecordMetadata)


class ChunkStaging(Protocol):
    """The producer's `Staging`, as far as chunks use it."""

    lock: threading.Lock
    loop: LoopThread
    callbacks: CallbackThread
    flush_period: float
    flushed: float

    def have_called(self, size: int, do: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call in the callback thread."""


class ChunkStage(Protocol):
    """The parts of a topic's `Stage` that its chunks use."""

    places: dict[int, TopicPartition]

    @property
    def staging(self) -> ChunkStaging:
        """The producer's staging."""

    def hurry(self) -> None:
        """Hand the open chunk over at once."""


class Chunk:
    """Records of one topic that are handed to the loop together, stored in columns, and later their deliveries.

    Every column except ``values`` may be missing or shorter than ``values``; missing elements count as None. The
    listeners of each record are a column as well. A future that the sender drops is therefore freed at once, and the
    garbage collector has no objects to traverse. Listeners that exist when the records are handed over are called
    once per batch; listeners that are added later are called one by one.
    """

    __slots__ = (
        "_count",
        "_each",
        "_failures",
        "_late",
        "_listened_late",
        "_pieces",
        "_wakers",
        "flush_period",
        "header_sizes",
        "headers",
        "keys",
        "listeners",
        "lock",
        "notified",
        "partitions",
        "size",
        "stage",
        "timestamps",
        "values",
    )

    def __init__(self, stage: ChunkStage) -> None:
        self.stage = stage
        self.lock = stage.staging.lock
        self.values: list[Any] = []
        self.keys: list[Any] | None = None
        self.partitions: list[int | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.headers: list[Headers] | None = None
        self.header_sizes: list[int] | None = None
        self.size = 0
        self.flush_period = stage.staging.flush_period
        self.listeners: list[Any] = []
        """`Listeners` by record number; a `Notification` in place of called ones. May be shorter than ``values``."""
        self._count = 0
        self.notified = 0
        """The number of leading records that the SDK has accepted or refused."""
        self._late: list[int] = []
        self._listened_late = False
        self._wakers: list[tuple[int, threading.Event]] = []
        self._pieces: list[Deliveries | Exception] = []
        self._each: list[Delivery | Exception] = []
        self._failures: dict[int, Outcome] = {}

    def put_key(self, index: int, key: bytes) -> None:
        """Set the key of the record at ``index``. The caller holds the lock."""
        keys = self.keys
        if keys is None:
            keys = self.keys = []
        if len(keys) != index:
            _padded(keys, index, None)
        keys.append(key)

    def extras(self, index: int, partition: int | None, timestamp_ms: int | None, headers: Headers | None) -> None:
        """Set the optional fields of the record at ``index``. The caller holds the lock."""
        if partition is not None:
            self.partitions = _put(self.partitions, index, partition, None)
        if timestamp_ms is not None:
            self.timestamps = _put(self.timestamps, index, timestamp_ms, None)
        if headers:
            self.headers = _put(self.headers, index, headers, [])
            size = sum(len(name.encode()) + len(content) for name, content in headers)
            self.header_sizes = _put(self.header_sizes, index, size, -1)

    def take(self) -> tuple[int, dict[str, Any]]:
        """Return the number of records and the columns that `Producer.send_many` takes; the chunk drops the columns."""
        values, count = self.values, len(self.values)
        self._count = count
        columns: dict[str, Any] = {"values": values}
        if self.keys is not None:
            columns["keys"] = _padded(self.keys, count, None)
        if self.partitions is not None:
            columns["partition"] = _padded(self.partitions, count, None)
        if self.timestamps is not None:
            columns["timestamp_ms"] = _padded(self.timestamps, count, None)
        if self.headers is not None:
            columns["headers"] = _padded(self.headers, count, [])
        if self.header_sizes is not None:
            _padded(self.header_sizes, count, -1)
        self.values = []
        self.keys = self.partitions = self.timestamps = self.headers = None
        return count, columns

    # ---------------------------------------------------------------- deliveries

    def handed(self, piece: Deliveries | Exception) -> None:
        """Note that the SDK accepted the next records, or refused the next record. In the loop."""
        count = 1 if isinstance(piece, Exception) else len(piece)
        with self.lock:
            first = self.notified
            self.notified = end = first + count
            self._pieces.append(piece)
            listening = self.listeners[first:end]
        if any(listening):
            if isinstance(piece, Exception):
                self._have_called(1, self._notify_each, [first])
            else:
                self._notify_settled(piece, first, listening)
        if self._wakers:
            wakers, self._wakers = self._wakers, []
            for index, event in wakers:
                self._wake(index, event)

    def _have_called(self, count: int, tell: Callable[..., None], *arguments: Any) -> None:
        """Schedule the callbacks of ``count`` records. In the loop."""
        size = self.size * count // max(1, self._count)
        self.stage.staging.have_called(size, tell, *arguments)

    def _notify_settled(self, piece: Deliveries, first: int, listening: list[Any]) -> None:
        for part in piece.parts():
            positions = part.positions
            if isinstance(positions, range):
                listened = any(listening[positions.start : positions.stop])
            else:
                listened = any(listening[position] for position in positions if position < len(listening))
            if listened:
                part.add_callback(partial(self._have_called, len(positions), self._notify_part, part, first))

    def delivery(self, index: int) -> Delivery | Exception | None:
        """Return a record's delivery, or the error that refused it; None until the SDK takes the record."""
        each = self._each
        if index >= len(each) and self._pieces:
            with self.lock:
                while self._pieces:
                    piece = self._pieces[0]
                    each += [piece] if isinstance(piece, Exception) else list(piece)
                    del self._pieces[0]  # only now: other threads check without the lock whether pieces are left
        return each[index] if index < len(each) else None

    def outcome(self, index: int) -> Outcome | None:
        """Return a record's outcome; None until it is settled. In any thread."""
        delivery = self.delivery(index)
        if delivery is None:
            return None
        if isinstance(delivery, Exception):
            return None, delivery
        try:
            topic, number, *rest = delivery.result()[:6]
        except IllegalStateError:
            return None
        except Exception as error:
            # All callers get the same error object: the delivery would create another one for each.
            return self._failures.setdefault(index, (None, error.with_traceback(None)))
        offset, timestamp, key_size, value_size = rest
        place = self.stage.places.get(number)
        if place is None:
            place = self.stage.places[number] = TopicPartition(topic, number)
        sizes = self.header_sizes
        header_size = sizes[index] if sizes is not None and index < len(sizes) else -1
        return RecordMetadata(topic, number, place, offset, timestamp, None, key_size, value_size, header_size), None

    # ---------------------------------------------------------------- waiters and listeners

    @property
    def is_flushed(self) -> bool:
        """Whether a flush has ended that began after this chunk was complete."""
        return self.flush_period <= self.stage.staging.flushed

    @property
    def in_callback(self) -> bool:
        """Whether the caller is a callback of this producer."""
        return self.stage.staging.callbacks.is_current_thread

    def wake(self, index: int, event: threading.Event) -> None:
        """Set the event when the record is settled, and hand the chunk over at once. From any thread."""
        self.stage.staging.loop.soon(self._hurry, index, event)

    def hurry(self) -> None:
        """Hand the chunk over at once, because a caller waits for one of its records. From any thread."""
        self.stage.staging.loop.soon(self.stage.hurry)

    def _hurry(self, index: int, event: threading.Event) -> None:
        self._wake(index, event)
        self.stage.hurry()

    def _wake(self, index: int, event: threading.Event) -> None:
        delivery = self.delivery(index)
        if delivery is None:
            self._wakers.append((index, event))
        elif isinstance(delivery, Exception):
            event.set()
        else:
            delivery.add_callback(lambda metadata, error: event.set())

    def listen(self, index: int, callback: Callback | None, errback: Callback | None, *, known: bool) -> bool:
        """Call these when the record is settled.

        Return False if its listeners were called already, or, with ``known``, if it has none; the caller then calls
        these.
        """
        with self.lock:
            listeners = self.listeners
            if index >= len(listeners):
                _padded(listeners, index + 1, None)
            self._listened_late = self._listened_late or known or index < self.notified
            others = listeners[index]
            if isinstance(others, Notification):
                return False
            if others is None and known:
                listeners[index] = NOTIFIED
                return False
            listeners[index] = with_another(others, callback, errback)
            if others is None and index < self.notified:
                self._late.append(index)
                if len(self._late) == 1:
                    self.stage.staging.loop.soon(self._add_late_listeners)
            return True

    def _add_late_listeners(self) -> None:
        """Register the late listeners with their records' deliveries. In the loop.

        One registration covers several records of a partition, because most of them share a batch.
        """
        with self.lock:
            late, self._late = self._late, []
        groups: dict[int, list[int]] = {}
        for index in late:
            delivery = self.delivery(index)
            assert delivery is not None
            if isinstance(delivery, Exception):
                self._have_called(1, self._notify_each, [index])
            else:
                group = groups.setdefault(delivery.partition, [])
                group.append(index)
                if len(group) == _AT_ONCE:
                    self._notify_with_last(groups.pop(delivery.partition))
        for group in groups.values():
            self._notify_with_last(group)

    def _notify_with_last(self, group: list[int]) -> None:
        delivery = self.delivery(group[-1])
        assert delivery is not None
        assert not isinstance(delivery, Exception)
        delivery.add_callback(lambda metadata, error: self._have_called(len(group), self._notify_each, group))

    # ---------------------------------------------------------------- calling listeners, in the callback thread

    def _notify_part(self, part: DeliveredPart, first: int) -> None:
        """Call the listeners of a part of the deliveries; the part's positions count from record ``first``."""
        topic, number = place = part.topic_partition
        positions = part.positions
        for begin in range(0, len(positions), _AT_ONCE):
            those = positions[begin : begin + _AT_ONCE]
            end = begin + len(those)
            indices: Sequence[int]
            if isinstance(those, range):
                indices = range(first + those.start, first + those.stop)
            else:
                indices = [first + position for position in those]
            acknowledged = part.acknowledged(begin, end)
            if acknowledged is None:
                self._notify_each(indices)
                continue
            notification = Notification()
            listeners = self._take(indices, notification)
            columns: Sequence[Iterable[int]] = (*acknowledged, self._header_sizes(indices))
            if None in listeners:
                listening = [listener is not None for listener in listeners]
                columns = [compress(column, listening) for column in columns]
                listeners = [listener for listener in listeners if listener is not None]
            offsets, timestamps, key_sizes, value_sizes, header_sizes = columns
            rows = zip(
                repeat(topic, len(listeners)),  # this iterator ends the zip; the other ones are infinite
                repeat(number),
                repeat(place),
                offsets,
                timestamps,
                repeat(None),
                key_sizes,
                value_sizes,
                header_sizes,
                strict=False,
            )
            for listener, metadata in zip(listeners, map(_metadata, rows), strict=True):
                if isinstance(listener, list):
                    tell(listener, (metadata, None))
                    continue
                try:
                    listener(metadata)
                except BaseException:
                    log_failed(None)
            notification.end(self.lock)

    def _take(self, indices: Sequence[int], notification: Notification) -> list[Any]:
        """Return the listeners of these records, or None for each without, and mark the records as called."""
        # One lock acquisition for many records: sending threads take the same lock for each record.
        with self.lock:
            column = self.listeners
            last = max(indices)
            if len(column) <= last:
                _padded(column, last + 1, None)
            if isinstance(indices, range) and not self._listened_late:
                found = column[indices.start : indices.stop]
                if None not in found:
                    column[indices.start : indices.stop] = [notification] * len(found)
                    return found
            else:
                found = [column[index] for index in indices]
            for place, index in enumerate(indices):
                listeners = found[place]
                if listeners is None:
                    continue
                if isinstance(listeners, Notification):
                    found[place] = None
                else:
                    column[index] = notification
        return found

    def _header_sizes(self, indices: Sequence[int]) -> Iterable[int]:
        sizes = self.header_sizes
        return repeat(-1) if sizes is None else [sizes[index] for index in indices]

    def _notify_each(self, group: Sequence[int]) -> None:
        """Call the listeners of the settled records of ``group``; defer those of the others until they are settled."""
        outcomes = {index: outcome for index in group if (outcome := self.outcome(index)) is not None}
        if outcomes:
            notification = Notification()
            listeners = self._take(list(outcomes), notification)
            for outcome, callbacks in zip(outcomes.values(), listeners, strict=True):
                tell(callbacks, outcome)
            notification.end(self.lock)
        later = [index for index in group if index not in outcomes]
        if later:
            with self.lock:
                self._late += later
            self.stage.staging.loop.soon(self._add_late_listeners)


def _put(column: list[Any] | None, index: int, value: Any, fill: Any) -> list[Any]:
    column = _padded(column or [], index, fill)
    column.append(value)
    return column


def _padded(column: list[Any], count: int, fill: Any) -> list[Any]:
    """Cut or fill the column to ``count`` elements."""
    del column[count:]
    if len(column) < count:
        column.extend([fill] * (count - len(column)))
    return column
