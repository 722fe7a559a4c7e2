"""Exponential back-off with jitter (KIP-144, KIP-580). Pure: the random number is an argument."""

from __future__ import annotations

from triokafka.named_tuple import NamedTuple


class Backoff(NamedTuple):
    """``initial`` seconds after the first failure, doubled after each further one, with a jitter of 20 %; at most
    ``maximum``."""

    initial: float
    maximum: float

    def delay(self, failures: int, chance: float) -> float:
        """Return the seconds to wait after ``failures`` failures in a row (1 or more); ``chance`` is uniform in [0,
        1)."""
        return min(self.maximum, self.without_jitter(failures) * (0.8 + 0.4 * chance))

    def without_jitter(self, failures: int) -> float:
        """Return the same without the jitter, for a state machine that has no source of chance."""
        exponent = min(max(failures - 1, 0), 40)
        return min(self.maximum, self.initial * 2.0**exponent)
