"""Fetched data that was not returned yet, in order of arrival.

A plain object. Data is stale, and dropped, if the position of its partition has jumped since the fetch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from triokafka.client.consumer.completed_fetch import CompletedFetch
from triokafka.client.consumer.partition_state import PartitionState
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.structs import TopicPartition


class FetchBuffer:
    """Fetched data of all partitions, in order of arrival.

    It has at most ``max_bytes`` (``prefetch_max_bytes``). ``on_space`` is called when bytes were freed, so that more
    can be fetched.
    """

    def __init__(self, subscription: SubscriptionState, max_bytes: int, on_space: Callable[[], None]) -> None:
        self._subscription = subscription
        self._max_bytes = max_bytes
        self._on_space = on_space
        self._queue: deque[CompletedFetch] = deque()
        self._bytes: dict[TopicPartition, int] = {}
        self._last: dict[TopicPartition, CompletedFetch] = {}
        self.total_bytes = 0

    def add(self, data: CompletedFetch) -> None:
        """Append data that the caller has found to be wanted."""
        self._queue.append(data)
        self._last[data.partition] = data
        self._bytes[data.partition] = self._bytes.get(data.partition, 0) + data.size
        self.total_bytes += data.size

    def bytes_of(self, partition: TopicPartition) -> int:
        """Return how many bytes of one partition are buffered."""
        return self._bytes.get(partition, 0)

    def room(self, reserved: int) -> int:
        """Return how many bytes may be fetched beside the ``reserved`` ones of present fetches.

        Data of paused partitions gives way when it is all there is.
        """
        room = self._max_bytes - self.total_bytes - reserved
        if room <= 0 and not self.has_current and self.drop_paused():
            room = self._max_bytes - self.total_bytes - reserved
        return room

    def fetch_offset(self, partition: TopicPartition, state: PartitionState) -> int | None:
        """Return the next offset to fetch, behind the buffered data; None if only decoding can find it."""
        last = self._last.get(partition)
        if last is None or last.version != state.version:
            return state.position
        return last.end

    def remove(self, data: CompletedFetch) -> None:
        """Remove data that was returned completely, or is not wanted."""
        data.done = True
        self._queue.remove(data)
        self.total_bytes -= data.size
        left = self._bytes.pop(data.partition, 0) - data.size
        if left > 0:
            self._bytes[data.partition] = left
        if self._last.get(data.partition) is data:
            del self._last[data.partition]
        self._on_space()

    def current(self) -> Iterator[tuple[CompletedFetch, PartitionState]]:
        """Yield data that may be returned now, in order; drop stale data, skip paused data."""
        held: set[TopicPartition] = set()
        for data in list(self._queue):
            state = self._subscription.get(data.partition)
            if state is None or state.version != data.version:
                self.remove(data)
            elif state.fetchable and data.partition not in held:
                if data.position != state.position:
                    self.remove(data)
                    continue
                yield data, state
            if not data.done:
                # Later data of the same partition waits for its turn.
                held.add(data.partition)

    @property
    def has_current(self) -> bool:
        """Whether there is anything to return, an error included."""
        return any(True for _ in self.current())

    def restore(self, data: CompletedFetch, position: int) -> None:
        """Return ``data`` to the front, from ``position`` on."""
        if not data.done:
            self._queue.remove(data)
            self._queue.appendleft(data)
        else:
            data.done = False
            self._queue.appendleft(data)
            self._bytes[data.partition] = self._bytes.get(data.partition, 0) + data.size
            self.total_bytes += data.size
            self._last.setdefault(data.partition, data)
        data.rewind(position)

    def drop_paused(self) -> bool:
        """Drop the data of paused partitions; it is fetched again after `resume`. Return False if there is none."""
        paused = [
            data
            for data in self._queue
            if (state := self._subscription.get(data.partition)) is not None and state.paused
        ]
        for data in paused:
            self.remove(data)
        return bool(paused)

    def clear(self) -> None:
        """Drop everything."""
        self._queue.clear()
        self._bytes.clear()
        self._last.clear()
        self.total_bytes = 0
