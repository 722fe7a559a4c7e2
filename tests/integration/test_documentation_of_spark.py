"""Every block of code on the pages that start Spark runs as the page shows it, with the result that the page states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documented import ROOT, pages, run_page, starts_spark

PAGES = [page for page in pages() if starts_spark(page)]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_the_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)
