"""The demo's consumer group: start, watch, extend and kill member processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from triokafka.cli.demo.report import Delivered, Ownership, Rebalance
from triokafka.errors import KafkaError


class MemberFailedError(KafkaError):
    """A member process exited unexpectedly."""


@dataclass(slots=True)
class GroupLog:
    """Events that the members have reported. ``seen[row]`` counts how often a flight was handled."""

    seen: bytearray
    started: float
    distinct: int = 0
    again: int = 0
    delivered: list[Delivered] = field(default_factory=list)
    rebalances: dict[int, Rebalance] = field(default_factory=dict)
    ownerships: list[Ownership] = field(default_factory=list)
    _owners: dict[int, Ownership] = field(default_factory=dict)

    def batch(self, at: float, member: str, partition: int, rows: list[int]) -> None:
        """Record that a member handled these rows of one partition."""
        for row in rows:
            if self.seen[row]:
                self.again += 1
            else:
                self.distinct += 1
            self.seen[row] = min(self.seen[row] + 1, 255)
        self.delivered.append(Delivered(at - self.started, member, partition, len(rows)))

    def assigned(self, at: float, member: str, generation: int, partitions: list[int]) -> Rebalance:
        """Record a member's assignment in a generation."""
        rebalance = self.rebalances.setdefault(generation, Rebalance(at - self.started, generation))
        rebalance.assignment[member] = partitions
        for partition in partitions:
            current = self._owners.get(partition)
            if current is None or current.member != member:
                self._give_up(at, partition)
                self._owners[partition] = owned = Ownership(partition, member, at - self.started)
                self.ownerships.append(owned)
        return rebalance

    def revoked(self, at: float, member: str, partitions: list[int]) -> None:
        """Record that a member has given up these partitions."""
        for partition in partitions:
            if partition in self._owners and self._owners[partition].member == member:
                self._give_up(at, partition)

    def killed(self, at: float, member: str) -> None:
        """Record that a member has ended and that no member handles its partitions."""
        self.revoked(at, member, list(self._owners))

    def _give_up(self, at: float, partition: int) -> None:
        current = self._owners.pop(partition, None)
        if current is not None:
            current.until = at - self.started


class DemoMember:
    """One member process."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        self.name = name
        self._arguments = arguments
        self._process: trio.Process | None = None
        self._ending = False

    async def run(self, log: GroupLog, on_assigned: Callable[[Rebalance], None], changed: Callable[[], None]) -> None:
        """Run the process to its end and log the events it reports.

        Raises:
            MemberFailedError: the process exited unexpectedly; the message contains its last output.
        """
        command = [sys.executable, "-m", "triokafka.cli.demo.member", "--name", self.name, *self._arguments]
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._process = process
        assert process.stdout is not None and process.stderr is not None
        complaints = bytearray()

        async def read_complaints(stream: trio.abc.ReceiveStream) -> None:
            async for chunk in stream:
                complaints.extend(chunk)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_complaints, process.stderr)
                rest = b""
                async for chunk in process.stdout:
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._note(json.loads(line), log, on_assigned)
                    changed()
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        if not self._ending and status != 0:
            said = complaints.decode(errors="replace").strip().splitlines()
            raise MemberFailedError(f"member {self.name} ended with status {status}: {said[-1] if said else 'silent'}")

    def _note(self, event: dict[str, object], log: GroupLog, on_assigned: Callable[[Rebalance], None]) -> None:
        now = trio.current_time()
        if event["event"] == "assigned":
            partitions, generation = event["partitions"], event["generation"]
            assert isinstance(partitions, list) and isinstance(generation, int)
            on_assigned(log.assigned(now, self.name, generation, partitions))
        elif event["event"] == "revoked":
            partitions = event["partitions"]
            assert isinstance(partitions, list)
            log.revoked(now, self.name, partitions)
        elif event["event"] == "batch":
            rows, partition = event["rows"], event["partition"]
            assert isinstance(rows, list) and isinstance(partition, int)
            log.batch(now, self.name, partition, rows)

    def kill(self) -> None:
        """End the process with SIGKILL: no leave request, no last commit."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask the process to leave the group and end."""
        self._end(signal.SIGTERM)

    def _end(self, signal_number: int) -> None:
        self._ending = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal_number)
