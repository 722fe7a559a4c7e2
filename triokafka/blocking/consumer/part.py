"""What the parts of `KafkaConsumer` share: asking the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import triokafka
from triokafka.blocking.consumer.buffered import Buffered
from triokafka.blocking.consumer.session import ConsumerSession
from triokafka.errors import IllegalStateError
from triokafka.loop_thread import fork_count
from triokafka.structs import OffsetAndMetadata

T = TypeVar("T")


class ConsumerPart:
    """A part of `KafkaConsumer`."""

    config: dict[str, Any]
    _session: ConsumerSession
    _buffered: Buffered
    _closed: bool
    _forks: int

    def _ask(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Have the consumer's task do something, after what it was asked for before."""
        self._check_usable()
        return self._session.conversation.ask(work, *arguments)

    def _check_usable(self) -> None:
        if self._forks != fork_count():
            raise IllegalStateError(
                "this KafkaConsumer belongs to the process from which this one was forked: make a new one here"
            )
        if self._closed:
            raise IllegalStateError("KafkaConsumer is closed")

    def _do(self, do: Callable[..., T], *arguments: Any) -> T:
        """Have the loop call what does not wait. Other threads may do that while one polls."""

        async def work() -> T:
            return do(*arguments)

        self._check_usable()
        result: T = self._session.loop.call(work)
        return result

    def _run_commit_callbacks(self) -> None:
        committed = self._session.committed
        while committed:
            callback, offsets, answer = committed.popleft()
            callback(offsets, answer)


def check_partitions(*partitions: object, one: bool = False) -> None:
    """Raise `TypeError` if they are not."""
    if not all(isinstance(partition, triokafka.TopicPartition) for partition in partitions):
        raise TypeError(
            "partition must be a TopicPartition namedtuple" if one else "partitions must be TopicPartition namedtuples"
        )


def check_offsets(offsets: object) -> None:
    """Raise `TypeError` if they are nothing that can be committed."""
    if offsets is not None and not (
        isinstance(offsets, Mapping)
        and all(isinstance(partition, triokafka.TopicPartition) for partition in offsets)
        and all(isinstance(offset, OffsetAndMetadata) for offset in offsets.values())
    ):
        raise TypeError("offsets must be dict[TopicPartition, OffsetAndMetadata]")
