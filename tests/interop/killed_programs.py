"""Programs that read a topic as one group and are killed: restarting them, and waiting for their commits."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

STALL = 120.0
"""Seconds without a committed record after which the programs count as stalled."""


class KilledProgram:
    """One program; a new process continues where the last one ended."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def keep_running(self) -> None:
        """Start a process if none runs: a program also ends by itself if it cannot reach the cluster for long."""
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def kill(self) -> None:
        """End its process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Progress:
    """The number of records of the topic that the group has read, by its committed offsets."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._last = 0

    def wait_for(self, count: int, programs: list[KilledProgram]) -> None:
        """Wait until the group has committed so many offsets; restart programs that ended."""
        progressed = time.monotonic()
        while True:
            for program in programs:
                program.keep_running()
            try:
                found = self._consumer.committed(self._partitions, 10)
                read = sum(max(0, one.offset) for one in found)
            except Exception:  # a coordinator moves, or a transaction is being completed
                read = self._last
            if read > self._last:
                self._last, progressed = read, time.monotonic()
            if read >= count:
                return
            assert time.monotonic() - progressed < STALL, f"{read} records read, and none more for {STALL:.0f} s"
            time.sleep(0.1)  # there is no event for a group's commits

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
