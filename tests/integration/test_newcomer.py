"""A newcomer's first hour: published blocks in fresh environments with only the documented packages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.newcomer import EXAMPLES, Environments, pages, read, run_example
from tests.support.documented import ROOT, Reader, blocks_of


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    """Create environments with a wheel without compiled kernels, which is built in a second."""
    return Environments(tmp_path_factory.mktemp("environments"), pure=True)


@pytest.mark.timeout(600)
def test_readme_works_after_a_plain_installation(environments: Environments, tmp_path: Path) -> None:
    """With only trio, construct, crc32c and click: the commands, the first program, producer and consumer."""
    python = environments.python(["triokafka"])
    work = tmp_path / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in ([python, "-m", "triokafka", "--version"], [str(Path(python).parent / "triokafka"), "--version"]):
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("triokafka ")
    page = ROOT / "README.md"
    blocks = [block for block in blocks_of(page) if block.install == ("triokafka",)]
    assert len(blocks) >= 2
    with Reader(page, work, lambda block: environments.python(block.install)) as reader:
        for block in blocks:
            reader.run(block)


@pytest.mark.timeout(600)
def test_async_test_of_the_readme_runs_after_installing_the_extra(environments: Environments, tmp_path: Path) -> None:
    """The test is pasted into a directory without any configuration of pytest."""
    work = tmp_path / "work"
    work.mkdir()
    page = ROOT / "README.md"
    with Reader(page, work, lambda block: environments.python(block.install)) as reader:
        (block,) = [block for block in blocks_of(page) if block.install == ("triokafka[testing]",)]
        assert "async def test_" in block.code
        reader.run(block)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_every_published_block_runs_in_a_fresh_environment(tmp_path: Path) -> None:
    environments = Environments(tmp_path)
    outcomes: list[Any] = []
    for number, page in enumerate(pages()):
        outcomes += read(page, environments, tmp_path / f"page-{number}")
    for number, path in enumerate(EXAMPLES):
        outcomes.append(run_example(path, environments, tmp_path / f"example-{number}"))
    for outcome in outcomes:
        print(f"{outcome.seconds:6.1f} s  {outcome.where:40} {' '.join(outcome.installed)}")
    assert [outcome for outcome in outcomes if outcome.failure] == []
