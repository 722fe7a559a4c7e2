"""`RegistrationOrder`: the order in which brokers add their partitions to a transaction (transaction version 2).

The first Produce request of a transaction to a broker makes the broker register its partitions with the transaction's
coordinator. Apache Kafka's coordinator refuses a registration while it stores another one, and the refused broker asks
again after 20 ms. So when a transaction writes to several brokers, they register one after the other, once that has
been seen. Brokers of which no response was late register at once.

A response can be late for another reason, and other coordinators take registrations at once: over three brokers of
ours, turns make a transaction a third longer. So the first turns last for few transactions, and longer only if brokers
collide again soon after them. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triokafka.client.producer.partition_queue import PartitionQueue

_FEWEST_IN_TURN: Final = 10
"""The number of transactions after a collision in which brokers register one after the other."""
_MOST_IN_TURN: Final = 500
"""The number doubles up to this one while brokers collide again within as many transactions."""


class RegistrationOrder:
    """The partitions of one producer's transaction that are being registered.

    ``leader_of`` returns the broker that leads the partition of a queue, -1 for none.
    """

    def __init__(self, leader_of: Callable[[PartitionQueue], int]) -> None:
        self._leader_of = leader_of
        self._queues: dict[PartitionQueue, None] = {}
        self._broker = -1
        self._several = False
        self._in_turn = 0
        self._last_in_turn = 0
        self._at_once = 0

    def admits(self, queue: PartitionQueue) -> bool:
        """Return whether batches of the queue may be sent now. If so, its partition counts as being registered."""
        if queue.sequences.last_acked >= 0 or queue in self._queues:
            return True
        broker = self._leader_of(queue)
        if broker < 0:
            return True  # nobody waits for the election of its leader
        if not self._queues:
            self._broker = broker
        elif broker != self._broker:
            if self._in_turn:
                return False
            self._several = True
        self._queues[queue] = None
        return True

    def withdraw(self, queue: PartitionQueue) -> None:
        """Note that the batches of the queue have to wait after all."""
        self._queues.pop(queue, None)

    def finished(self, *, late: bool) -> bool:
        """Return whether all partitions that were being registered are, so that another broker may begin.

        ``late``: a response took as long as if its broker had been refused.
        """
        if not self._queues or any(map(_is_registering, self._queues)):
            return False
        if late and self._several:
            collided_again = self._at_once < self._last_in_turn
            self._last_in_turn = min(2 * self._last_in_turn, _MOST_IN_TURN) if collided_again else _FEWEST_IN_TURN
            self._in_turn = self._last_in_turn
            self._at_once = 0
        self._queues.clear()
        self._several = False
        return True

    def begin_transaction(self) -> None:
        """Forget the partitions of the transaction before."""
        self._queues.clear()
        self._several = False
        if self._in_turn:
            self._in_turn -= 1
        else:
            self._at_once += 1


def _is_registering(queue: PartitionQueue) -> bool:
    """Whether a first batch is unanswered. One that was discarded, because no record fitted, registers nothing."""
    return queue.sequences.last_acked < 0 and bool(queue.batches or queue.on_wire)
