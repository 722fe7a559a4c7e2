"""One group member in its own process: ``python -m tests.churning CLIENT`` with its `Terms` as JSON.

It reads, reports the records, and only then commits them. The reports are lines of JSON on standard output, see
`Journal`; it leaves the group cleanly at the end of its standard input, or at any input.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Final, Literal

CLIENTS: Final = ("confluent", "kafka_python", "aiokafka", "ours")
"""Modules of this package; ``tests/interop/java/ChurningMember.java`` does the same."""


@dataclass(frozen=True)
class Terms:
    """A member's identity and tasks. ``instance`` makes it a static one."""

    bootstrap: str
    topic: str
    group: str
    client_id: str
    instance: str | None
    protocol: Literal["classic", "consumer"]
    strategy: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int

    def text(self) -> str:
        """Return the terms for the command line."""
        return json.dumps(asdict(self))


class Fenced(Exception):
    """Another member has this member's instance id now."""


class Journal:
    """A member's actions, reported in lines of JSON, and its uncommitted records.

    Lines: ``{"joining": true}`` just before it subscribes, ``{"assigned": [partition, …]}`` when that has changed,
    ``{"read": [[partition, first offset, last offset], …]}``, ``{"fenced": text}``, ``{"failed": text}``, and
    ``{"left": true}`` at the end.
    """

    def __init__(self) -> None:
        self.leave = threading.Event()
        self.uncommitted: dict[int, int] = {}
        self._ranges: list[list[int]] = []
        self._assigned: list[int] | None = None

    def report(self, **fields: object) -> None:
        """Write one line, and flush it."""
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()

    def assigned(self, partitions: Iterable[int]) -> None:
        """Note the member's present partitions."""
        now = sorted(partitions)
        if now != self._assigned:
            self._assigned = now
            self.report(assigned=now)

    def read(self, partition: int, offset: int) -> None:
        """Note a returned record."""
        last = self._ranges[-1] if self._ranges else None
        if last is not None and last[0] == partition and last[2] + 1 == offset:
            last[2] = offset
        else:
            self._ranges.append([partition, offset, offset])
        self.uncommitted[partition] = offset + 1

    def report_reads(self) -> None:
        """Report the records since the last call; call this before they are committed."""
        if self._ranges:
            self.report(read=self._ranges)
            self._ranges = []

    def committed(self, positions: dict[int, int]) -> None:
        """Note committed positions."""
        for partition, position in positions.items():
            if self.uncommitted.get(partition) == position:
                del self.uncommitted[partition]

    def forget(self, partitions: Iterable[int]) -> None:
        """Drop partitions that other members own: their uncommitted records are read again there."""
        for partition in partitions:
            self.uncommitted.pop(partition, None)


def _listen(journal: Journal) -> None:
    sys.stdin.readline()
    journal.leave.set()


def main(client: str, text: str) -> int:
    """Run a member until the end of the input; the exit status is 0 then."""
    terms, journal = Terms(**json.loads(text)), Journal()
    threading.Thread(target=_listen, args=(journal,), daemon=True).start()
    module: Any = import_module(f"tests.churning.{client}")
    try:
        module.take_part(terms, journal)
    except Fenced as fenced:
        journal.report(fenced=str(fenced))
        return 3
    except BaseException:
        journal.report(failed=traceback.format_exc())
        return 1
    journal.report(left=True)
    return 0
