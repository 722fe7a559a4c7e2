"""Runs the programs, tests and commands in the documentation, page by page and from top to bottom.

A page has one broker and one directory for all of its blocks, and each block is run exactly as shown. An HTML comment
right before a block tells how the block ends or why it is not run; it never adds code:

- ``<!-- until TEXT -->``: the program would run forever; it is interrupted once it has printed a line with TEXT. A
  command is interrupted once it has printed the lines below it, in any order, whatever TEXT is.
- ``<!-- not run: REASON -->``.

A ``python`` block below a line such as "`name.py`:" is stored in that file for later commands. A block with ``def
test_`` is run by pytest, any other is a program. On a page with the sentence in `_SESSION`, the Python blocks run in
one interpreter, one after the other. In a ``console`` block, text after ``$ `` is a command, and the lines below are
its whole output, in which ``…`` stands for anything. Brokers started by such commands run until the page ends; a page
that only mentions ``localhost:9092`` has one there. Addresses on this machine are replaced by addresses with free
ports; an environment variable names the broker for commands without an address.

The requirements of a block are in the ``pip install`` command above it in its section, or else in the page's first one.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.support.broker_process import broker_process, free_port

ROOT = Path(__file__).parents[2]
LANGUAGES = ("python", "console")
SECONDS = 600.0

_BLOCK = re.compile(
    r"(?:^`([\w-]+\.py)`[^\n]*:\n\n)?((?:^<!-- (?:(?!-->).)*-->\n)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"^<!-- (until|not run:)\s(.*?)\s*-->$", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"\b(localhost|127\.0\.0\.1):([1-9]\d*)")
_SERVICE = re.compile(r"triokafka (broker|cluster)\b(?!.*--help)")
_ASKING = re.compile(r"\btriokafka (?:(?:topics|configs|groups) [a-z-]+|produce|consume)\b(?!.*--bootstrap-server)")
_INSTALL = re.compile(r"pip install ((?:'[^'\n]+'|[a-z][\w.-]*)(?: (?:'[^'\n]+'|[a-z][\w.-]*))*)")
_SESSION = "The blocks of this page go into one Python session, one after the other."
_INTERPRETER = """
import sys, traceback
names = {"__name__": "__main__"}
for path in sys.stdin:
    try:
        with open(path.strip()) as file:
            exec(compile(file.read(), path.strip(), "exec"), names)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    print("the block is done", flush=True)
"""


@dataclass(frozen=True)
class Block:
    """One block of a page, which begins at ``line``."""

    page: Path
    line: int
    language: str
    code: str
    until: str
    not_run: str
    file: str
    install: tuple[str, ...]
    in_session: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in languages that can be run."""
    text = page.read_text(encoding="utf-8")
    session = _SESSION in text
    found = []
    for match in _BLOCK.finditer(text):
        file, comments, language, code = match.groups()
        if language in LANGUAGES:
            said = dict(_COMMENT.findall(comments))
            line = text.count("\n", 0, match.start(3)) + 1
            until, not_run = said.get("until", ""), said.get("not run:", "")
            install = _everything(text) if session else _install(text, match.start())
            in_session = session and language == "python"
            found.append(Block(page, line, language, code, until, not_run, file or "", install, in_session))
    return found


def pages() -> list[Path]:
    """Return README.md and the pages of the documentation that have blocks."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if not {"reference", "site"} & set(page.parts) and blocks_of(page))


def starts_spark(page: Path) -> bool:
    """Whether a block of the page starts Spark, which takes a minute."""
    return any("SparkSession.builder" in block.code for block in blocks_of(page) if not block.not_run)


def run_page(page: Path, directory: Path) -> None:
    """Run all blocks of a page, apart from those that give a reason for not being run. Fails at the first failure."""
    with Reader(page, directory) as reader:
        for block in blocks_of(page):
            if not block.not_run:
                reader.run(block)


def _install(text: str, position: int) -> tuple[str, ...]:
    """Return the packages that a reader has installed at this point; by default only triokafka."""
    section = text.rfind("\n## ", 0, position)
    commands = _INSTALL.findall(text[section + 1 : position])[-1:] or _INSTALL.findall(text[:position])[:1]
    return tuple(shlex.split(commands[0])) if commands else ("triokafka",)


def _everything(text: str) -> tuple[str, ...]:
    """Return the packages in all commands of a page."""
    words = {word for command in _INSTALL.findall(text) for word in shlex.split(command)}
    extras = {extra for word in words if word.startswith("triokafka[") for extra in word[10:-1].split(",")}
    return f"triokafka[{','.join(sorted(extras))}]", *sorted(word for word in words if not word.startswith("triokafka"))


class Reader:
    """Runs the blocks of one page, as a reader would from top to bottom.

    Args:
        directory: the reader's working directory.
        python: the interpreter of the reader's environment for each block; another one than ours must have the package
            installed.
    """

    def __init__(
        self, page: Path, directory: Path, python: Callable[[Block], str] = lambda block: sys.executable
    ) -> None:
        self._choose_python = python
        self._python = sys.executable
        self._session: subprocess.Popen[str] | None = None
        self._blocks = blocks_of(page)
        self._directory = directory
        self._ports: dict[str, int] = {}
        self._ends = ExitStack()
        self._broker = ExitStack()  # a broker that the page does not start itself

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
        self._broker.close()

    @property
    def _environment(self) -> dict[str, str]:
        ours = self._python == sys.executable
        found = {
            **os.environ,
            "PATH": f"{Path(self._python).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "120",
        }
        found.pop("PYTHONPATH", None)
        if ours:
            found["PYTHONPATH"] = str(ROOT)
        if "9092" in self._ports:
            found["TRIOKAFKA_BOOTSTRAP_SERVERS"] = f"localhost:{self._ports['9092']}"
        return found

    def run(self, block: Block) -> None:
        """Run one block. Fails with its error output."""
        self._python = self._choose_python(block)
        wanted = ("localhost:9092" in block.code or _ASKING.search(block.code)) and not _SERVICE.search(block.code)
        if wanted and "9092" not in self._ports:
            self._ports["9092"] = int(self._broker.enter_context(broker_process()).rpartition(":")[2])
        if block.language == "console":
            for line, expected in _commands(block.code):
                if block.until:
                    self._interrupt(block, ["bash", "-c", f"exec {self._here(line)}"], expected.split("\n"))
                else:
                    self._command(block, self._here(line), self._here(expected))
            return
        program = self._directory / (block.file or f"test_line_{block.line}.py")
        program.write_text(self._here(block.code), encoding="utf-8")
        if block.file and "def test_" not in block.code:
            commands = [one.code for one in self._blocks if one.language == "console" and not one.not_run]
            assert any(block.file in command for command in commands), f"{block}: {block.file} is never run"
        elif "def test_" in block.code:
            plugin = _plugin() if self._python == sys.executable else []
            command = [self._python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, program.name]
            self._finish(block, command)
        elif block.in_session:
            self._continue(block, program.name)
        elif block.until:
            self._interrupt(block, [self._python, program.name], [block.until])
        else:
            self._finish(block, [self._python, program.name])

    def _here(self, text: str) -> str:
        def address(match: re.Match[str]) -> str:
            port = self._ports.setdefault(match[2], 0) or free_port()
            self._ports[match[2]] = port
            return f"{match[1]}:{port}"

        return _ADDRESS.sub(address, text)

    def _continue(self, block: Block, program: str) -> None:
        """Run a block in the page's interpreter, after the earlier blocks."""
        if self._session is None:
            # Read the pipe, or it fills: Spark prints a lot.
            self._errors = self._ends.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115
            self._session = self._start([self._python, "-c", _INTERPRETER], stderr=self._errors)
        process = self._session
        assert process.stdin is not None
        process.stdin.write(f"{program}\n")
        process.stdin.flush()
        printed = []
        for line in _lines(process):
            if line == "the block is done\n":
                return
            printed.append(line)
        self._errors.seek(0)
        raise AssertionError(f"{block}: it failed\n{''.join(printed)}\n{self._errors.read()[-20_000:]}")

    def _finish(self, block: Block, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{block}: status {done.returncode}\n{done.stdout}\n{done.stderr}"

    def _interrupt(self, block: Block, command: list[str], awaited: list[str]) -> None:
        process = self._start(command)
        missing = set(awaited)
        printed: list[str] = []
        for line in _lines(process):
            printed.append(line)
            missing -= {text for text in missing if text in line}
            if not missing:
                process.send_signal(signal.SIGINT)
                break
        _, complaints = process.communicate(timeout=SECONDS)
        assert not missing, f"{block}: never printed {missing}\n{''.join(printed)}\n{complaints}"

    def _start(self, command: list[str], stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self._ends.callback(_end, process)
        return process

    def _command(self, block: Block, command: str, expected: str) -> None:
        if _SERVICE.search(command):
            self._broker.close()
            process = self._start(["bash", "-c", f"exec {command}"])
            line = next(_lines(process), "")
            assert line.startswith("ready"), f"{block}: {command}\n{line}{process.communicate()[1]}"
            return
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {command}\nstatus {done.returncode}\n{done.stdout}\n{done.stderr}"
        if expected:
            assert _pattern(expected).fullmatch(_trimmed(done.stdout)), f"{block}: {command}\nprinted:\n{done.stdout}"


def _plugin() -> list[str]:
    """Return the setting that loads the pytest plugin where the package has no entry points, as it is not installed."""
    installed = metadata.entry_points(group="pytest11", name="triokafka")
    return [] if installed else ["-p", "triokafka.testing.plugin"]


def _commands(code: str) -> Iterator[tuple[str, str]]:
    """Return each command, its continued lines joined, with the output shown below it."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield "\n".join(lines[:end]), "\n".join(lines[end:])


def _pattern(expected: str) -> re.Pattern[str]:
    """Return a pattern that ignores trailing blanks; a line of ``…`` alone stands for any number of lines."""
    lines = []
    for line in _trimmed(expected).split("\n"):
        whole = r"(?:.*\n)*?.*" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…")))
        lines.append(whole)
    return re.compile("\n".join(lines))


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the output by line; kill the process if it prints nothing for too long."""
    assert process.stdout is not None
    while True:
        watchdog = threading.Timer(SECONDS, process.kill)
        watchdog.start()
        try:
            line = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            return
        yield line


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
    else:
        process.communicate()
