"""The site that ``make docs`` builds: it can be searched, has no dead link, and what one copies from it works."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.documented import ROOT, Reader, blocks_of
from tests.support.site_links import dead_links

ADDRESS_OF_ANOTHER_HOST = re.compile(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"(?:https?:)?//")


def build_site(target: Path) -> None:
    """As ``make docs`` does, but elsewhere."""
    for command in (["docs.generate"], ["sphinx", "-b", "html", "-E", "-W", "--keep-going", "-q", "docs", str(target)]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.timeout(1_000)  # all pages from nothing, on whatever machine
def test_site_is_built_without_a_warning_or_a_dead_link_and_can_be_searched(tmp_path: Path) -> None:
    build_site(tmp_path)
    assert "process_partitions" in (tmp_path / "reference" / "python-consuming.html").read_text("utf-8")
    assert "rebalanc" in (tmp_path / "searchindex.js").read_text("utf-8")
    assert (tmp_path / "search.html").exists()
    assert "process_partitions" in (tmp_path / "_static" / "search-texts.js").read_text("utf-8")
    conformance = (tmp_path / "conformance.html").read_text("utf-8")
    assert "<s>struck out</s>" in conformance
    assert '<meta name="description" content="' in conformance
    assert dead_links(tmp_path) == []
    assert [page for page in tmp_path.glob("*.html") if ADDRESS_OF_ANOTHER_HOST.search(page.read_text("utf-8"))] == []


def shown_code(page: str) -> list[str]:
    """The text of a built page's blocks of code, as a browser's clipboard gets it."""
    blocks = re.findall(
        r'<div class="highlight-(?:python|console)[^"]*"><div class="highlight"><pre>(.*?)</pre>', page, re.S
    )
    return [html.unescape(re.sub(r"<[^>]*>", "", block)) for block in blocks]


@pytest.mark.long
@pytest.mark.timeout(1_500)
def test_tutorial_copied_from_the_site_works_in_a_fresh_environment(tmp_path: Path) -> None:
    """A newcomer's way: an environment, pip, the first program, the first test. Prints how long each took."""
    build_site(tmp_path / "site")
    tutorial = ROOT / "docs" / "tutorial.md"
    blocks = blocks_of(tutorial)
    shown = shown_code((tmp_path / "site" / "tutorial.html").read_text("utf-8"))
    assert [code.rstrip() for code in shown] == [block.code.rstrip() for block in blocks]
    clock = time.monotonic()
    python = str(tmp_path / "environment" / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(tmp_path / "environment")],
        [python, "-m", "pip", "install", "--quiet", f"{ROOT}[testing]"],
    ):
        subprocess.run(command, check=True, timeout=600)
    print(f"installed in {time.monotonic() - clock:.0f} s")
    work = tmp_path / "work"
    work.mkdir()
    with Reader(tutorial, work, lambda block: python) as reader:
        for block in blocks:
            if not block.not_run:
                clock = time.monotonic()
                reader.run(block)
                print(f"line {block.line}: {time.monotonic() - clock:.1f} s")
