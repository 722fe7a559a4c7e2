"""What the documentation shows is run: programs, fragments, tests and commands, page by page and from top to bottom.

A page has one broker and one directory for all of its blocks. Where a block alone says too little, an HTML comment
right before it, which readers do not see, says the rest:

- ``<!-- given CODE -->``: run before the block, as part of it (``CODE`` may have several lines).
- ``<!-- until TEXT -->``: the program would go on for ever; it is interrupted once it has printed a line with TEXT. A
  command, whatever TEXT is, once it has printed the lines below it, in any order.
- ``<!-- not run: REASON -->``.

A ``python`` block below a line such as "`name.py`:" is kept in that file for the commands that follow. One with
``def test_`` is run by pytest; one that awaits outside of a function is the body of a Trio program, in which
``producer``, ``consumer`` and ``admin`` are open, if it uses them and does not make them; any other is a program. In a
``console`` block what follows ``$ `` is a command, and the lines below are all that it prints, in which ``…`` stands
for anything. Brokers that are started so run until the page ends. Addresses on this machine are replaced by addresses
with free ports, and commands for which ``localhost:9092`` goes without saying are told.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests.broker_process import broker_process, free_port

ROOT = Path(__file__).parents[1]
LANGUAGES = ("python", "console")
SECONDS = 600.0

_BLOCK = re.compile(
    r"(?:^`([\w-]+\.py)`[^\n]*:\n\n)?((?:^<!-- .*?-->\n)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"^<!-- (given|until|not run:)\s(.*?)\s*-->$", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"\b(localhost|127\.0\.0\.1):([1-9]\d*)")
_SERVICE = re.compile(r"triokafka (broker|cluster)\b(?!.*--help)")
_ASKING = re.compile(r"\btriokafka (?:(?:topics|configs|groups) [a-z-]+|produce|consume)\b(?!.*--bootstrap-server)")
_OPEN = {
    "producer": 'triokafka.Producer(bootstrap_servers="localhost:9092")',
    "consumer": 'triokafka.Consumer("orders", bootstrap_servers="localhost:9092", group_id="documented",'
    ' auto_offset_reset="earliest")',
    "admin": 'triokafka.AdminClient(bootstrap_servers="localhost:9092")',
}


@dataclass(frozen=True)
class Block:
    """One block of a page, which begins at ``line``."""

    page: Path
    line: int
    language: str
    code: str
    given: str
    until: str
    not_run: str
    file: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page in the languages that can be run."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        file, comments, language, code = match.groups()
        if language in LANGUAGES:
            said = dict(_COMMENT.findall(comments))
            line = text.count("\n", 0, match.start(3)) + 1
            given = textwrap.dedent(said.get("given", ""))
            until, not_run = said.get("until", ""), said.get("not run:", "")
            found.append(Block(page, line, language, code, given, until, not_run, file or ""))
    return found


class Reader:
    """Runs the blocks of one page as somebody would who reads it from top to bottom.

    Args:
        directory: where the reader works.
        python: the interpreter of the reader's environment; another one than ours must have the package installed.
    """

    def __init__(self, page: Path, directory: Path, python: str = sys.executable) -> None:
        self._python = python
        self._blocks = blocks_of(page)
        self._directory = directory
        self._ports: dict[str, int] = {}
        self._ends = ExitStack()
        self._broker = ExitStack()  # one that the page does not start itself
        binaries = Path(python).parent
        self._environment = {
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT) if python == sys.executable else "",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "120",
        }

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
        self._broker.close()

    def run(self, block: Block) -> None:
        """Run one block. Fails with what it complained about."""
        wanted = "localhost:9092" in _asked(self._script(block)) and not _SERVICE.search(block.code)
        if wanted and "9092" not in self._ports:
            self._ports["9092"] = int(self._broker.enter_context(broker_process()).rpartition(":")[2])
        if block.language == "console":
            if block.given:
                self._command(block, self._here(block.given), "")
            for line, expected in _commands(block.code):
                if block.until:
                    self._interrupt(block, ["bash", "-c", f"exec {self._here(line)}"], expected.split("\n"))
                else:
                    self._command(block, self._here(line), self._here(expected))
            return
        program = self._directory / (block.file or f"test_line_{block.line}.py")
        program.write_text(self._here(self._script(block)), encoding="utf-8")
        if block.file and "def test_" not in block.code:
            commands = [one.given + one.code for one in self._blocks if one.language == "console" and not one.not_run]
            assert any(block.file in command for command in commands), f"{block}: {block.file} is never run"
        elif "def test_" in block.code:
            plugin = _plugin() if self._python == sys.executable else []
            command = [self._python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, program.name]
            self._finish(block, command)
        elif block.until:
            self._interrupt(block, [self._python, program.name], [block.until])
        else:
            self._finish(block, [self._python, program.name])

    def _here(self, text: str) -> str:
        def address(match: re.Match[str]) -> str:
            port = self._ports.setdefault(match[2], 0) or free_port()
            self._ports[match[2]] = port
            return f"{match[1]}:{port}"

        return _ADDRESS.sub(address, _asked(text))

    def _script(self, block: Block) -> str:
        code = block.given + "\n" + block.code
        if block.language != "python" or "def test_" in code or not _awaits(code):
            return code
        names = _names(code)
        opened = [f"{made} as {name}" for name, made in _OPEN.items() if names.get(name) is False]
        head = f"async with {', '.join(opened)}:" if opened else "if True:"
        return "\n".join(
            [
                "import trio, triokafka",
                "from triokafka import *",
                "async def main():",
                f"    {head}",
                textwrap.indent(code, " " * 8, lambda line: bool(line.strip())),
                "trio.run(main)",
            ]
        )

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

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
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
    """What names the pytest plugin where the package is not installed and so has no entry points."""
    installed = metadata.entry_points(group="pytest11", name="triokafka")
    return [] if installed else ["-p", "triokafka.testing.plugin"]


def _asked(text: str) -> str:
    return _ASKING.sub(r"\g<0> --bootstrap-server localhost:9092", text)


def _commands(code: str) -> Iterator[tuple[str, str]]:
    """Each command, its continued lines joined, with what is shown below it."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield "\n".join(lines[:end]), "\n".join(lines[end:])


def _pattern(expected: str) -> re.Pattern[str]:
    """Blanks at the ends of lines do not count; a line of ``…`` alone stands for any number of lines."""
    lines = []
    for line in _trimmed(expected).split("\n"):
        whole = r"(?:.*\n)*?.*" if line.strip() == "…" else ".*".join(map(re.escape, line.split("…")))
        lines.append(whole)
    return re.compile("\n".join(lines))


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def _awaits(code: str) -> bool:
    """Whether it awaits outside of any function."""
    pending: list[ast.AST] = list(ast.parse(code).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(node)
    return False


def _names(code: str) -> dict[str, bool]:
    """The names that it uses, each with whether it gives them a value."""
    found: dict[str, bool] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            found[node.id] = found.get(node.id, False) or isinstance(node.ctx, ast.Store)
    return found


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """What it prints, by line; it is killed when it says nothing for too long."""
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
