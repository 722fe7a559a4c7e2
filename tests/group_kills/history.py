"""The observations of group members, and whether they are possible if no acknowledged commit is lost.

Pure: times are seconds on one clock, and are arguments. `who` is a member over all its processes: the instance id of a
static member, or the name of one process of a dynamic one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf


class Outcome(Enum):
    """The outcome of a commit, as far as the committer knows it."""

    UNKNOWN = "nobody knows"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


@dataclass(eq=False, slots=True)
class Commit:
    """One position, in transit to the coordinator from ``since`` to ``until``; ``tag`` identifies it in its
    metadata."""

    who: str
    epoch: int
    offset: int
    tag: str
    since: float
    until: float = inf
    outcome: Outcome = Outcome.UNKNOWN

    def __str__(self) -> str:
        return f"{self.offset} by {self.tag} in epoch {self.epoch} ({self.since:.3f} to {self.until:.3f})"


@dataclass(slots=True)
class Attempt:
    """A request with several positions. Positions without an outcome stay unknown."""

    commits: dict[int, Commit]
    tag: str
    _history: History

    def done(self, outcome: Outcome, partition: int | None = None) -> None:
        """Note the outcome, for one partition or for all of them."""
        now = self._history.clock()
        for commit in self.commits.values() if partition is None else (self.commits[partition],):
            commit.outcome, commit.until = outcome, now
        self._history.note("commit", self.tag, outcome.value, "" if partition is None else partition)


@dataclass(eq=False, slots=True)
class Read:
    """A committed position in a response; offset -1 for none."""

    offset: int
    tag: str
    since: float
    until: float


@dataclass(eq=False, slots=True)
class Hold:
    """The time in which a member may believe that it owns a partition. ``lease`` is the time until which its
    coordinator
    must believe so too: the member was heard of, and was not told otherwise."""

    who: str
    epoch: int
    since: float
    until: float = inf
    lease: float = -inf


@dataclass(slots=True)
class _Partition:
    commits: list[Commit] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    grants: list[tuple[float, int, str]] = field(default_factory=list)
    handled: set[int] = field(default_factory=set)


class History:
    """All observations. ``record`` receives them as text, in order."""

    def __init__(self, clock: Callable[[], float], record: Callable[..., None] = lambda *event: None) -> None:
        self.clock = clock
        self.events: list[str] = []
        self._record = record
        self._partitions: dict[tuple[str, int], _Partition] = defaultdict(_Partition)
        self._attempts = 0
        self._forgotten: list[float] = []
        self._free: set[str] = set()

    def note(self, *event: object) -> None:
        """Note an event."""
        self.events.append(f"{self.clock():9.3f} {' '.join(map(str, event))}")
        self._record(*event)

    # ---------------------------------------------------------------- observations of members

    def commit(self, who: str, group: str, epoch: int, positions: Mapping[int, int]) -> Attempt:
        """Note that a member commits positions."""
        self._attempts += 1
        tag = f"{who}#{self._attempts}"
        now = self.clock()
        commits = {number: Commit(who, epoch, offset, tag, now) for number, offset in positions.items()}
        for number, one in commits.items():
            self._partitions[group, number].commits.append(one)
        self.note("commits", group, tag, epoch, dict(positions))
        return Attempt(commits, tag, self)

    def read(self, group: str, number: int, offset: int, tag: str, *, since: float) -> None:
        """Note a committed position in a response to a request sent at ``since``."""
        self._partitions[group, number].reads.append(Read(offset, tag, since, self.clock()))

    def granted(
        self, who: str, group: str, epoch: int, numbers: Iterable[int], *, assigned_at: float | None = None
    ) -> None:
        """Note that a member owns exactly these partitions now.

        ``assigned_at`` is the time of the response with the assignment, in this generation or member epoch: the
        coordinator may have died since, and have lost it. None: now.
        """
        now = self.clock() if assigned_at is None else assigned_at
        numbers = sorted(numbers)
        for number in numbers:
            partition = self._partitions[group, number]
            partition.grants.append((now, epoch, who))
            if not any(hold.who == who and hold.until == inf for hold in partition.holds[-8:]):
                partition.holds.append(Hold(who, epoch, now))
        self.note("granted", group, who, epoch, numbers)

    def gave_up(self, who: str, group: str, numbers: Iterable[int] | None = None) -> None:
        """Note that a member no longer uses these partitions (None: all)."""
        now = self.clock()
        given = []
        for hold, number in self._open_holds(who, group):
            if numbers is None or number in numbers:
                hold.until = now
                given.append(number)
        if given:
            self.note("gave-up", group, who, given)

    def heard_of(self, who: str, group: str, *, sent_at: float, patience: float) -> None:
        """Note that the coordinator has answered a request sent then: it must keep the member for ``patience`` more."""
        for hold, _ in self._open_holds(who, group):
            # Its session may have ended before, and the answer may be from a coordinator that had not loaded it yet.
            if hold.lease > sent_at or hold.lease == -inf:
                hold.lease = sent_at + patience

    def _open_holds(self, who: str, group: str) -> list[tuple[Hold, int]]:
        return [
            (hold, number)
            for (name, number), partition in self._partitions.items()
            if name == group
            for hold in partition.holds[-8:]
            if hold.who == who and hold.until == inf
        ]

    def handled(self, group: str, number: int, offsets: Iterable[int]) -> None:
        """Note handled records."""
        self._partitions[group, number].handled.update(offsets)

    # ---------------------------------------------------------------- events of the world

    def forgets(self) -> None:
        """Note that the coordinator's machine has lost unsynced data that nobody asked to sync: no guarantee reaches
        further back than this."""
        self._forgotten.append(self.clock())
        self.note("forgets")

    def moves_freely(self, group: str) -> None:
        """Note that positions of this group are set on purpose, also backwards."""
        self._free.add(group)

    # ---------------------------------------------------------------- checks

    def unhandled(self, group: str, ends: Mapping[int, int]) -> dict[int, list[int]]:
        """Return by partition the records below these offsets that no member handled."""
        found = {n: [o for o in range(end) if o not in self._partitions[group, n].handled] for n, end in ends.items()}
        return {number: offsets for number, offsets in found.items() if offsets}

    def counts(self) -> dict[str, int]:
        """Return the number of observations."""
        partitions = self._partitions.values()
        commits = [commit for partition in partitions for commit in partition.commits]
        return {
            "acknowledged": sum(commit.outcome is Outcome.ACKNOWLEDGED for commit in commits),
            "unknown": sum(commit.outcome is Outcome.UNKNOWN for commit in commits),
            "refused": sum(commit.outcome is Outcome.REFUSED for commit in commits),
            "reads": sum(len(partition.reads) for partition in partitions),
            "grants": sum(len(partition.grants) for partition in partitions),
        }

    def violations(self) -> list[str]:
        """Return the impossible observations as text; empty if all are possible."""
        found: list[str] = []
        for (group, number), partition in self._partitions.items():
            for problem in (
                *self._lost_commits(partition),
                *(() if group in self._free else self._moved_back(partition)),
                *self._shared(partition),
                *self._stale_commits(partition),
                *self._overlaps(partition),
            ):
                found.append(f"group {group}, partition {number}: {problem}")
        return found

    def _age(self, at: float) -> int:
        """Return how often the coordinator had lost its data by then."""
        return sum(cut <= at for cut in self._forgotten)

    def _lost_commits(self, partition: _Partition) -> Iterable[str]:
        """A reader gets the last acknowledged commit, or one that may be newer."""
        by_tag = {commit.tag: commit for commit in partition.commits}
        for read in partition.reads:
            seen = by_tag.get(read.tag) if read.offset >= 0 else None
            where = f"at {read.since:.3f} to {read.until:.3f} it was {read.offset} ({read.tag})"
            if read.offset >= 0:
                if seen is None or seen.offset != read.offset or seen.since > read.until:
                    yield f"{where}, which nobody had committed"
                    continue
                if seen.outcome is Outcome.REFUSED:
                    yield f"{where}, which was refused: {seen}"
            for commit in partition.commits:
                if (
                    commit.outcome is Outcome.ACKNOWLEDGED
                    and commit.until < read.since
                    and self._age(commit.since) == self._age(read.until)
                    and (seen is None or seen.until < commit.since)
                ):
                    yield f"{where}; lost is the acknowledged {commit}"
                    break

    def _moved_back(self, partition: _Partition) -> Iterable[str]:
        newest: Read | None = None
        for read in sorted(partition.reads, key=lambda read: read.since):
            if (
                newest is not None
                and newest.until < read.since
                and newest.offset > read.offset
                and self._age(newest.since) == self._age(read.until)
            ):
                yield f"the position was {newest.offset} at {newest.until:.3f} and {read.offset} at {read.until:.3f}"
            if newest is None or read.offset >= newest.offset or self._age(newest.since) != self._age(read.until):
                newest = read

    def _shared(self, partition: _Partition) -> Iterable[str]:
        owners: dict[tuple[int, int], str] = {}
        for at, epoch, who in partition.grants:
            owner = owners.setdefault((self._age(at), epoch), who)
            if owner != who:
                yield f"in epoch {epoch} it belongs to {owner} and to {who}"

    def _stale_commits(self, partition: _Partition) -> Iterable[str]:
        """No member commits in an epoch after another member got the partition in a later one."""
        for commit in partition.commits:
            if commit.outcome is not Outcome.ACKNOWLEDGED or commit.epoch < 0:
                continue
            for at, epoch, who in partition.grants:
                if (
                    epoch > commit.epoch
                    and who != commit.who
                    and at < commit.since
                    and self._age(at) == self._age(commit.until)
                ):
                    yield f"{who} has it since {at:.3f} in epoch {epoch}, and acknowledged was {commit}"
                    break

    def _overlaps(self, partition: _Partition) -> Iterable[str]:
        """No member gets a partition while another member, whom the coordinator must know, holds it."""
        for hold in partition.holds:
            for other in partition.holds:
                if (
                    other.who != hold.who
                    and other.since <= hold.since < min(other.until, other.lease)
                    and self._age(other.since) == self._age(hold.since)
                ):
                    yield (
                        f"given to {hold.who} at {hold.since:.3f} in epoch {hold.epoch} while {other.who} held it from"
                        f" {other.since:.3f} to {other.until:.3f}, its session until {other.lease:.3f} at least"
                    )
