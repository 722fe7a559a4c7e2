"""`CompletionCheck`: whether a producer asks if a transaction is complete before it begins the next one.

A coordinator answers EndTxn before it has written the markers, which usually takes it less than a millisecond more, and
sometimes ten. A request that reaches it earlier is expensive. AddPartitionsToTxn and TxnOffsetCommit are refused with
CONCURRENT_TRANSACTIONS. With transaction version 2 the partition's leader holds a Produce request back and then asks
the coordinator again: Apache Kafka does so after 20 ms (``add.partitions.to.txn.retry.backoff.ms``).

DescribeTransactions tells when the markers are written. One such request costs a round trip, and all of them together
no more than the markers take. A pause whose length is learned from experience costs more: it must be long enough for
nearly all transactions, and the event loop's timers have a resolution of a millisecond.

A check in vain costs about a hundredth of the delay that it prevents, so a producer begins to check when a request came
too early, and ends when a hundred checks in a row were in vain. It never checks with a coordinator that completes a
transaction before it answers. Pure: times are arguments, in seconds.
"""

from __future__ import annotations

from typing import Final

from triokafka.backoff import Backoff

_IN_VAIN: Final = 100
"""The number of checks in vain, one after the other, that cost as much as one request that came too early."""
_FIRST_WAIT: Final = 0.001
"""The first wait after CONCURRENT_TRANSACTIONS."""
_SOON: Final = 0.03
"""A request that is sent so many seconds after EndTxn is not slow because of it."""
_HELD_BACK: Final = (0.018, 0.06)
"""A Produce request that Apache Kafka held back once or twice takes so many seconds more than the fastest request."""
_FORGETTING: Final = 1.02
"""The time of the fastest request grows by this factor with each transaction, as brokers become slower too."""


def completion_backoff(usual: Backoff) -> Backoff:
    """Return the back-off while a transaction is being completed: it begins with a shorter wait than usual."""
    return Backoff(min(usual.initial, _FIRST_WAIT), usual.maximum)


class CompletionCheck:
    """The checks of one producer.

    ``pending``: the producer is asking the coordinator, so no request may begin a transaction. ``held_back_again``: a
    Produce request was held back although another request of the transaction was accepted.
    """

    def __init__(self) -> None:
        self.pending = False
        self.held_back_again = False
        self._checks = 0
        self._ended_at = float("-inf")
        self._fastest = float("inf")
        self._judged = True

    def transaction_ended(self, now: float, took: float) -> None:
        """Note that EndTxn was answered after ``took`` seconds. Decides whether a check is ``pending``."""
        self._ended_at = now
        self._fastest = min(self._fastest * _FORGETTING, took)
        self._judged = False
        self.held_back_again = False
        self.pending = self._checks > 0

    def finished(self, *, in_vain: bool) -> None:
        """Note the end of the check. ``in_vain``: the transaction was complete at first, or no broker answered."""
        self.pending = False
        self._judged = True
        self._checks = self._checks - 1 if in_vain else _IN_VAIN

    def refused(self, sent_at: float) -> None:
        """Note that a request that was sent at this time was refused with CONCURRENT_TRANSACTIONS."""
        self._judge(sent_at, early=True)

    def accepted(self) -> None:
        """Note that a coordinator accepted a request."""
        self._judged = True

    def produced(self, sent_at: float, now: float) -> None:
        """Note that a partition's leader has answered a Produce request without an error."""
        took = now - sent_at
        shortest, longest = _HELD_BACK
        early = shortest <= took - self._fastest < longest
        self.held_back_again |= early and self._judged
        self._fastest = min(self._fastest, took)
        self._judge(sent_at, early=early)

    def _judge(self, sent_at: float, *, early: bool) -> None:
        """Begin to check if the first request of a transaction came too early."""
        if early and not self._judged and sent_at - self._ended_at <= _SOON:
            self._checks = _IN_VAIN
        self._judged = True
