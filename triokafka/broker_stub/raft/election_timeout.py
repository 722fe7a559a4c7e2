"""The random timeouts of one node of the quorum: elections, the wait for the leader, the back-off of a candidate."""

from __future__ import annotations

from typing import Final, Protocol

from triokafka.broker_stub.raft.raft_config import RaftConfig

_EARLIEST_FETCH_TIMEOUT: Final = 0.9


class Randomness(Protocol):
    """A source of random numbers: the part of `World.random` that the quorum uses."""

    def uniform(self, a: float, b: float) -> float:
        """Return a number between ``a`` and ``b``."""

    def randrange(self, start: int) -> int:
        """Return a number from 0 to ``start`` - 1."""


class ElectionTimeout:
    """Draws the timeouts of one node. Times are seconds on the world's monotonic clock."""

    def __init__(self, config: RaftConfig, rng: Randomness) -> None:
        self._election = config.election_timeout_ms / 1000
        self._fetch = config.fetch_timeout_ms / 1000
        self._longest_backoff = config.election_backoff_max_ms / 1000
        self._rng = rng

    def election_at(self, now: float) -> float:
        """Return when an election that begins now ends, or a node without a leader begins one."""
        return now + self._rng.uniform(self._election, 2 * self._election)

    def fetch_timeout_at(self, now: float) -> float:
        """Return when a follower gives up the leader that answers now.

        That is up to a tenth before the fetch timeout. A leader answers its followers at the same moment, and followers
        that gave it up at the same moment would split the votes, which costs them an election timeout.
        """
        return now + self._rng.uniform(_EARLIEST_FETCH_TIMEOUT * self._fetch, self._fetch)

    def backoff_until(self, lost_elections: int, now: float) -> float:
        """Return when a candidate gives up an election that it has lost; ``lost_elections`` counts those in a row."""
        return now + self._rng.uniform(0, min(self._longest_backoff, 0.1 * 2 ** min(lost_elections, 10)))
