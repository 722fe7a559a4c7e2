"""The site's contents come from one list, and every public name has its place in the reference."""

from __future__ import annotations

import re

import pytest

import triokafka
from docs import conf, python_api


def test_every_page_is_in_the_side_bar() -> None:
    shown = set(re.findall(r"^([\w/-]+)$", conf.contents_of((conf.DOCS / "index.md").read_text("utf-8")), re.MULTILINE))
    pages = {str(page.relative_to(conf.DOCS)).removesuffix(".md") for page in conf.DOCS.rglob("*.md")}
    kept = {page for page in pages if not page.startswith(("reference/", "site/")) and page != "index"}
    assert kept == shown


def test_a_page_is_listed_once_under_the_first_heading_that_names_it() -> None:
    contents = conf.contents_of(
        "# t\n\n## One\n\n[a](a.md) [b](b/c.md#d)\n\n## Two\n\n[a](a.md) [e](e.md) [x](../x.md)\n"
    )
    assert contents == (
        "```{toctree}\n:hidden:\n:caption: One\n\na\nb/c\n```\n\n```{toctree}\n:hidden:\n:caption: Two\n\ne\n```"
    )


def test_public_name_without_a_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "autofunction:: triokafka.read_topic" in python_api.pages()["python-reading-ranges.md"][1]
    monkeypatch.setattr(python_api, "PAGES", {**python_api.PAGES, "Reading ranges": ("RangeReader",)})
    with pytest.raises(LookupError, match=r"triokafka\.read_topic"):
        python_api.pages()


def test_every_public_name_has_a_docstring() -> None:
    names = [name for name in triokafka.__all__ if name != "__version__"]
    assert [name for name in names if not (getattr(triokafka, name).__doc__ or "").strip()] == []
