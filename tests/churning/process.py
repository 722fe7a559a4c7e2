"""A member's process in the harness: start, leave, kill, freeze, and its reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from tests.churning.member import Terms

JAVA: Final = "java"
_TAIL: Final = 20


def command(client: str, terms: Terms, java_class_path: str | None) -> Sequence[str]:
    """Return the command of a member with this client."""
    if client != JAVA:
        return [sys.executable, "-m", "tests.churning", client, terms.text()]
    assert java_class_path is not None
    options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return ["java", *options, "-cp", java_class_path, "ChurningMember", terms.text()]


@dataclass(frozen=True)
class Read:
    """Records that a member received, without gaps."""

    partition: int
    first: int
    last: int


class MemberProcess:
    """One process. `changed` is called after every report, and at its end."""

    def __init__(self, client: str, terms: Terms, changed: Callable[[], None]) -> None:
        self.client = client
        self.terms = terms
        self.reads: list[Read] = []
        self.assigned: frozenset[int] | None = None
        self.joining_since: float | None = None
        self.failed = ""
        self.fenced = False
        self.left = False
        self.ended = trio.Event()
        self.error_lines: list[str] = []
        self._error_count_at_leave: int | None = None
        self._changed = changed
        self._process: trio.Process | None = None

    @property
    def name(self) -> str:
        """The client id at the broker."""
        return self.terms.client_id

    @property
    def errors_before_leaving(self) -> list[str]:
        """Its error output until it was asked to leave."""
        return self.error_lines[: self._error_count_at_leave]

    async def run(self, arguments: Sequence[str]) -> None:
        """Start it and read its reports until its end; cancelling kills it."""
        process = await trio.lowlevel.open_process(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._process = process
        self._changed()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, process)
                nursery.start_soon(self._read_errors, process)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            self.ended.set()
            self._changed()

    async def _listen(self, process: trio.Process) -> None:
        assert process.stdout is not None
        rest = b""
        async for chunk in process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        # An incomplete line of a killed process does not count.

    async def _read_errors(self, process: trio.Process) -> None:
        assert process.stderr is not None
        rest = b""
        async for chunk in process.stderr:
            *lines, rest = (rest + chunk).split(b"\n")
            self.error_lines += [line.decode(errors="replace") for line in lines]

    def _take(self, report: dict[str, object]) -> None:
        match report:
            case {"joining": True}:
                self.joining_since = trio.current_time()
            case {"assigned": [*partitions]}:
                self.assigned = frozenset(int(str(partition)) for partition in partitions)
            case {"read": [*ranges]}:
                self.reads += [Read(*one) for one in ranges]  # type: ignore[misc]
            case {"fenced": _}:
                self.fenced = True
            case {"failed": text}:
                self.failed = str(text)
            case {"left": True}:
                self.left = True
            case _:
                raise AssertionError(f"{self.name} said {report}")
        self._changed()

    async def leave(self) -> None:
        """Ask it to leave the group cleanly, and wait until it has ended."""
        process = self._alive()
        assert process.stdin is not None
        self._error_count_at_leave = len(self.error_lines)
        await process.stdin.send_all(b"leave\n")
        await self.ended.wait()

    async def kill(self) -> None:
        """Send SIGKILL: it sends no leave request."""
        os.kill(self._alive().pid, signal.SIGKILL)
        await self.ended.wait()

    def freeze(self) -> None:
        """Send SIGSTOP: it does nothing more, and its connections stay open."""
        os.kill(self._alive().pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self._alive().pid, signal.SIGCONT)

    def _alive(self) -> trio.Process:
        assert self._process is not None, f"{self.name} was not started"
        assert self._process.returncode is None, f"{self.name} ended: {self.why()}"
        return self._process

    def why(self) -> str:
        """Return its error output."""
        return "\n".join([self.failed, *self.error_lines[-_TAIL:]])
