"""Every block of code in the documentation runs as the page shows it, with the result that the page states.

The pages that start Spark are in ``test_documentation_of_spark.py``, so that another worker can run them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.documented import ROOT, Reader, blocks_of, pages, run_page, starts_spark

PAGES = pages()


@pytest.mark.timeout(1_800)  # pages have many blocks, each of which starts a process
@pytest.mark.parametrize(
    "page", [page for page in PAGES if not starts_spark(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_blocks_of_the_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


def test_blocks_that_are_not_run_give_a_reason_and_are_few() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    left_out = {str(block): block.not_run for block in blocks if block.not_run}
    assert all(len(reason.split()) > 3 for reason in left_out.values()), left_out
    assert len(left_out) * 6 < len(blocks), left_out


def test_no_page_hides_code_that_its_blocks_need() -> None:
    hidden = [str(page.relative_to(ROOT)) for page in PAGES if re.search(r"<!--\s*given\b", page.read_text("utf-8"))]
    assert hidden == []


def test_page_that_needs_a_broker_shows_how_to_start_one() -> None:
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
