"""Clean virtual environments without a C compiler, and the commands that run in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class CommandError(Exception):
    """A command ended with another status than 0; the text has the command and the end of its output."""


def run(command: Sequence[str], *, environment: Mapping[str, str] | None = None, cwd: Path | None = None,
        timeout: float = 1_200) -> str:  # fmt: skip
    """Run a command and return what it printed on standard output.

    Args:
        command: the program and its arguments.
        environment: the variables; those of this process if not given.
        cwd: the directory; the current one if not given.
        timeout: seconds until the command is killed.

    Raises:
        CommandError: the status is not 0, or the time is over.
    """
    try:
        done = subprocess.run(
            command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(command)}: still running after {timeout:.0f} s") from error
    if done.returncode:
        raise CommandError(f"{' '.join(command)}: status {done.returncode}\n{(done.stdout + done.stderr)[-4_000:]}")
    return done.stdout


class CleanEnvironment:
    """A virtual environment with nothing in it, not even pip, and no compiler within reach of its commands."""

    def __init__(self, directory: Path, interpreter: str):
        self.directory = directory
        self.python = str(directory / "bin" / "python")
        run([interpreter, "-m", "venv", "--without-pip", str(directory)])

    def install(self, *requirements: str) -> None:
        """Install packages with the pip of this program; every dependency must come as a wheel."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-compile"]
        run([*pip, *requirements], environment=self._variables(inherited=True))

    def run(self, *arguments: str, timeout: float = 300) -> str:
        """Run the environment's interpreter in an empty directory and return its output."""
        empty = self.directory / "work"
        empty.mkdir(exist_ok=True)
        return run([self.python, *arguments], environment=self._variables(), cwd=empty, timeout=timeout)

    def _variables(self, *, inherited: bool = False) -> dict[str, str]:
        """Return an environment without compilers: ``PATH`` has none, and the variables that builds read name none."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        if inherited:  # pip's own configuration: where it looks for packages
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRIOKAFKA_"))}
        return {**kept, "PATH": str(self.directory / "bin"), "CC": "/bin/false", "CXX": "/bin/false"}


def build_wheel(interpreter: str, source: Path, target: Path, *, pure: bool) -> Path:
    """Build a wheel from an sdist or a checkout, in an environment of the interpreter, and return its path.

    Args:
        interpreter: the Python that the wheel is for.
        source: the sdist.
        target: an empty directory for the wheel.
        pure: without compiled kernels, for every Python.
    """
    scratch = target / "environment"
    run([interpreter, "-m", "venv", "--without-pip", str(scratch)])
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(scratch / "bin" / "python"),
        "wheel",
        "--quiet",
        "--no-deps",
    ]
    variables = {name: value for name, value in os.environ.items() if name != "TRIOKAFKA_PURE"}
    if pure:
        variables["TRIOKAFKA_PURE"] = "1"
    run([*command, "--wheel-dir", str(target), str(source)], environment=variables, timeout=3_600)
    (wheel,) = target.glob("*.whl")
    return wheel
