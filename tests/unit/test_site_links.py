"""The judge of the site's links notices each kind of dead link, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.site_links import dead_links


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ('<a href="b/two.html">', None),
        ('<a class="x" href="b/two.html#a-place">', None),
        ('<a href="#here"><h2 id="here">', None),
        ('<a href="#">', None),
        ('<a href="https://example.org/missing.html#x">', None),
        ('<a href="b/three.html">', "no such file"),
        ('<img src="picture.svg">', "no such file"),
        ('<a href="b/two.html#another-place">', "no such anchor"),
        ('<a href="#there">', "no such anchor"),
        ('<a href="b">', "no such file"),
    ],
)
def test_link_is_dead_if_its_file_or_its_anchor_is_missing(tmp_path: Path, link: str, problem: str | None) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(link)
    (tmp_path / "b" / "two.html").write_text('<h2 class="x" id="a-place">')
    found = dead_links(tmp_path)
    assert (len(found), problem is None or problem in found[0]) == (int(problem is not None), True)
