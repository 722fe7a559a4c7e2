"""The state of the leader: the progress of every replica, the high watermark, and whether a majority still follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import VoterSet

CHECK_QUORUM_FACTOR: Final = 1.5
"""A leader resigns when no majority has fetched within this multiple of the fetch timeout."""
_OBSERVER_EXPIRES_AFTER: Final = 300.0
_MAX_OBSERVERS: Final = 10_000
_CAUGHT_UP_WITHIN: Final = 3600.0


@dataclass(slots=True)
class ReplicaProgress:
    """How far one replica is, by its fetches. Times are seconds on the monotonic clock; None: never."""

    key: ReplicaKey
    end_offset: int | None = None
    fetched_at: float | None = None
    caught_up_at: float | None = None
    leader_end_at_fetch: int = -1

    def fetched(self, offset: int, leader_end: int, now: float) -> None:
        """Record a fetch from ``offset``: the replica has everything before, on disk if it is a voter."""
        if offset >= leader_end:
            self.caught_up_at = now
        elif self.fetched_at is not None and 0 <= self.leader_end_at_fetch <= offset:
            self.caught_up_at = max(self.caught_up_at or 0.0, self.fetched_at)
        self.leader_end_at_fetch = leader_end
        self.fetched_at = now
        self.end_offset = offset


class Leader:
    """Leads ``epoch``, whose LeaderChange record has the offset ``epoch_start_offset``.

    ``high_watermark`` is None until that record is replicated to a majority: records of earlier epochs are not
    committed by being on a majority alone.

    Args:
        granting: the voters that elected this leader.
        check_quorum: seconds after which the leader resigns unless a majority of the voters has fetched.
    """

    def __init__(
        self,
        key: ReplicaKey,
        epoch: int,
        epoch_start_offset: int,
        voters: VoterSet,
        granting: Sequence[int],
        *,
        check_quorum: float,
        now: float,
    ) -> None:
        self.epoch = epoch
        self.leader_id = key.node_id
        self.voted: ReplicaKey | None = key
        self.epoch_start_offset = epoch_start_offset
        self.granting = tuple(granting)
        self.high_watermark: int | None = None
        self.resign_requested = False
        self.begin_epoch_at = now
        self._key = key
        self._voters = voters
        self._check_quorum = check_quorum
        self._check_quorum_at = now + check_quorum
        self._fetched: set[int] = set()
        self._progress = {key.node_id: ReplicaProgress(key) for key in voters.keys}
        self._observers: dict[ReplicaKey, ReplicaProgress] = {}

    # Voters

    def voters_changed(self, voters: VoterSet) -> None:
        """Take over another voter set: progress moves between voters and observers."""
        known = {progress.key: progress for progress in self._progress.values()} | self._observers
        self._progress = {}
        for key in voters.keys:
            # A static voter, whose directory was unknown, has one after an upgrade of kraft.version.
            former = ReplicaKey(key.node_id)
            match = next((known[other] for other in known if key.admits(other) or other == former), None)
            self._progress[key.node_id] = ReplicaProgress(key) if match is None else match
            if match is not None:
                known.pop(match.key, None)
                match.key = key
        self._observers = {key: progress for key, progress in known.items() if key != self._key}
        self._voters = voters
        self._fetched &= set(self._progress)

    def fetched(self, key: ReplicaKey, offset: int, leader_end: int, now: float) -> None:
        """Record that a replica has everything before ``offset``."""
        self.alive(key, now)
        self._progress_of(key, now).fetched(offset, leader_end, now)

    def _progress_of(self, key: ReplicaKey, now: float) -> ReplicaProgress:
        voter = self._progress.get(key.node_id)
        if voter is not None and voter.key.admits(key):
            return voter
        found = self._observers.get(key)
        if found is None:
            self._expire_observers(now)
            found = self._observers[key] = ReplicaProgress(key)
        return found

    def _expire_observers(self, now: float) -> None:
        expired = [
            key
            for key, progress in self._observers.items()
            if progress.fetched_at is None or progress.fetched_at + _OBSERVER_EXPIRES_AFTER < now
        ]
        for key in expired:
            del self._observers[key]
        while len(self._observers) >= _MAX_OBSERVERS:
            del self._observers[next(iter(self._observers))]

    # Check quorum

    def alive(self, key: ReplicaKey, now: float) -> None:
        """Record a fetch of records or of a snapshot by a voter, which still follows this leader."""
        voter = self._progress.get(key.node_id)
        if voter is None or not voter.key.admits(key):
            return
        self._fetched.add(key.node_id)
        if len(self._fetched) + (self.leader_id in self._progress) >= self._voters.majority:
            self._fetched.clear()
            self._check_quorum_at = now + self._check_quorum

    @property
    def check_quorum_at(self) -> float:
        """When the leader must resign; never as the only voter."""
        if len(self._progress) == 1 and self.leader_id in self._progress:
            return math.inf
        return self._check_quorum_at

    def must_resign(self, now: float) -> bool:
        """Whether this leader gives up: by request, or because no majority has fetched for too long."""
        return self.resign_requested or now >= self.check_quorum_at

    def begin_check_quorum(self, now: float) -> None:
        """Give the first other voter the whole time to fetch: so far there was none to wait for."""
        if self.check_quorum_at == math.inf:
            self._check_quorum_at = now + self._check_quorum

    def to_notify(self, now: float, *, within: float) -> list[ReplicaKey]:
        """Return the other voters that have not fetched in ``within`` seconds: they may not know the leader."""
        return [
            progress.key
            for progress in self._progress.values()
            if progress.key.node_id != self.leader_id
            and (progress.fetched_at is None or now - progress.fetched_at >= within)
        ]

    # Commitment

    def update_high_watermark(self, flushed_offset: int) -> bool:
        """Compute the high watermark, if this leader's log is on disk before ``flushed_offset``.

        Returns whether the high watermark has advanced.
        """
        ends = sorted(
            (
                flushed_offset
                if node_id == self.leader_id
                else -1
                if progress.end_offset is None
                else progress.end_offset
                for node_id, progress in self._progress.items()
            ),
            reverse=True,
        )
        if not ends:
            return False
        # Also not above the leader's own disk: after a failed sync it drops what is not there.
        committed = min(ends[len(ends) // 2], flushed_offset)
        if committed <= self.epoch_start_offset or committed <= (self.high_watermark or 0):
            return False
        self.high_watermark = committed
        return True

    def possible_holders(self, offset: int) -> list[int]:
        """Return the other voters that may have the record at ``offset``."""
        return [
            node_id
            for node_id, progress in self._progress.items()
            if node_id != self.leader_id and (progress.end_offset is None or progress.end_offset > offset)
        ]

    def successors(self) -> list[ReplicaKey]:
        """Return the other voters, the one with the longest log first."""
        others = [progress for progress in self._progress.values() if progress.key.node_id != self.leader_id]
        others.sort(key=lambda progress: -1 if progress.end_offset is None else progress.end_offset, reverse=True)
        return [progress.key for progress in others]

    def is_caught_up(self, key: ReplicaKey, now: float) -> bool:
        """Whether an observer has been at the end of the log, and has fetched within the last hour."""
        progress = self._observers.get(key)
        return (
            progress is not None
            and progress.caught_up_at is not None
            and progress.fetched_at is not None
            and progress.fetched_at > now - _CAUGHT_UP_WITHIN
        )

    # Description

    @property
    def voter_progress(self) -> list[ReplicaProgress]:
        """How far the voters are."""
        return list(self._progress.values())

    def observer_progress(self, now: float) -> list[ReplicaProgress]:
        """How far the observers are that have fetched within five minutes."""
        self._expire_observers(now)
        return list(self._observers.values())
