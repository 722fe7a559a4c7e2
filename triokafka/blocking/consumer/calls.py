"""Calls of `KafkaConsumer` and its components into the loop, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import triokafka
from triokafka.blocking.consumer.session import ConsumerSession
from triokafka.errors import IllegalStateError
from triokafka.loop_thread import fork_count
from triokafka.structs import OffsetAndMetadata

T = TypeVar("T")


class ConsumerCalls:
    """Runs work in the loop for one consumer, as long as that is open and in the process that made it."""

    def __init__(self, session: ConsumerSession) -> None:
        self._session = session
        self._forks = fork_count()
        self.closed = False

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the one that made the consumer."""
        return self._forks != fork_count()

    def ask(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run a coroutine function in the consumer's task, after earlier work, and return its result.

        Raises:
            IllegalStateError: the consumer is closed, or belongs to the parent of this forked process.
        """
        self._check_usable()
        return self._session.conversation.ask(work, *arguments)

    def do(self, do: Callable[..., T], *arguments: Any) -> T:
        """Call a function that does not wait in the loop, also while another thread polls. Raises as `ask`."""

        async def work() -> T:
            return do(*arguments)

        self._check_usable()
        result: T = self._session.loop.call(work)
        return result

    def _check_usable(self) -> None:
        if self.forked:
            raise IllegalStateError(
                "this KafkaConsumer belongs to the process from which this one was forked: make a new one here"
            )
        if self.closed:
            raise IllegalStateError("KafkaConsumer is closed")

    def run_commit_callbacks(self) -> None:
        """Call the callbacks of commits that have ended since the last time."""
        committed = self._session.committed
        while committed:
            callback, offsets, answer = committed.popleft()
            callback(offsets, answer)


def check_partitions(*partitions: object, one: bool = False) -> None:
    """Raise `TypeError` for anything but a `TopicPartition`."""
    if not all(isinstance(partition, triokafka.TopicPartition) for partition in partitions):
        raise TypeError(
            "partition must be a TopicPartition namedtuple" if one else "partitions must be TopicPartition namedtuples"
        )


def check_offsets(offsets: object) -> None:
    """Raise `TypeError` for anything but offsets by partition, or None."""
    if offsets is not None and not (
        isinstance(offsets, Mapping)
        and all(isinstance(partition, triokafka.TopicPartition) for partition in offsets)
        and all(isinstance(offset, OffsetAndMetadata) for offset in offsets.values())
    ):
        raise TypeError("offsets must be dict[TopicPartition, OffsetAndMetadata]")
