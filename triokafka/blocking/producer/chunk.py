"""Records that pass from the threads that send them to the loop together, and what becomes of each of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, Final

from triokafka.blocking.future import Outcome, log_failed, tell
from triokafka.blocking.producer.future import TOLD, FutureRecordMetadata, RecordMetadata, Telling
from triokafka.errors import IllegalStateError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import Deliveries, Delivery
    from triokafka.blocking.producer.staging import Stage
    from triokafka.client.deliveries import DeliveredPart

Headers = list[tuple[str, bytes]]
Listening = list[FutureRecordMetadata]
"""Futures that somebody listens to."""

_AT_ONCE: Final = 64
_metadata: Final = partial(tuple.__new__, RecordMetadata)  # its own constructor is a function in Python


class Chunk:
    """Records of one topic that are handed over together, in columns, and afterwards their deliveries.

    Futures that somebody listens to before their records are handed over are settled batch by batch: programs listen to
    each as soon as they have it. Those that find a listener later are settled by themselves. Columns but ``values`` may
    be missing, or shorter than it is: then the rest is None.
    """

    __slots__ = (
        "_each",
        "_late",
        "_pieces",
        "_repeated",
        "era",
        "futures",
        "header_sizes",
        "headers",
        "keys",
        "lock",
        "partitions",
        "size",
        "stage",
        "timestamps",
        "told",
        "values",
    )

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.lock: threading.Lock = stage.staging.lock
        self.values: list[Any] = []
        self.keys: list[Any] | None = None
        self.partitions: list[int | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.headers: list[Headers] | None = None
        self.header_sizes: list[int] | None = None
        self.size = 0
        self.era = stage.staging.era
        self.futures: list[FutureRecordMetadata | None] = []
        """Those with listeners, by the number of their record, until that is handed over; the list may be shorter."""
        self.told = 0
        """Records of which it is known whether they were accepted: the first ones."""
        self._late: Listening = []
        self._repeated: Listening = []
        self._pieces: list[Deliveries | Exception] = []
        self._each: list[Delivery | Exception] = []

    def put_key(self, index: int, key: bytes) -> None:
        """The key of the record at ``index``. The caller holds the lock."""
        keys = self.keys
        if keys is None:
            keys = self.keys = []
        if len(keys) != index:
            _padded(keys, index, None)
        keys.append(key)

    def extras(self, index: int, partition: int | None, timestamp_ms: int | None, headers: Headers | None) -> None:
        """What the record at ``index`` has beside key and value. The caller holds the lock."""
        if partition is not None:
            self.partitions = _put(self.partitions, index, partition, None)
        if timestamp_ms is not None:
            self.timestamps = _put(self.timestamps, index, timestamp_ms, None)
        if headers:
            self.headers = _put(self.headers, index, headers, [])
            size = sum(len(name.encode()) + len(content) for name, content in headers)
            self.header_sizes = _put(self.header_sizes, index, size, -1)

    def take(self) -> tuple[int, dict[str, Any]]:
        """The number of records, and the columns as `Producer.send_many` takes them; nothing is kept of them."""
        values, count = self.values, len(self.values)
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

    # ---------------------------------------------------------------- what became of them

    def handed(self, piece: Deliveries | Exception) -> None:
        """The next records were accepted, or the next one was refused. In the loop."""
        count = 1 if isinstance(piece, Exception) else len(piece)
        with self.lock:
            first = self.told
            self.told = end = first + count
            self._pieces.append(piece)
            futures = self.futures[first:end]
            if end >= len(self.futures):
                self.futures = []  # nobody's cycle: each of them has the chunk
            else:
                self.futures[first:end] = [None] * len(futures)
        if any(futures):
            self._have_settled(piece, first, _padded(futures, count, None))
        if self._repeated:
            repeated, self._repeated = self._repeated, []
            self._hear(repeated)

    def _have_settled(
        self, piece: Deliveries | Exception, first: int, futures: list[FutureRecordMetadata | None]
    ) -> None:
        if isinstance(piece, Exception):
            self._hear([future for future in futures if future is not None])
            return
        for part in piece.parts():
            positions = part.positions
            those: Sequence[FutureRecordMetadata | None]
            if isinstance(positions, range):
                those = futures[positions.start : positions.stop]
            else:
                those = [futures[position] for position in positions]
            listening = len(those) - those.count(None)
            if listening > 1:
                part.add_callback(partial(self.stage.staging.callbacks.put, self._settle_part, part, first, those))
            elif listening:
                self._hear([future for future in those if future is not None])

    def delivery(self, index: int) -> Delivery | Exception | None:
        """Of one record: its delivery, why it was refused, or None as long as it was not handed over."""
        each = self._each
        if index >= len(each) and self._pieces:
            with self.lock:
                while self._pieces:
                    piece = self._pieces.pop(0)
                    if isinstance(piece, Exception):
                        each.append(piece)
                    else:
                        each.extend(piece)
        return each[index] if index < len(each) else None

    def outcome(self, index: int) -> Outcome | None:
        """Of one record, None as long as it is not settled. In any thread."""
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
            return None, error
        offset, timestamp, key_size, value_size = rest
        place = self.stage.places.get(number)
        if place is None:
            place = self.stage.places[number] = TopicPartition(topic, number)
        sizes = self.header_sizes
        header_size = sizes[index] if sizes is not None and index < len(sizes) else -1
        return RecordMetadata(topic, number, place, offset, timestamp, None, key_size, value_size, header_size), None

    # ---------------------------------------------------------------- who wants to know

    @property
    def is_flushed(self) -> bool:
        """Whether the producer was flushed when no record came to this any more."""
        return self.era <= self.stage.staging.flushed

    @property
    def in_callback(self) -> bool:
        """Whether the caller is a callback of this producer."""
        return self.stage.staging.callbacks.is_current_thread

    def hurry(self) -> None:
        """Somebody waits for a record of this chunk."""
        self.stage.staging.loop.soon(self.stage.hurry)

    def attend(self, future: FutureRecordMetadata) -> None:
        """Tell the future when its record is settled. The caller holds the lock."""
        index, futures = future.index, self.futures
        if index >= self.told:
            if index >= len(futures):
                _padded(futures, index, None).append(future)
                return
            if futures[index] is None:
                futures[index] = future
                return
        self._late.append(future)
        if len(self._late) == 1:
            self.stage.staging.loop.soon(self._hear_late)

    def _hear_late(self) -> None:
        with self.lock:
            late, self._late = self._late, []
        self._hear(late)

    def _hear(self, listening: Listening) -> None:
        """Have these settled when their records are: one call for several of a partition, which mostly went out and
        come back together. In the loop."""
        groups: dict[int, Listening] = {}
        for future in listening:
            delivery = self.delivery(future.index)
            if delivery is None:
                self._repeated.append(future)
            elif isinstance(delivery, Exception):
                self._settle_group([future])
            else:
                group = groups.setdefault(delivery.partition, [])
                group.append(future)
                if len(group) == _AT_ONCE:
                    self._settle_with_last(groups.pop(delivery.partition))
        for group in groups.values():
            self._settle_with_last(group)

    def _settle_with_last(self, group: Listening) -> None:
        delivery = self.delivery(group[-1].index)
        assert delivery is not None
        assert not isinstance(delivery, Exception)
        delivery.add_callback(lambda metadata, error: self._settle_group(group))

    def _settle_group(self, group: Listening) -> None:
        if len(group) != 1 or not self._settle_unheard(group[0]):
            self.stage.staging.callbacks.put(self.settle, group)

    def _settle_unheard(self, future: FutureRecordMetadata) -> bool:
        """Settle a future that only threads wait for; False when somebody's function is to be called. In the loop."""
        outcome = self.outcome(future.index)
        with self.lock:
            # Under the lock: a callback that is added in this moment must not run in the loop.
            if outcome is None or future.has_callbacks:
                return False
            listeners = future.conclude(outcome, TOLD)
        tell(listeners, outcome)
        return True

    # ---------------------------------------------------------------- telling, in the thread for callbacks

    def _settle_part(self, part: DeliveredPart, first: int, futures: list[FutureRecordMetadata | None]) -> None:
        """Settle the futures of a part of what was handed over when ``first`` records were told of; None where nobody
        listens."""
        topic, number = place = part.topic_partition
        for begin in range(0, len(futures), _AT_ONCE):
            those = futures[begin : begin + _AT_ONCE]
            listening = [future for future in those if future is not None]
            end = begin + len(those)
            acknowledged = part.acknowledged(begin, end)
            if acknowledged is None:
                self.settle(listening)
                continue
            columns: Sequence[Iterable[int]] = (*acknowledged, self._header_sizes(part.positions[begin:end], first))
            if len(listening) < len(those):
                heard = [future is not None for future in those]
                columns = [compress(column, heard) for column in columns]
            offsets, timestamps, key_sizes, value_sizes, header_sizes = columns
            rows = zip(
                repeat(topic, len(listening)),  # the first one ends them all: others go on for ever
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
            self._tell_all(listening, map(_metadata, rows))

    def _header_sizes(self, positions: Sequence[int], first: int) -> Iterable[int]:
        sizes = self.header_sizes
        if sizes is None:
            return repeat(-1)
        return [sizes[first + position] for position in positions]

    def _tell_all(self, futures: Listening, values: Iterable[RecordMetadata]) -> None:
        telling = Telling()
        # Once for all of them: the threads that send want this lock for every record.
        with self.lock:
            listeners = [future.begin_telling(telling) for future in futures]
        for value, listener in zip(values, listeners, strict=True):
            if isinstance(listener, list):
                tell(listener, (value, None))
                continue
            try:
                listener(value)
            except BaseException:
                log_failed(None)
        telling.end(self.lock)

    def settle(self, group: Listening) -> None:
        """Settle these futures; those whose records went out later than the group's last are left for their time."""
        settled: list[tuple[FutureRecordMetadata, Outcome]] = []
        later: Listening = []
        for future in group:
            outcome = self.outcome(future.index)
            if outcome is None:
                later.append(future)
            else:
                settled.append((future, outcome))
        telling = Telling()
        with self.lock:
            listeners = [future.conclude(outcome, telling) for future, outcome in settled]
        for (_, outcome), told in zip(settled, listeners, strict=True):
            tell(told, outcome)
        telling.end(self.lock)
        if later:
            self.stage.staging.loop.soon(self._hear, later)


def _put(column: list[Any] | None, index: int, value: Any, fill: Any) -> list[Any]:
    column = _padded(column or [], index, fill)
    column.append(value)
    return column


def _padded(column: list[Any], count: int, fill: Any) -> list[Any]:
    """As long as that; what is behind its end goes."""
    del column[count:]
    if len(column) < count:
        column.extend([fill] * (count - len(column)))
    return column
