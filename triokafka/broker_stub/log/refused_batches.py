"""Batches that producers have to send again first: they were refused, or may have been.

A producer has several batches on their way. If the first of them is refused and the next one would be acceptable, the
next one must not be refused as out of order: librdkafka then begins a new epoch for all partitions at once, and repeats
the records of other partitions that are in the log already, with answers that were lost. A refusal that may be retried
keeps the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from triokafka.errors import NotEnoughReplicasError
from triokafka.records.batch import BatchInfo

_MAX_PRODUCERS: Final = 1_000


@dataclass(slots=True)
class _RefusedBatch:
    """``behind`` is how many later batches the producer may have sent before it noticed the refusal."""

    producer_epoch: int
    leader_epoch: int
    sequence: int
    behind: int


class RefusedBatches:
    """The first refused batch of each producer, until a batch of the producer is written.

    ``known`` has them by producer id. It is usually empty.

    Args:
        most_behind: how many later batches of a producer may be on their way.
    """

    def __init__(self, most_behind: int) -> None:
        self._most_behind = most_behind
        self.known: dict[int, _RefusedBatch] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.known.clear()

    def written(self, producer_id: int) -> None:
        """Note that a batch of the producer is in the log."""
        self.known.pop(producer_id, None)

    def refuse(self, batch: BatchInfo, leader_epoch: int) -> None:
        """Note that ``batch`` was refused because too few replicas are in sync."""
        known = self._of(batch)
        sequence = batch.base_sequence if known is None else min(batch.base_sequence, known.sequence)
        self._note(batch, leader_epoch, sequence)

    def check(self, batch: BatchInfo) -> None:
        """Raise `NotEnoughReplicasError` for a batch that was sent behind a refused one."""
        known = self._of(batch)
        if known is not None and known.behind and batch.base_sequence > known.sequence:
            known.behind -= 1
            raise _must_wait(batch, known)

    def check_gap(self, batch: BatchInfo, expected: int, leader_epoch: int) -> None:
        """Raise `NotEnoughReplicasError` for a batch behind the sequence ``expected`` that this broker never got.

        The producer has written nothing in this leader epoch, so the former leader may have refused that batch, or may
        have lost it with its leadership; or this broker refused it just before it led. Only the first few batches in
        each leader epoch are refused for that reason.
        """
        known = self._of(batch)
        if known is None or known.leader_epoch != leader_epoch:
            known = self._note(batch, leader_epoch, expected)
        elif not known.behind:  # the producer has given it up
            return
        else:
            known.sequence = min(known.sequence, expected)
            known.behind -= 1
        raise _must_wait(batch, known)

    def _of(self, batch: BatchInfo) -> _RefusedBatch | None:
        known = self.known.get(batch.producer_id)
        return None if known is None or known.producer_epoch != batch.producer_epoch else known

    def _note(self, batch: BatchInfo, leader_epoch: int, sequence: int) -> _RefusedBatch:
        self.known.pop(batch.producer_id, None)
        known = _RefusedBatch(batch.producer_epoch, leader_epoch, sequence, self._most_behind)
        self.known[batch.producer_id] = known
        if len(self.known) > _MAX_PRODUCERS:
            del self.known[next(iter(self.known))]
        return known


def _must_wait(batch: BatchInfo, known: _RefusedBatch) -> NotEnoughReplicasError:
    return NotEnoughReplicasError(
        f"producer {batch.producer_id} sent sequence {batch.base_sequence}; sequence {known.sequence} was refused "
        f"while too few replicas were in sync or while the leader changed, and has to be sent again first"
    )
