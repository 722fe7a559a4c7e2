"""Every block of code in the documentation does what the page says, when it is run as the page shows it."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.documented import ROOT, Reader, blocks_of

PAGES = sorted(
    page
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if "reference" not in page.parts and "site" not in page.parts and blocks_of(page)
)


@pytest.mark.timeout(1_800)  # a page on Spark starts it for every block
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_the_page_run(page: Path, tmp_path: Path) -> None:
    with Reader(page, tmp_path) as reader:
        for block in blocks_of(page):
            if not block.not_run:
                reader.run(block)


def test_blocks_that_are_not_run_say_why_and_are_few() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    left_out = {str(block): block.not_run for block in blocks if block.not_run}
    assert all(len(reason.split()) > 3 for reason in left_out.values()), left_out
    assert len(left_out) * 6 < len(blocks), left_out


def test_no_page_hides_code_that_its_blocks_need() -> None:
    hidden = [str(page.relative_to(ROOT)) for page in PAGES if re.search(r"<!--\s*given\b", page.read_text("utf-8"))]
    assert hidden == []


def test_page_that_needs_a_broker_says_how_to_start_one() -> None:
    silent = []
    for page in PAGES:
        text = page.read_text("utf-8")
        if "localhost:9092" in text and "triokafka broker" not in text:
            silent.append(page.name)
    assert silent == []


def test_block_that_fails_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "quickstart.md"
    block = next(block for block in blocks_of(page) if block.language == "python")
    broken = type(block)(**{**vars(block), "code": "import triokafka\ntriokafka.Producer(lingering_ms=5)\n"})
    with Reader(page, tmp_path) as reader, pytest.raises(AssertionError, match=re.escape("linger_ms")):
        reader.run(broken)


ADDRESS_OF_ANOTHER_HOST = re.compile(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"(?:https?:)?//")


def build_site(target: Path) -> None:
    """As ``make docs`` does, but elsewhere."""
    for command in (["docs.generate"], ["sphinx", "-b", "html", "-E", "-W", "--keep-going", "-q", "docs", str(target)]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.timeout(1_000)  # all pages from nothing, on whatever machine
def test_site_is_built_without_a_warning_and_can_be_searched(tmp_path: Path) -> None:
    build_site(tmp_path)
    assert "process_partitions" in (tmp_path / "reference" / "python-consuming.html").read_text("utf-8")
    assert "rebalanc" in (tmp_path / "searchindex.js").read_text("utf-8")
    assert (tmp_path / "search.html").exists()
    assert "process_partitions" in (tmp_path / "_static" / "search-texts.js").read_text("utf-8")
    conformance = (tmp_path / "conformance.html").read_text("utf-8")
    assert "<s>struck out</s>" in conformance
    assert '<meta name="description" content="' in conformance
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
