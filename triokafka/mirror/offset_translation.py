"""Which offset in the target cluster each offset of a source partition became. Pure.

The map is a list of runs: records that are next to each other in both logs. A record that was compacted away, a
transaction marker or a repeated record begins a new run. Runs are kept in blocks of `BLOCK` so that a change rewrites
little: only the blocks that changed are stored again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

BLOCK: Final = 128
MAX_BLOCKS: Final = 64


class Run(NamedTuple):
    """Records from ``upstream`` on in the source, and from ``downstream`` on in the target."""

    upstream: int
    downstream: int
    records: int


class OffsetTranslation:
    """The offsets of one partition. At most `MAX_BLOCKS` blocks; the oldest is dropped for a new one.

    ``floor`` is the lowest source offset that can be translated; ``next_offset`` the first one that is not mirrored.
    """

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.next_offset = floor
        self._runs: list[Run] = []
        self._first = 0  # number of the first run, counted from the beginning of the flow
        self._changed: set[int] = set()

    @classmethod
    def restore(
        cls,
        floor: int,
        next_offset: int,
        blocks: Mapping[int, Sequence[Run]],
        extent: tuple[int, int] | None = None,
    ) -> OffsetTranslation:
        """Return the map that was stored as these values and blocks; ``extent`` is that of `extent`, if it was stored.

        Runs beyond ``next_offset`` are dropped: they were stored before a crash kept ``next_offset`` from being stored.
        If blocks are missing, the offsets before the last complete stretch are unknown: ``floor`` goes up.
        """
        found = cls(floor)
        found.next_offset = next_offset
        first, count = extent if extent is not None else (min(blocks, default=0) * BLOCK, 0)
        last = (first + max(count, 1) - 1) // BLOCK if extent is not None else max(blocks, default=-1)
        usable = _complete_blocks(blocks, first // BLOCK, last)
        if usable:
            found._first = usable[0] * BLOCK
            found._runs = [run for number in usable for run in blocks[number]]
            found._cut(next_offset)
        is_whole = not usable or found._first + len(found._runs) >= first + count
        if not is_whole or any(a.upstream + a.records > b.upstream for a, b in pairwise(found._runs)):
            found._runs.clear()
        if not found._runs:
            if extent is None or count:
                found.floor = next_offset
        elif found._first > first:
            found.floor = found._runs[0].upstream
        found._changed = set(blocks) - set(usable if found._runs else ())
        return found

    @property
    def extent(self) -> tuple[int, int]:
        """The number of the first run, counted from the beginning of the flow, and how many there are."""
        return self._first, len(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, upstream: int, downstream: int, count: int) -> None:
        """Note that ``count`` records were mirrored. Offsets that were mirrored before are replaced."""
        if upstream < self.next_offset:
            self._cut(upstream)
        last = self._runs[-1] if self._runs else None
        if last and (last.upstream + last.records, last.downstream + last.records) == (upstream, downstream):
            self._runs[-1] = Run(last.upstream, last.downstream, last.records + count)
        else:
            self._runs.append(Run(upstream, downstream, count))
        self._changed.add((self._first + len(self._runs) - 1) // BLOCK)
        self.next_offset = upstream + count
        if len(self._runs) > MAX_BLOCKS * BLOCK:
            self._drop_oldest()

    def advance(self, next_offset: int) -> None:
        """Note that there are no more records below ``next_offset``: the rest were markers, aborted or deleted."""
        self.next_offset = max(self.next_offset, next_offset)

    def rewind(self, next_offset: int) -> None:
        """Go back to ``next_offset``: the source lost the records after it."""
        self._cut(next_offset)
        self.next_offset = next_offset
        self.floor = min(self.floor, next_offset)

    def translate(self, upstream: int) -> int | None:
        """Return the target offset from which a consumer at ``upstream`` continues: it skips and repeats nothing.

        None if that is not known: the offset is not mirrored yet, or too old.
        """
        if not self.floor <= upstream <= self.next_offset or not self._runs:
            return None
        after = bisect_right(self._runs, upstream, key=_upstream)
        if after == 0:
            return self._runs[0].downstream
        run = self._runs[after - 1]
        if upstream < run.upstream + run.records:
            return run.downstream + upstream - run.upstream
        return self._runs[after].downstream if after < len(self._runs) else run.downstream + run.records

    def forget(self) -> None:
        """Forget all offsets of the target: its partition is another one now. The next offset stays."""
        self._changed |= set(range(self._first // BLOCK, (self._first + len(self._runs) - 1) // BLOCK + 1))
        self._runs.clear()
        self.floor = self.next_offset

    def change_all(self) -> None:
        """Let the next `take_changes` return every block, because the stored ones are lost."""
        self._changed |= set(range(self._first // BLOCK, (self._first + len(self._runs) - 1) // BLOCK + 1))

    def take_changes(self) -> dict[int, list[Run] | None]:
        """Return the blocks that changed since the last call, by number; None for one that is gone."""
        changed = {number: self._block(number) or None for number in sorted(self._changed)}
        self._changed.clear()
        return changed

    def _block(self, number: int) -> list[Run]:
        begin = number * BLOCK - self._first
        return self._runs[max(0, begin) : max(0, begin + BLOCK)]

    def _cut(self, upstream: int) -> None:
        """Drop everything from a source offset on."""
        while self._runs and self._runs[-1].upstream + self._runs[-1].records > upstream:
            run = self._runs.pop()
            self._changed.add((self._first + len(self._runs)) // BLOCK)
            if run.upstream < upstream:
                self._runs.append(Run(run.upstream, run.downstream, upstream - run.upstream))

    def _drop_oldest(self) -> None:
        last = self._runs[BLOCK - 1]
        self._changed.add(self._first // BLOCK)
        del self._runs[:BLOCK]
        self._first += BLOCK
        self.floor = last.upstream + last.records


def _complete_blocks(blocks: Mapping[int, Sequence[Run]], first: int, last: int) -> list[int]:
    """Return the numbers of the longest stretch of blocks that ends with ``last``, and has no gap."""
    number = last
    while number >= first and number in blocks and (number == last or len(blocks[number]) == BLOCK):
        number -= 1
    return list(range(number + 1, last + 1))


def _upstream(run: Run) -> int:
    return run.upstream
