"""`CompletionPause`: the wait between the end of a transaction and the first request of the next one.

A coordinator answers EndTxn before it has written the markers, which takes it some milliseconds more. A request that
reaches it earlier is expensive. AddPartitionsToTxn and TxnOffsetCommit are refused with CONCURRENT_TRANSACTIONS. With
transaction version 2 the partition's leader holds a Produce request back and then asks the coordinator again: Apache
Kafka does so after 20 ms (``add.partitions.to.txn.retry.backoff.ms``), far longer than the markers take.

No response says when the markers are written, so the pause is learned. It grows after each transaction whose first
request came too early, and shrinks a little after each other one. Pure: times are arguments, in seconds.
"""

from __future__ import annotations

from typing import Final

from triokafka.backoff import Backoff

_STEP: Final = 0.001
"""The growth of the pause, and the first wait after CONCURRENT_TRANSACTIONS."""
_SHRINK: Final = 0.1 * _STEP
"""Balances the growth when one transaction in eleven begins too early."""
_SHORTEST: Final = 0.0005
"""The event loop's timers are too coarse for a shorter pause."""
_LONGEST: Final = 0.015
"""If a pause of this length is too short, either markers take longer here, or requests are slow for another reason."""
_RESTING: Final = 500
"""The number of transactions without a pause after the longest one was too short."""
_HELD_BACK: Final = (0.018, 0.06)
"""A Produce request that Apache Kafka held back once or twice takes so many seconds more than the fastest request."""
_FORGETTING: Final = 1.02
"""The time of the fastest request grows by this factor with each transaction, as brokers become slower too."""


def completion_backoff(usual: Backoff) -> Backoff:
    """Return the back-off after CONCURRENT_TRANSACTIONS: it begins with a shorter wait than usual."""
    return Backoff(min(usual.initial, _STEP), usual.maximum)


class CompletionPause:
    """The pause of one producer. ``seconds`` is its present length.

    ``held_back_again``: a Produce request was held back although another request of the transaction was accepted.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.held_back_again = False
        self._ended_at = float("-inf")
        self._fastest = float("inf")
        self._judged = True
        self._resting = 0

    def transaction_ended(self, now: float, took: float) -> None:
        """Begin the pause: EndTxn was answered after ``took`` seconds."""
        self._ended_at = now
        self._fastest = min(self._fastest * _FORGETTING, took)
        self._judged = False
        self.held_back_again = False

    def remaining(self, now: float) -> float:
        """Return the seconds until the next transaction may send its first request; 0 or less when it may now."""
        return self._ended_at + self.seconds - now if self.seconds >= _SHORTEST else 0.0

    def refused(self, sent_at: float) -> None:
        """Note that a request that was sent at this time was refused with CONCURRENT_TRANSACTIONS."""
        self._judge(sent_at, early=True)

    def accepted(self, sent_at: float) -> None:
        """Note that a coordinator accepted a request that was sent at this time."""
        self._judge(sent_at, early=False)

    def produced(self, sent_at: float, now: float) -> None:
        """Note that a partition's leader has answered a Produce request without an error."""
        took = now - sent_at
        shortest, longest = _HELD_BACK
        early = shortest <= took - self._fastest < longest
        self.held_back_again |= early and self._judged
        self._fastest = min(self._fastest, took)
        self._judge(sent_at, early=early)

    def _judge(self, sent_at: float, *, early: bool) -> None:
        """Adapt the pause by the first request of a transaction, unless it was sent long after the pause."""
        if self._judged:
            return
        self._judged = True
        if sent_at - self._ended_at > 2 * _LONGEST:
            return
        if self._resting:
            self._resting -= 1
        elif not early:
            self.seconds = max(0.0, self.seconds - _SHRINK)
        elif self.seconds + _STEP / 2 < _LONGEST:
            self.seconds += _STEP
        else:
            self.seconds = 0.0
            self._resting = _RESTING
