"""The newcomer's path: every block of the documentation in a fresh environment with only the packages that its page
names.

``python -m tests.newcomer [PAGE …]`` builds a wheel, creates one virtual environment for each set of packages that the
pages name, and runs the blocks of each page in an empty directory, as shown. It prints a line for each block and ends
with status 1 if one fails. ``--pure`` builds the wheel without compiled kernels, which takes a second.

``python -m tests.newcomer --readers`` follows four readers instead, each through one page: from nothing to the first
result and to the end of the page. The commands are those of the built site (``make docs``), if it exists.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.documented import ROOT, Block, Reader, blocks_of
from tests.support.inherited_signals import heed_signals

_OURS = re.compile(r"triokafka(\[[\w,-]+\])?")
EXAMPLES = {
    "examples/test_with_broker.py": ("triokafka[testing]", "kafka-python"),
    "examples/test_session_timeout.py": ("triokafka[testing]",),
    "examples/simulation.py": ("triokafka",),
}
"""Programs of ``examples/`` that need no address, with the packages that their users have installed."""
READERS = {
    "client": "docs/tutorial.md",
    "tester": "docs/testing.md",
    "cluster operator": "docs/cluster.md",
    "Spark user": "docs/spark.md",
}
"""The page that each kind of reader reads first."""
SITE = ROOT / "docs" / "site"


class Outcome(NamedTuple):
    """One block or program: its place, the installed packages, its duration, and the error."""

    where: str
    installed: tuple[str, ...]
    seconds: float
    failure: str


class Environments:
    """Virtual environments in a directory, one for each set of packages, created once.

    Each has exactly what ``pip install`` installs for its set, from a wheel of the package. They share only pip's
    download cache. They have no pip, and byte code only for imported modules: both would take seconds.
    """

    def __init__(self, directory: Path, *, pure: bool = False) -> None:
        self._directory = directory
        self._pure = pure
        self._wheel: Path | None = None
        self._made: dict[tuple[str, ...], str] = {}

    def python(self, packages: Sequence[str]) -> str:
        """Return the interpreter of the environment that has these packages."""
        key = tuple(sorted(packages))
        if key not in self._made:
            environment = self._directory / f"environment-{len(self._made)}"
            _run([sys.executable, "-m", "venv", "--without-pip", str(environment)])
            python = str(environment / "bin" / "python")
            wheel = str(self.wheel())
            wanted = [_OURS.sub(lambda found: f"{wheel}{found[1] or ''}", name, count=1) for name in packages]
            pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check"]
            _run([*pip, "install", "--no-compile", *wanted])
            self._made[key] = python
        return self._made[key]

    def wheel(self) -> Path:
        """Return the installed wheel, built from the checkout on first use."""
        if self._wheel is None:
            target = self._directory / "wheel"
            environment = {**os.environ, **({"TRIOKAFKA_PURE": "1"} if self._pure else {})}
            _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(ROOT)],
                 environment)  # fmt: skip
            (self._wheel,) = target.glob("triokafka-*.whl")
        return self._wheel


def pages() -> list[Path]:
    """Return all pages with blocks of code."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in found if blocks_of(page)]


def read(page: Path, environments: Environments, directory: Path) -> Iterator[Outcome]:
    """Run the blocks of a page from top to bottom in an empty directory."""
    directory.mkdir()
    with Reader(page, directory, lambda block: environments.python(block.install)) as reader:
        for block in blocks_of(page):
            if not block.not_run:
                environments.python(block.install)  # creating it does not count as the block's time
                yield _outcome(reader, block)


def _outcome(reader: Reader, block: Block) -> Outcome:
    began = time.monotonic()
    failure = ""
    try:
        reader.run(block)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    return Outcome(str(block), block.install, time.monotonic() - began, failure)


class Walk(NamedTuple):
    """A reader's path through a page: seconds from nothing, which is a machine with Python and the wheel."""

    reader: str
    page: str
    installed: float
    first_result: float
    whole_page: float
    failure: str

    def __str__(self) -> str:
        verdict = "FAILED" if self.failure else "passed"
        return (
            f"{verdict}  {self.reader:16} {self.page:18} installed after {self.installed:5.1f} s, "
            f"first result {self.first_result:5.1f} s, whole page {self.whole_page:6.1f} s"
        )


def walk(reader: str, environments: Environments, directory: Path) -> Walk:
    """Follow one of `READERS` through its page; end at the first block that fails."""
    page = ROOT / READERS[reader]
    environments.wheel()  # a reader gets it from an index
    began = time.monotonic()
    installed = first = 0.0
    failure = ""
    directory.mkdir()
    with Reader(page, directory, lambda block: environments.python(block.install)) as blocks:
        for block in blocks_of(page):
            if block.not_run:
                continue
            environments.python(block.install)
            installed = installed or time.monotonic() - began
            failure = _outcome(blocks, block).failure
            first = first or time.monotonic() - began
            if failure:
                break
    return Walk(reader, READERS[reader], installed, first, time.monotonic() - began, failure)


def shown_code(page: str) -> list[str]:
    """Return the text of a built page's blocks of code, as a browser's clipboard gets it."""
    blocks = re.findall(
        r'<div class="highlight-(?:python|console)[^"]*"><div class="highlight"><pre>(.*?)</pre>', page, re.S
    )
    return [html.unescape(re.sub(r"<[^>]*>", "", block)) for block in blocks]


def differing_blocks(page: Path, site: Path) -> list[str]:
    """Return the places of a page's blocks that the built site shows differently, or not at all."""
    built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
    shown = [code.rstrip() for code in shown_code(built.read_text(encoding="utf-8"))]
    return [str(block) for block in blocks_of(page) if block.code.rstrip() not in shown]


def run_example(path: str, environments: Environments, directory: Path) -> Outcome:
    """Run a program of ``examples/`` from an empty directory."""
    directory.mkdir()
    program = directory / Path(path).name
    program.write_bytes((ROOT / path).read_bytes())
    python = environments.python(EXAMPLES[path])
    tests = program.name.startswith("test_")
    command = [python, "-m", "pytest", "-q", program.name] if tests else [python, program.name]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    failure = "" if done.returncode == 0 else f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return Outcome(path, EXAMPLES[path], time.monotonic() - began, failure)


def _run(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1_800, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}\n{done.stderr}")


def main() -> int:
    """Run the pages that the command line names, or all of them and the examples; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.newcomer", description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="such as README.md docs/quickstart.md")
    parser.add_argument("--pure", action="store_true", help="build the wheel without compiled kernels")
    parser.add_argument("--readers", action="store_true", help="time four readers, each through one page")
    arguments = parser.parse_args()
    heed_signals()  # the blocks' programs are ended by Ctrl-C
    if arguments.readers:
        return _time_readers(pure=arguments.pure)
    failed = total = 0
    with tempfile.TemporaryDirectory(prefix="triokafka-newcomer-") as name:
        directory = Path(name)
        environments = Environments(directory, pure=arguments.pure)
        for outcome in _all([page.resolve() for page in arguments.pages], environments, directory):
            total += 1
            failed += bool(outcome.failure)
            verdict = "FAILED" if outcome.failure else "passed"
            print(f"{verdict} {outcome.seconds:6.1f} s  {outcome.where:40} {' '.join(outcome.installed)}", flush=True)
            if outcome.failure:
                print(outcome.failure, flush=True)
    print(f"{total - failed} of {total} passed")
    return 1 if failed else 0


def _time_readers(*, pure: bool) -> int:
    if SITE.exists():
        different = [place for page in READERS.values() for place in differing_blocks(ROOT / page, SITE)]
        if different:
            print(f"docs/site shows other commands; run make docs: {', '.join(different)}", flush=True)
            return 1
    failed = False
    with tempfile.TemporaryDirectory(prefix="triokafka-newcomer-") as name:
        environments = Environments(Path(name), pure=pure)
        for number, reader in enumerate(READERS):
            done = walk(reader, environments, Path(name) / f"reader-{number}")
            print(done, flush=True)
            if done.failure:
                failed = True
                print(done.failure, flush=True)
    return 1 if failed else 0


def _all(chosen: Sequence[Path], environments: Environments, directory: Path) -> Iterator[Outcome]:
    for number, page in enumerate(chosen or pages()):
        yield from read(page, environments, directory / f"page-{number}")
    if not chosen:
        for number, path in enumerate(EXAMPLES):
            yield run_example(path, environments, directory / f"example-{number}")


if __name__ == "__main__":
    sys.exit(main())
