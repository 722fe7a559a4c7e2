"""The unfinished moves of logs between data directories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import trio

from triokafka.broker_stub.log.log_directory import LogDirectory
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.structs import TopicPartition


@dataclass(slots=True, eq=False)
class PendingMove:
    """A move of one log; ``scope`` cancels the task that copies it, ``folder`` is the directory of the copy."""

    topic_partition: TopicPartition
    target: LogDirectory
    folder: str
    begun: bool = False
    copy: PartitionLog | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class PendingMoves:
    """At most one move of each partition."""

    def __init__(self) -> None:
        self._moves: dict[TopicPartition, PendingMove] = {}

    def __iter__(self) -> Iterator[PendingMove]:
        return iter(tuple(self._moves.values()))

    def get(self, topic_partition: TopicPartition) -> PendingMove | None:
        """Return the move of a partition's log, or None."""
        return self._moves.get(topic_partition)

    def add(self, move: PendingMove) -> None:
        """Add the move of a partition without a pending move."""
        self._moves[move.topic_partition] = move

    def ended(self, topic_partition: TopicPartition) -> None:
        """Forget a move without cancelling its task."""
        self._moves.pop(topic_partition, None)

    def give_up(self, topic_partition: TopicPartition) -> None:
        """Cancel the move of a log, if there is one; its task removes the copy."""
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.scope.cancel()

    def give_up_all_to(self, target: LogDirectory) -> None:
        """Cancel all moves to a data directory."""
        for move in self:
            if move.target is target:
                self.give_up(move.topic_partition)
