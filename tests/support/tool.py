"""Runs the commands of ``triokafka`` against a broker, in this process or one of their own."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.support.command_output import without_waiting
from triokafka.cli.app import run


class CommandResult(NamedTuple):
    """The exit status and output of a command."""

    status: int
    out: str
    err: str


class Tool:
    """Runs commands in this process, with the broker's address added."""

    def __init__(self, bootstrap: str, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch) -> None:
        self.bootstrap = bootstrap
        self._capture = capture
        self._patch = patch

    def __call__(self, *arguments: str, stdin: str = "", waiting: bool = False) -> CommandResult:
        """Run a command; ``waiting`` includes the lines about a broker that has not responded yet."""
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self._capture.readouterr()
        status = run([*arguments, "--bootstrap-server", self.bootstrap])
        out, err = self._capture.readouterr()
        return CommandResult(status, out.decode(), err.decode() if waiting else without_waiting(err.decode()))

    def ok(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of a command that must succeed."""
        done = self(*arguments, stdin=stdin)
        assert done.status == 0, done
        return done.out

    def fails(self, *arguments: str, stdin: str = "", status: int = 1) -> str:
        """Return the single error line of a command that must fail."""
        done = self(*arguments, stdin=stdin)
        assert done.status == status, done
        lines = [line for line in done.err.splitlines() if line.startswith("triokafka")]
        assert len(lines) == 1, done
        return lines[0]

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the command in its own process."""
        return subprocess.Popen(
            [sys.executable, "-m", "triokafka", *arguments, "--bootstrap-server", self.bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
