"""The site that ``make docs`` builds: search works, no link is dead, and copied commands work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.newcomer import READERS, Environments, differing_blocks, walk
from tests.support.documented import ROOT
from tests.support.site_links import dead_links

ADDRESS_OF_ANOTHER_HOST = re.compile(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"(?:https?:)?//")


def build_site(target: Path) -> None:
    """Build the site as ``make docs`` does, in another directory."""
    for command in (["docs.generate"], ["sphinx", "-b", "html", "-E", "-W", "--keep-going", "-q", "docs", str(target)]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.timeout(1_000)  # builds all pages, on any machine
def test_site_is_built_without_a_warning_or_a_dead_link_and_can_be_searched(tmp_path: Path) -> None:
    build_site(tmp_path)
    assert "process_partitions" in (tmp_path / "reference" / "python-consuming.html").read_text("utf-8")
    assert "rebalanc" in (tmp_path / "searchindex.js").read_text("utf-8")
    assert (tmp_path / "search.html").exists()
    assert "process_partitions" in (tmp_path / "_static" / "search-texts.js").read_text("utf-8")
    conformance = (tmp_path / "conformance.html").read_text("utf-8")
    assert "<s>struck-out</s>" in conformance
    assert '<meta name="description" content="' in conformance
    assert dead_links(tmp_path) == []
    assert [page for page in tmp_path.glob("*.html") if ADDRESS_OF_ANOTHER_HOST.search(page.read_text("utf-8"))] == []


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_blocks_copied_from_the_site_work_for_four_readers_in_fresh_environments(tmp_path: Path) -> None:
    """Each reader starts with an empty environment. Prints how long each took."""
    build_site(tmp_path / "site")
    assert [place for page in READERS.values() for place in differing_blocks(ROOT / page, tmp_path / "site")] == []
    environments = Environments(tmp_path, pure=True)
    for number, reader in enumerate(READERS):
        done = walk(reader, environments, tmp_path / f"reader-{number}")
        print(done)
        assert done.failure == ""
