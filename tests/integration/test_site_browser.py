"""The built site in a real browser: every page from a file, on a telephone in the dark and on a wide screen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from tests.integration.test_site import build_site
from tests.support.accessibility import problems
from tests.support.browser import CHROMIUM, Page, browser

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

SITE = os.environ.get("TRIOKAFKA_SITE")
"""A directory with the built site; it is built anew where this is not given."""
LOOKS = ((360, True), (1440, False))
CLIPPED = """[...document.querySelectorAll("article :is(pre, table, svg, img, h1, h2, h3, p, li, a)")].filter((one) => {
    const box = one.getBoundingClientRect();
    for (let at = one; at; at = at.parentElement)
        if (/auto|scroll/.test(getComputedStyle(at).overflowX)) return false;
    return box.right > document.documentElement.clientWidth + 1;
}).map((one) => `clipped: ${one.outerHTML.slice(0, 120)}`)"""
RESULTS = """document.querySelectorAll("#search-results ul.search > li p.context").length > 3"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if SITE:
        return Path(SITE).resolve()
    target = tmp_path_factory.mktemp("site")
    build_site(target)
    return target


async def complaints(page: Page, name: str) -> list[str]:
    """Return the faults of the page, at all widths and in both themes of `LOOKS`."""
    found = []
    for width, dark in LOOKS:
        await page.look(width, dark=dark)
        page.errors.clear()
        page.requests.clear()
        await page.open(name)
        await page.wait_for("document.readyState === 'complete' && document.querySelector('article')")
        wrong = [*await page.run(CLIPPED), *await problems(page), *page.errors]
        wrong += [f"asks {url}" for url in page.requests if not url.startswith(("file:", "data:", "about:"))]
        found += [f"{name} at {width}: {one}" for one in wrong]
    return found


def test_no_page_is_clipped_or_inaccessible_or_asks_other_hosts(site: Path) -> None:
    async def look_at_all() -> list[str]:
        async with browser() as page:
            pages = sorted(path for path in site.rglob("*.html") if not path.relative_to(site).parts[0].startswith("_"))
            assert len(pages) > 100
            return [one for path in pages for one in await complaints(page, path.as_uri())]

    assert trio.run(look_at_all) == []


def test_search_has_excerpts_when_the_site_is_opened_from_a_file(site: Path) -> None:
    async def search() -> tuple[str, list[str]]:
        async with browser() as page:
            await page.open(f"{(site / 'search.html').as_uri()}?q=process_partitions")
            await page.wait_for(RESULTS)
            return await page.run("document.querySelector('#search-results').innerText"), page.errors

    text, errors = trio.run(search)
    assert "process_partitions" in text
    assert errors == []
